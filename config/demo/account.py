"""How many samples went in, kept on disk as they go: whoever sends them may be killed before it could say so."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

Counts = Mapping[str, int]  # of samples, by flow


class Account:
    """The samples of one run of the simulation; with a `path` in that file as they go, added to those of earlier runs.

    A sample that was begun and not entered may have gone in: its broker or its database did not say so, or a kill
    came between.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.begun: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.before = read(path) if path else (Counter[str](), Counter[str]())

    def begin(self, names: Iterable[str]) -> None:
        """Samples of these flows are about to be sent."""
        self.begun.update(names)
        self._keep()

    def enter(self, names: Iterable[str]) -> None:
        """Samples of these flows are in Kafka or in the database."""
        self.sent.update(names)
        self._keep()

    @property
    def failed(self) -> int:
        return self.begun.total() - self.sent.total()

    def _keep(self) -> None:
        if self.path is None:
            return
        begun, sent = self.before
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"begun": begun + self.begun, "sent": sent + self.sent}))
        fresh.replace(self.path)


def read(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Samples begun and samples sent, of all lives that kept their account in this file; none without it."""
    try:
        kept = json.loads(path.read_text())
    except FileNotFoundError:
        kept = {"begun": {}, "sent": {}}
    return Counter(kept["begun"]), Counter(kept["sent"])


def from_elsewhere(begun: Counts, arrived: Counts) -> int:
    """How much came that this simulation did not send: records by hand, orders by the API."""
    return sum(max(0, number - begun.get(flow, 0)) for flow, number in arrived.items())


def lost(sent: Counts, arrived: Counts) -> Iterable[str]:
    """A sentence for each flow in which fewer samples arrived than were sent."""
    for flow, number in sent.items():
        if number > arrived.get(flow, 0):
            yield f"{number:,} samples of {flow} were sent and {arrived.get(flow, 0):,} arrived."
