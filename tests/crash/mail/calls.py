"""One crash run of POST /v1/messages: services call until they are answered, web servers and relays are killed, the oracle asked."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.crash.mail import oracle as mail_oracle
from tests.crash.mail.caller import PORTS, TOKEN, Client, Journal
from tests.crash.mail.oracle import plain
from tests.crash.mail.promiser import record
from tests.crash.mail.promises import WRONG, PromiseRun
from tests.crash.oracle import Finding
from tests.crash.platform import Worker
from tests.processes.web import PLAIN, Site

WHO = "services"
IDS = "SELECT k.key, k.message_id FROM outbox_idempotencykey k WHERE k.scope = 'publish'"
POINTS = ("stored", "committed")  # of tests.processes.web: before and behind COMMIT, without an answer


class WebServer(Worker):
    """gunicorn: a parent, and the one child that answers."""

    @property
    def children(self) -> list[int]:
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def kill(self) -> int:
        """The parent first, which would start another child."""
        children = self.children
        code = super().kill()
        kill_all(children)
        return code


class CallRun(PromiseRun):
    """By HTTP, and the web servers are killed as well: whole ones, their children, and some around their COMMIT."""

    writer = "tests.crash.mail.caller"
    namespace = f"http:{WHO}"

    def __post_init__(self) -> None:
        super().__post_init__()
        from config.admin.levers import Operator
        from notifications.api.tokens import issue

        self.sites = {name: Site() for name in self.names if name.startswith("web")}
        ports = " ".join(str(site.port) for site in self.sites.values())
        token = issue(WHO, Operator("crash run"), rate=0, channels="email")[1]
        self.platform.environment |= {**PLAIN, PORTS: ports, TOKEN: token}
        self.children_killed = 0

    def _write(self) -> list[subprocess.Popen[bytes]]:
        """The clients of this run itself, beside the callers, need the same environment."""
        os.environ |= {name: self.platform.environment[name] for name in (PORTS, TOKEN)}
        return super()._write()

    def _start(self, name: str) -> None:
        if name not in self.sites:
            return super()._start(name)
        site = self.sites[name]
        started = self.platform.run(site.program, name, {}, site.port)
        self.living[name] = WebServer(name, started.process, started.log, site.port)

    def _between(self, turn: int) -> None:
        """The child of a web server dies alone; and one more server dies around its COMMIT, whose caller asks the others."""
        name = sorted(self.sites)[turn % len(self.sites)]
        self.sites[name].wait()
        server = self.living[name]
        assert isinstance(server, WebServer)
        self.children_killed += kill_all(server.children)
        point = POINTS[turn % len(POINTS)]
        victim = Site(point)
        dying = self.platform.run(victim.program, f"victim-{point}", {})
        victim.wait()
        made = [record("new", f"victim{turn:06d}", number + 1) for number in range(5)]
        promises = [(line, json.loads(message.value or b"")) for line, message in made]
        body, key = {"messages": [envelope for _, envelope in promises]}, f"victim-{turn}"
        reply = victim.post("/v1/messages", body, os.environ[TOKEN], key)
        if reply.status or dying.end() != -signal.SIGKILL:
            self.faults.append(f"{point}: {reply} {dying.text[-300:]}")
        self.points[point] += 1
        with (self.platform.directory / "victims.journal").open("a") as journal:
            Client(Journal(journal), random.Random(turn)).promise(promises, key)

    def _refusals(self, journal: Sequence[Mapping[str, Any]]) -> list[Finding]:
        ids = {key.partition("/")[2]: plain(message_id) for key, message_id in self._rows(IDS)}
        refused = Counter(line["refused"] for line in journal if "refused" in line)
        return [each_answer_is_true(journal, ids), Finding(
            "every other promise is refused by name, and no promise is", str(dict(refused)),
            [line for line in journal if ("refused" in line) is not (line["kind"] in WRONG)],
        )]  # fmt: skip

    def _figures(self, events: Sequence[Any], accepted: Sequence[str], took: float) -> dict[str, Any]:
        lines = mail_oracle.journals(self.platform.directory)
        unanswered = Counter(line["status"] for line in lines if line["kind"] == "unanswered")
        return {
            **super()._figures(events, accepted, took),
            "unanswered": dict(unanswered), "children killed": self.children_killed,
        }  # fmt: skip


def each_answer_is_true(journal: Sequence[Mapping[str, Any]], ids: Mapping[str, str]) -> Finding:
    """Whatever a caller was told of a promise, first or again, is the message that there is."""
    told = [(line["name"], plain(line["id"])) for line in journal if "id" in line]
    return Finding("every answer names the message that there is", f"{len(told)} answers",
                   [one for one in told if ids.get(one[0]) != one[1]])  # fmt: skip


def kill_all(processes: Sequence[int]) -> int:
    """How many of them there were."""
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(processes)
