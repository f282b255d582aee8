"""Durable counts per flow and minute, and of rows that were dropped with their partitions."""

from __future__ import annotations

import socket
import threading
import zlib
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from django.db.models import Sum

from config.database.queries import Names, of_names
from config.database.upsert import Upsert
from config.partitions import Partition, PartitionSpec, living_keys
from outbox.bookkeeping.models import FlowCounter, FlowMinute

# -- Durable counts per flow and per minute, added in one statement each -------------------------------------
# A row that every worker adds to is locked by one until it commits: with eight relays most of their waiting was for one
# row, and with one ingester that of its two writers. So each thread has a slot, as a rule rows of its own, and readers sum.
SLOTS = 32
MINUTES = 60  # that a page looks back
ONE_WRITER = 0  # the slot of counts that only one process adds to, whichever it is now
ADD = Upsert(
    FlowCounter, columns="flow scope slot name value", key="flow scope slot name",
    update={"value": "old.value + new.value"},
)  # fmt: skip
ADD_MINUTE = Upsert(
    FlowMinute, columns="flow name minute slot value", key="flow name minute slot",
    update={"value": "old.value + new.value"},
)  # fmt: skip
RAISE = Upsert(
    FlowCounter, columns="flow scope slot name value", key="flow scope slot name",
    update={"value": "CASE WHEN old.value > new.value THEN old.value ELSE new.value END"},
)  # fmt: skip

Counts = Mapping[tuple[str, str, str], int]


def add(counts: Counts, now: datetime) -> None:
    """Add `{(flow, scope, name): n}` to the durable counters and to the current minute.

    Call it last in a transaction: processes may share these rows, so their locks must be short, and they are written
    in sorted order, so that two workers never deadlock.
    """
    rows = [(*key, number) for key, number in sorted(counts.items()) if number]
    if not rows:
        return
    ADD.run([(flow, scope, slot_of(scope), name, number) for flow, scope, name, number in rows])
    _add_minute(rows, now)


def store_totals(totals: Counts, now: datetime) -> None:
    """Store `{(flow, scope, name): total}`, counted elsewhere; the minute gets what is new. In a transaction.

    A total never goes back: a zombie's smaller one changes nothing. The rows of a scope belong to its one owner; while
    two of them believe to be that, the later may count a difference twice in the minute, never in the total.
    """
    if not totals:
        return
    flows, scopes, names = (set(part) for part in zip(*totals, strict=True))
    known = {
        (flow, scope, name): value
        for flow, scope, name, value in FlowCounter.objects.filter(
            flow__in=flows, scope__in=scopes, slot=ONE_WRITER, name__in=names
        ).values_list("flow", "scope", "name", "value")
    }
    higher = [(*key, total) for key, total in sorted(totals.items()) if total > known.get(key, 0)]
    if higher:
        RAISE.run([(flow, scope, ONE_WRITER, name, total) for flow, scope, name, total in higher])
        _add_minute([(*row[:3], row[3] - known.get(row[:3], 0)) for row in higher], now)


def _add_minute(rows: Iterable[tuple[str, str, str, int]], now: datetime) -> None:
    minute, slot = minute_of(now), _slot(threading.get_native_id())
    per_minute: dict[tuple[str, str, int, int], int] = {}
    for flow, _scope, name, number in rows:
        key = flow, name, minute, slot
        per_minute[key] = per_minute.get(key, 0) + number
    ADD_MINUTE.run([(*key, number) for key, number in sorted(per_minute.items())])


def slot_of(scope: str) -> int:
    """Of this thread, but for the scope of a partition, which has one writer anyway: fewer rows."""
    return ONE_WRITER if scope.rpartition("/")[2].isdigit() else _slot(threading.get_native_id())


def _slot(thread: int) -> int:
    """By the number that no other living thread of this host has. With the host: in containers they begin at 1."""
    return zlib.crc32(f"{socket.gethostname()}/{thread}".encode()) % SLOTS


def totals(flow: str) -> dict[str, int]:
    """`{name: value}` of a flow, over all its scopes."""
    return of_names(_totals, [flow]).get(flow, {})


def _totals(flows: Names) -> dict[str, dict[str, int]]:
    result: dict[str, dict[str, int]] = {}
    rows = FlowCounter.objects.of_flows(flows).values_list("flow", "name").annotate(total=Sum("value"))
    for flow, name, total in rows:
        result.setdefault(flow, {})[name] = int(total)
    return result


def by_scope(flow: str) -> dict[str, dict[str, int]]:
    """`{scope: {name: value}}` of a flow."""
    result: dict[str, dict[str, int]] = {}
    rows = FlowCounter.objects.filter(flow=flow).values_list("scope", "name").annotate(total=Sum("value"))
    for scope, name, total in rows:
        result.setdefault(scope, {})[name] = int(total)
    return result


def of_last_hour(flows: Collection[str], now: datetime) -> dict[str, list[int]]:
    """`{name: counts of sixty minutes, oldest first}` of these flows together; the last minute is under way.

    One query for all names: a page draws a dozen of them, and asking for each took longer than adding up.
    """
    first = minute_of(now) - MINUTES + 1
    counts: dict[str, list[int]] = {}
    for flow, name, minute, total in of_names(_minutes, flows, first):
        if flow in flows:
            counts.setdefault(name, [0] * MINUTES)[minute - first] += int(total)
    return counts


def _minutes(flows: Names, first: int) -> list[tuple[str, str, int, int]]:
    rows = FlowMinute.objects.of_flows(flows).filter(minute__gte=first, minute__lt=first + MINUTES)
    return list(rows.values_list("flow", "name", "minute").annotate(total=Sum("value")))


def minute_of(now: datetime) -> int:
    """Minutes since 1970."""
    return int(now.timestamp() // 60)


# -- Counts of rows that were dropped with their partitions, so that `verify` still adds up ------------------
DROPPED = "dropped:"


def record_dropped(using: str, partition: Partition, counts: Mapping[tuple[str, str], int]) -> None:
    """Store `{(flow, status): rows}` under the partition's key, in the guarded section of the drop.

    Set, not added: a drop that crashed half-way is recorded again by the next run.
    """
    scope = f"{DROPPED}{partition.key}"
    recorded = FlowCounter.objects.using(using)
    recorded.filter(scope=scope).delete()
    recorded.bulk_create(
        FlowCounter(flow=flow, scope=scope, name=f"dropped_{status}", value=number)
        for (flow, status), number in counts.items()
    )


def dropped_rows(flow: str, spec: PartitionSpec, *statuses: str) -> int:
    """How many rows of a flow (with these statuses) left with partitions of `spec`; those that still stand do not count."""
    rows = _dropped(flow, spec)
    return sum(value for _, name, value in rows if not statuses or name.removeprefix("dropped_") in statuses)


def newest_dropped(flow: str, spec: PartitionSpec) -> str:
    """The label of the newest partition of `spec` that left with rows of a flow; empty when none did."""
    scopes = (scope for scope, *_ in _dropped(flow, spec))
    return max((scope.removeprefix(DROPPED).partition(".")[0] for scope in scopes), default="")


def _dropped(flow: str, spec: PartitionSpec) -> list[tuple[str, str, int]]:
    living = {f"{DROPPED}{key}" for key in living_keys(spec)}
    rows = FlowCounter.objects.filter(flow=flow, scope__startswith=DROPPED).values_list("scope", "name", "value")
    return [row for row in rows if row[0] not in living]
