"""Tables of figures, for the terminal or a file."""

from __future__ import annotations

import os
import platform
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

PACKAGES = ("Django", "kafka-python", "confluent-kafka", "psycopg", "mysqlclient", "msgspec")


Ours, Theirs = TypeVar("Ours"), TypeVar("Theirs")


@dataclass
class Table:
    """One measurement over all databases: every figure stands beside its ceiling or a peer."""

    title: str
    explained: str
    rows: list[Mapping[str, str]] = field(default_factory=list)

    def markdown(self) -> str:
        if not self.rows:
            return ""
        columns = list(dict.fromkeys(name for row in self.rows for name in row))
        cells = [[row.get(name, "–") for name in columns] for row in self.rows]
        lines = [columns, ["---"] * len(columns), *cells]
        widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
        shown = ("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
                 for line in lines)  # fmt: skip
        return f"### {self.title}\n\n{self.explained}\n\n" + "\n".join(shown) + "\n"


def in_turns(repeat: int, ours: Callable[[], Ours], theirs: Callable[[], Theirs]) -> tuple[list[Ours], list[Theirs]]:
    """Theirs, ours, theirs, ours … theirs: what disturbs the machine meets both."""
    mine: list[Ours] = []
    other = [theirs()]
    for _ in range(repeat):
        mine.append(ours())
        other.append(theirs())
    return mine, other


def median(runs: Sequence[float]) -> str:
    """The middle one, and how far the runs lay apart."""
    middle = statistics.median(runs)
    return number(middle) if len(runs) == 1 else f"{number(middle)} ({number(min(runs))}–{number(max(runs))})"


def number(value: float) -> str:
    """Three digits that mean something, thousands apart."""
    if value < 10:
        return f"{value:.2f}"
    rounded = round(value, -2) if value >= 10_000 else round(value)
    return f"{rounded:,.0f}".replace(",", " ")


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    return f"{statistics.median(ours) / statistics.median(theirs):.2f}" if ours and theirs else "–"


def at(ordered: Sequence[float], share: float) -> float:
    """Of sorted figures, the one that a share of them does not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def machine(servers: Iterable[str]) -> str:
    """What the figures are of."""
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    now = datetime.now(UTC)
    load = " / ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"Measured {now:%Y-%m-%d %H:%M} UTC on {os.cpu_count()} × {processor()}, {memory()} GB, "
        f"{platform.system()} {platform.release().split('-')[0]}; clients, servers and broker share these "
        f"cores (load average at the end {load}).\n\n"
        f"Servers: {', '.join(servers)}. Python {platform.python_version()}, {packages}."
    )


def processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", info.read_text()) if info.exists() else None
    return found[1].strip() if found else platform.machine()


def memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f}"
