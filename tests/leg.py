"""One line of the table that `make test` ends with, and the runs of pytest behind it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree.ElementTree import Element


@dataclass
class Leg:
    """One line of the table: what came out, or the reason why it did not run."""

    name: str
    address: str = ""
    reason: str = ""
    ran: bool = False
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    left_out: set[str] = field(default_factory=set)  # kinds of tests that another leg runs
    only_alone: int = 0  # failed beside other databases, passed when run again with the machine to themselves

    def tally(self, cases: Iterable[Element]) -> None:
        for case in cases:
            name = verdict(case)
            setattr(self, name, getattr(self, name) + 1)
        self.ran = self.ran or bool(self.passed or self.failed)

    @property
    def tallied(self) -> int:
        return self.passed + self.failed + self.skipped

    def settle(self, passed: int) -> None:
        """So many of the failed tests passed in a second run."""
        self.failed -= passed
        self.passed += passed
        self.only_alone += passed

    def __str__(self) -> str:
        if not self.ran:
            return f"{self.name:9} not run  {self.reason}"
        verdict = "FAILED" if self.failed else "passed"
        counts = f"{self.passed:5} passed {self.failed:4} failed {self.skipped:4} skipped"
        again = f"{self.only_alone} passed only when run again alone" if self.only_alone else ""
        return f"{self.name:9} {verdict:7} {counts} {self.seconds:6.0f} s  {self.reason or again}".rstrip()


@dataclass
class Run:
    """One run of pytest: a piece of a leg's tests, or all of them where that is empty."""

    leg: Leg
    others: list[Leg]  # what stands beside the database
    root: Path
    piece: str = ""
    began: float = 0.0  # seconds of a steady clock
    ended: float = 0.0
    failed: int = 0

    @property
    def name(self) -> str:
        return f"{self.leg.name} {self.piece}".strip()

    @property
    def home(self) -> Path:
        """Where its output, its results and what failed last are kept."""
        return self.root / self.name.replace(" ", "-")


def verdict(case: Element) -> str:
    if case.find("failure") is not None or case.find("error") is not None:
        return "failed"
    return "skipped" if case.find("skipped") is not None else "passed"
