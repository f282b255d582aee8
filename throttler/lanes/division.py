"""The record by which owners divide the output rate: read, and written by whoever has read the version before."""

from __future__ import annotations

from typing import Any

from django.db import IntegrityError, transaction

from config.database.errors import is_duplicate
from throttler.lanes.models import OutputDivision
from throttler.limits.division import Division, ShareEntry

ONE = 1  # there is one record


def read() -> Division:
    """The record as it is now; without one, nobody has written yet."""
    row = OutputDivision.objects.filter(pk=ONE).values_list("version", "entries").first()
    if row is None:
        return Division()
    version, entries = row
    return Division(version, {name: _entry(found) for name, found in entries.items()})


def write(proposed: Division) -> bool:
    """Put it in the place of the version before; False: somebody else was first, and nothing was changed."""
    entries = {name: _plain(entry) for name, entry in proposed.entries.items()}
    row = OutputDivision.objects.filter(pk=ONE, version=proposed.version - 1)
    if row.update(version=proposed.version, entries=entries):
        return True
    return proposed.version == 1 and _insert(entries)


def _insert(entries: dict[str, Any]) -> bool:
    try:
        with transaction.atomic():
            OutputDivision.objects.create(pk=ONE, version=1, entries=entries)
    except IntegrityError as error:
        if not is_duplicate(error):
            raise
        return False
    return True


def _entry(found: dict[str, Any]) -> ShareEntry:
    demand = tuple((want, weight) for want, weight in found["demand"])
    return ShareEntry(found["process"], found["basis"], found["share"], tuple(found["partitions"]), demand)


def _plain(entry: ShareEntry) -> dict[str, Any]:
    return {
        "process": entry.process, "basis": entry.basis, "share": entry.share, "partitions": list(entry.partitions),
        "demand": [list(bucket) for bucket in entry.demand],
    }  # fmt: skip
