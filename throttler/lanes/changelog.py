"""The compacted changelog of the lanes: one record a lane, and one a partition under a key that no customer can have."""

from __future__ import annotations

from datetime import date

import msgspec

from throttler.lanes.state import LaneState
from throttler.limits.limiter import from_plain, to_plain

PARTITION_KEY = b"\x00partition"  # the gate refuses customers with U+0000
TOPIC = "notifications-changelog"


class LaneRecord(msgspec.Struct):
    """A lane as it is logged. `epoch` is the generation of the owner that wrote it."""

    epoch: int
    topic_id: str
    first: int
    drained: int
    seen: int
    backlog: int
    day: date | None
    tat: list[int]
    quota: list[list[int]]


class PartitionRecord(msgspec.Struct):
    """A partition as it is logged in each transaction that touches it.

    `position` is the offset that the same transaction committed, `decided` the first offset nothing was decided about:
    they differ while messages wait for the store. A record below `decided` that comes again is neither counted nor sent
    again (docs/adr/0023). `totals` counts everything below `decided`. `began` is when the transaction's first message
    was decided, in microseconds; the broker's timestamp tells how much later its messages left. `decided_before`: up to
    here everything was decided once before a reset that went back, 0 as a rule.
    """

    topic_id: str
    position: int
    decided: int
    totals: dict[str, int]
    began: int = 0
    decided_before: int = 0


_encoder = msgspec.json.Encoder()
_lane = msgspec.json.Decoder(LaneRecord)
_partition = msgspec.json.Decoder(PartitionRecord)


def lane_bytes(lane: LaneState, epoch: int, topic_id: str) -> bytes:
    """The record of a lane."""
    tat, quota = to_plain(lane.limiter)
    return _encoder.encode(
        LaneRecord(epoch, topic_id, lane.first, lane.drained, lane.seen, lane.backlog, lane.day, tat, quota)
    )


def lane_record_from(value: bytes) -> LaneRecord:
    """What was logged of a lane; raises msgspec.DecodeError."""
    return _lane.decode(value)


def lane_of(customer: str, record: LaneRecord) -> LaneState:
    """The lane a record describes; every row of its backlog is in the store."""
    lane = LaneState(customer)
    lane.first, lane.drained, lane.seen = record.first, record.drained, record.seen
    lane.backlog, lane.day = record.backlog, record.day
    lane.limiter = from_plain(record.tat, record.quota)
    return lane


def partition_bytes(record: PartitionRecord) -> bytes:
    """The record of a partition."""
    return _encoder.encode(record)


def partition_from(value: bytes) -> PartitionRecord:
    """The partition a record describes; raises msgspec.DecodeError."""
    return _partition.decode(value)
