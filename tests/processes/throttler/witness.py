"""What a zombie may not change: the changelog, the committed offsets and the mirror only ever move forward."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import msgspec
from django.db import connection

from tests.crash.throttler.topics import INPUT, Committeds, ThrottlerWire
from throttler.lanes import state
from throttler.lanes.models import LanePartition

Place = tuple[int, ...]


class Witness(threading.Thread):
    """Notes the rows of the mirror, many times a second, until `finish`."""

    def __init__(self, wire: ThrottlerWire) -> None:
        super().__init__(name="witness", daemon=True)
        self.wire = wire
        self.committed = wire.committed(INPUT)
        self.seen: dict[int, list[tuple[Place, str]]] = defaultdict(list)
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(0.02):
            for row in LanePartition.objects.all():
                found = (row.epoch, row.decided, row.position), row.process
                if self.seen[row.number][-1:] != [found]:
                    self.seen[row.number].append(found)
        connection.close()

    def finish(self) -> None:
        """Say what has moved back since the witness was called."""
        self._end.set()
        self.join()
        now = self.wire.committed(INPUT)
        assert all(now[number] >= offset for number, offset in self.committed.items()), (self.committed, now)
        for number, rows in self.seen.items():
            places = [place for place, _process in rows]
            assert places == sorted(places), (number, rows)
            # A partition may come back to whoever had it before, in a later generation.
            writers = {(epoch, process) for (epoch, *_place), process in rows}
            assert len(writers) == len({epoch for epoch, _process in writers}), (
                number,
                "two processes wrote in one generation",
                rows,
            )


def assert_changelog_moves_forward(wire: ThrottlerWire) -> None:
    """Whoever wrote late would have logged an older generation, or an offset that was passed already."""
    log = Committeds(wire, state.CHANGELOG)
    newest: dict[tuple[int, bytes | None], Place] = {}
    try:
        for record in sorted(log.read(), key=lambda record: record.place):
            if record.value is None:
                continue  # a lane that is at rest is forgotten, which has no place; what comes after it has
            key = record.partition, record.key
            place = _place_of(record.key, record.value)
            assert place >= newest.get(key, place), (record, newest[key])
            newest[key] = place
    finally:
        log.close()
    assert newest


def _place_of(key: bytes | None, value: bytes) -> Place:
    found: Any = msgspec.json.decode(value)
    if key == state.PARTITION_KEY:
        return found["position"], found["decided"]
    return found["epoch"], found["seen"], found["drained"]
