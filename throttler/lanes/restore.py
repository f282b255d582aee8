"""What a partition starts with, decided from its changelog, its log and its committed offset; or why it must not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from config.gate import InvalidRecord
from config.kafka.internals import UNREADABLE
from config.kafka.positions import Log
from throttler.lanes.state import PARTITION_KEY, LaneState, PartitionRecord, lane_of, lane_record_from, partition_from
from throttler.messages import check_customer

LATEST_US = 10_000_000  # no transaction lives longer: whatever is above is a difference between clocks
ACCEPT = "start with --accept-reset to"


@dataclass(frozen=True, slots=True)
class RestoredPartition:
    """A partition as its last committed transaction left it.

    It is read from `position`; everything below `decided` was decided, `totals` counts it. `reset` is the alarm that
    was accepted, "" as a rule. The first transaction has to log null for every key in `forgotten`: otherwise the next
    restore finds those lanes again. `late_us`: how much later than decided the last transaction's messages left.
    `expected_us`: what the clock of the last owner would show now, 0 where nobody knows. `foreign`: records skipped.
    `uncounted`: the changelog does not say how many messages went which way. Of a reset, `totals` count what is
    forgotten as waiting still, and everything below `decided_before` was decided once before.
    """

    number: int
    topic_id: str
    position: int
    decided: int
    totals: dict[str, int]
    lanes: dict[str, LaneState]
    forgotten: frozenset[bytes] = frozenset()
    reset: str = ""
    late_us: int = 0
    expected_us: int = 0
    foreign: int = 0
    uncounted: bool = False
    decided_before: int = 0


@dataclass(frozen=True, slots=True)
class RefusedPartition:
    """A partition that stands still until an operator accepts a reset; `alarm` is one line for them."""

    number: int
    alarm: str


@dataclass
class Changelog:
    """The newest records of one partition of the changelog, decoded."""

    partition: PartitionRecord | None = None
    lanes: dict[str, LaneState] = field(default_factory=dict)
    stale: set[bytes] = field(default_factory=set)  # lanes of a topic that is no more
    bad: list[bytes] = field(default_factory=list)  # keys whose record cannot be read
    foreign: list[bytes] = field(default_factory=list)  # the same, of keys that no customer can have


def restored(
    number: int, log: Log, newest: Mapping[bytes, bytes], accept_reset: bool, *, transactions: bool = True,
    written_ms: int = 0, now_ms: int = 0,
) -> RestoredPartition | RefusedPartition:  # fmt: skip
    """Decide how a partition starts.

    `newest` is the last value of each key of the partition's changelog, without those whose last value is null.
    `written_ms` is the broker's time of the partition's own record, `now_ms` the time of this host.
    Without `transactions` the offset is committed after the changelog, so that a kill may leave it behind.
    """
    changelog = _decode(newest, log.topic_id)
    alarm = next(_alarms(changelog, log, transactions), "")
    if alarm and not accept_reset:
        return RefusedPartition(number, alarm)
    if alarm:
        return _reset(number, log, newest, changelog, alarm)
    if (record := changelog.partition) is None:
        begin, stale = log.begin, frozenset(changelog.stale)
        return RestoredPartition(
            number, log.topic_id, begin, begin, {}, {}, stale, foreign=len(changelog.foreign), uncounted=True
        )
    position = record.position if log.committed is None else log.committed
    return RestoredPartition(
        number, log.topic_id, position, record.decided, record.totals, changelog.lanes, frozenset(changelog.stale),
        late_us=_late_us(record, written_ms), expected_us=_expected_us(record, written_ms, now_ms),
        foreign=len(changelog.foreign),
        decided_before=record.decided_before,
    )  # fmt: skip


def _late_us(record: PartitionRecord, written_ms: int) -> int:
    return min(max(0, written_ms * 1000 - record.began), LATEST_US) if record.began else 0


def _expected_us(record: PartitionRecord, written_ms: int, now_ms: int) -> int:
    """A host behind the broker says that no time has passed: better no credit for a pause than a fresh burst."""
    return record.began + max(0, now_ms - written_ms) * 1000 if record.began and written_ms else 0


def _decode(newest: Mapping[bytes, bytes], topic_id: str) -> Changelog:
    changelog = Changelog()
    for key, value in newest.items():
        try:
            if key == PARTITION_KEY:
                changelog.partition = partition_from(value)
                continue
            record = lane_record_from(value)
            customer = key.decode()
        except msgspec.DecodeError:
            (changelog.bad if _may_be_ours(key) else changelog.foreign).append(key)
            continue
        except UnicodeDecodeError:
            changelog.bad.append(key)
            continue
        if _differ(record.topic_id, topic_id):
            changelog.stale.add(key)
        else:
            changelog.lanes[customer] = lane_of(customer, record)
    return changelog


def _may_be_ours(key: bytes) -> bool:
    if key.startswith((PARTITION_KEY, UNREADABLE)):
        return True
    try:
        check_customer(key.decode())
    except (InvalidRecord, UnicodeDecodeError):
        return False
    return True


def _differ(one: str, other: str) -> bool:
    """Old brokers have no ids: then nothing can be said."""
    return bool(one and other and one != other)


def _alarms(changelog: Changelog, log: Log, transactions: bool) -> Iterator[str]:
    if changelog.bad:
        yield (
            f"the changelog's record of {_name(min(changelog.bad))} cannot be read: {ACCEPT} forget all lanes of the "
            f"partition"
        )
    record, committed = changelog.partition, log.committed
    if record is None:
        yield from _without_record(changelog, log)
        return
    if _differ(record.topic_id, log.topic_id):
        yield (
            "the topic was deleted and created again (its id changed): check what is in it, then "
            f"{ACCEPT} forget the lanes and read it from the beginning"
        )
    behind = not transactions and committed is not None and committed < record.position
    if committed is not None and committed != record.position and not behind:
        yield (
            f"the group has committed offset {committed}, the changelog says {record.position}: "
            f"{ACCEPT} forget the lanes and go on from {committed}"
        )
    position = record.position if committed is None else committed
    if position < log.begin:
        yield (
            f"offsets {position} to {log.begin - 1} are no longer in the log: "
            f"{ACCEPT} forget the lanes and go on without them"
        )
    if max(position, record.decided) > log.end:
        yield (
            f"the log ends at {log.end}, but offsets below {max(position, record.decided)} were already read: it was "
            f"truncated or created again; {ACCEPT} forget the lanes and read what is there"
        )


def _without_record(changelog: Changelog, log: Log) -> Iterator[str]:
    if log.committed is not None:
        yield (
            f"the group has committed offset {log.committed}, the changelog says nothing: "
            f"{ACCEPT} go on from there without lanes"
        )
    elif changelog.lanes:
        yield (
            f"the changelog holds {len(changelog.lanes)} lanes and no position: "
            f"{ACCEPT} forget them and read the topic from the beginning"
        )


def _reset(number: int, log: Log, newest: Mapping[bytes, bytes], changelog: Changelog, alarm: str) -> RestoredPartition:
    """Without lanes, from the committed offset if there is something to read, otherwise from the beginning."""
    record = changelog.partition
    known = log.committed if log.committed is not None or record is None else record.position
    recreated = record is not None and _differ(record.topic_id, log.topic_id)
    start = known if known is not None and not recreated and log.begin <= known <= log.end else log.begin
    forgotten = frozenset(newest.keys() - {PARTITION_KEY})
    if record is None:
        return RestoredPartition(number, log.topic_id, start, start, {}, {}, forgotten, alarm, uncounted=True)
    before = 0 if recreated else max(record.decided, record.decided_before)
    return RestoredPartition(
        number, log.topic_id, start, start, record.totals, {}, forgotten, alarm, decided_before=before
    )


def _name(key: bytes) -> str:
    if key.startswith(UNREADABLE):
        return key.removeprefix(UNREADABLE).decode()
    return "the partition" if key == PARTITION_KEY else repr(key.decode(errors="backslashreplace"))
