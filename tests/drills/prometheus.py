"""A real Prometheus: it scrapes processes of this machine, evaluates the rules of deploy/, and is asked by HTTP."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tests.crash.platform import free_port
from tests.tree import ROOT

RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
UNITS = {"s": 1, "m": 60, "h": 3600}
WINDOW = 60  # seconds, the shortest in which numbers of every fifth second say something
SECONDS = 15  # between two scrapes, as in deploy/prometheus/prometheus.yml


def installed() -> str:
    """The program, by PROMETHEUS or in the path; "" where there is none."""
    return os.environ.get("PROMETHEUS") or shutil.which("prometheus") or ""


def alerts_of(rules: str) -> list[str]:
    """The names of all alerts in the text of a file of rules."""
    return re.findall(r"^ +- alert: (\w+)$", rules, re.MULTILINE)


def hurried(rules: str, times: int) -> str:
    """The rules with each `for:` that many times shorter, and each window down to a minute; thresholds stay."""

    def shorter(least: int) -> Callable[[re.Match[str]], str]:
        return lambda match: f"{match[1]}{max(least, int(match[2]) * UNITS[match[3]] // times)}s"

    waits = re.sub(r"^( +for: )(\d+)([smh])$", shorter(1), rules, flags=re.MULTILINE)
    return re.sub(r"(\[)(\d+)([smh])", shorter(WINDOW), waits)


class Prometheus:
    """One server with a folder of its own; `workers` are ports, `scrape` and `evaluate` seconds."""

    def __init__(self, program: str, folder: Path, web: int, workers: Iterable[int],
                 rules: Path = RULES, scrape: float = 3, evaluate: float = 5) -> None:  # fmt: skip
        self.port = free_port()
        targets = {"spillway-web": [web], "spillway-workers": workers}
        jobs = [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
            for job, ports in targets.items()
        ]
        settings = {"global": {"scrape_interval": f"{scrape:g}s", "evaluation_interval": f"{evaluate:g}s",
                               "scrape_timeout": f"{min(scrape, 10):g}s"}}  # fmt: skip
        # JSON is YAML.
        (folder / "prometheus.yml").write_text(
            json.dumps({**settings, "rule_files": [str(rules)], "scrape_configs": jobs})
        )
        command = [
            program, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def get(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer."""
        address = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return json.load(answer)["data"]

    def values(self, query: str) -> list[float]:
        """What it answers now; an error is an error of the query."""
        return [float(sample["value"][1]) for sample in self.get("query", query=query)["result"]]

    def names(self) -> set[str]:
        """Every metric that it has, a histogram by its own name."""
        return {re.sub(r"_(bucket|sum|count)$", "", name) for name in self.get("label/__name__/values")}

    def up(self) -> float:
        try:
            return sum(self.values("up"))
        except OSError:
            return 0

    def alerts(self) -> dict[str, str]:
        """Name → `firing`, else `pending`, of every alert whose condition holds."""
        states: dict[str, str] = {}
        for alert in self.get("alerts")["alerts"]:
            name = alert["labels"]["alertname"]
            states[name] = "firing" if "firing" in (alert["state"], states.get(name)) else "pending"
        return states

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)
