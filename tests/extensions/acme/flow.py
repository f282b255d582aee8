"""Depots on home, in doctor and in /metrics."""

from collections.abc import Iterator
from datetime import datetime

from acme.models import DepotNote

from spillway_ext import Flow, Gauge, HomeRow, Reading, Stage

NOTES = Gauge("acme_depot_notes", "Notes about depots.", registry=None)


class Depots(Flow):
    name = "depots"

    def home_row(self, now: datetime) -> HomeRow:
        return HomeRow(self.name, "Notes of depots", [Stage("Notes", str(DepotNote.objects.count()), "notes")])

    def gauges(self, now: datetime) -> Iterator[Reading]:
        yield Reading(NOTES, DepotNote.objects.count())

    def diagnose(self) -> Iterator[tuple[str, bool, str]]:
        yield "depots", True, f"{DepotNote.objects.count()} notes"
