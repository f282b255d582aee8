"""What must be true of the throttler's topics and letters, from what was produced alone."""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from config.kafka.wire_format import partition_of
from tests.crash.oracle import Finding, each_once, place_of
from tests.crash.throttler.notices import Customer, Notice
from tests.crash.throttler.topics import Committed
from throttler.limits.rate import RateWindow

SLACK = 0.3  # seconds of its rate that a customer may get too much, by the broker's clock


@dataclass
class Seen:
    """Everything that a read-committed consumer finds at the end, and the letters."""

    notices: Sequence[Notice]
    input: Sequence[Committed]
    output: Sequence[Committed]
    expired: Sequence[Committed]
    letters: Sequence[Mapping[str, Any]]
    topic: str  # the input's full name
    partitions: int

    def valid(self) -> dict[tuple[int, int], Committed]:
        """The records that must have left, by place: not the poison, and of what is forwarded the copy."""
        return {
            record.place: record for record in self.input
            if not self.notices[record.number].is_poison and not self.was_forwarded(record)
        }  # fmt: skip

    def was_forwarded(self, record: Committed) -> bool:
        return self.notices[record.number].astray and "forwarded" not in record.headers


def judge(seen: Seen) -> Iterator[Finding]:
    yield everything_once(seen)
    yield nothing_else_changed(seen)
    yield in_order(seen)
    yield within_their_rates(seen)
    yield within_their_quotas(seen)
    yield forwarded_once(seen)
    yield expired_in_time(seen)
    yield letters_once(seen)


def everything_once(seen: Seen) -> Finding:
    """Every message that came left exactly once, to the output or as expired: counted by the place it came from."""
    wanted = seen.valid()
    left = [record.source for record in [*seen.output, *seen.expired]]
    wrong = each_once([(seen.topic, *place) for place in wanted], left)
    figures = f"{len(wanted)} messages: {len(seen.output)} sent, {len(seen.expired)} expired"
    return Finding("every message leaves exactly once", figures, wrong)


def nothing_else_changed(seen: Seen) -> Finding:
    """What leaves is what came, one field apart, under its customer's key in its own partition."""
    came, offenders = seen.valid(), []
    for records, field in ((seen.output, "throttled"), (seen.expired, "reason")):
        for record in records:
            original = came.get(record.source[1:])
            value = json.loads(record.value or b"{}")
            value.pop(field, None)
            key = seen.notices[record.number].customer.name.encode()
            if original is None or json.loads(original.value or b"{}") != value or record.key != key:
                offenders.append(record)
            elif (record.partition, record.number) != (original.partition, original.number):
                offenders.append({"record": record, "should be in": original.partition})
    return Finding("nothing else of a message changes", "", offenders)


def in_order(seen: Seen) -> Finding:
    offenders: list[Any] = []
    for name, records in by_customer(seen.output).items():
        for before, after in itertools.pairwise(records):
            if before.source[1:] >= after.source[1:]:
                offenders.append({"customer": name, "before": before.source[1:], "after": after.source[1:]})
    return Finding("each customer's messages leave in their order", "", offenders)


def by_customer(records: Iterable[Committed]) -> dict[str, list[Committed]]:
    """In the order of the output."""
    found: dict[str, list[Committed]] = defaultdict(list)
    for record in sorted(records, key=lambda one: one.place):
        found[(record.key or b"").decode()].append(record)
    return found


def within_their_rates(seen: Seen) -> Finding:
    """Any span s of the broker's timestamps carries at most burst + rate * (s + SLACK)."""
    customers = {notice.customer.name: notice.customer for notice in seen.notices}
    worst, offenders = 0.0, []
    for name, records in by_customer(seen.output).items():
        late, upto = excess(customers[name], [record.timestamp for record in records])
        worst = max(worst, late)
        if late > SLACK:
            at = records[upto]
            offenders.append({"customer": customers[name], "too soon by (s)": round(late, 3), "at": at.place,
                              "time": at.timestamp, "source": at.source})  # fmt: skip
    return Finding("no customer is sent above burst + rate", f"at most {worst:.3f} s of a rate too soon", offenders)


def excess(customer: Customer, timestamps: Sequence[int]) -> tuple[float, int]:
    """By how many seconds of its rate the worst span is above burst + rate * s, and the index at which it ends."""
    rates = customer.rates
    period, limit = rates.windows[0].period_us / 1e6, rates.windows[0].limit
    each = period / limit
    # Of a span from i to j: (j - i + 1 - burst) * each - (t[j] - t[i]), at its largest.
    least, worst, at = float("inf"), 0.0, 0
    for index, timestamp in enumerate(timestamps):
        ahead = index * each - timestamp / 1000
        least = min(least, ahead)
        late = ahead - least + (1 - rates.burst) * each
        if late > worst:
            worst, at = late, index
    return worst, at


def within_their_quotas(seen: Seen) -> Finding:
    """No longer window carries more than its limit; what left just behind its beginning may be of the one before."""
    customers = {notice.customer.name: notice.customer for notice in seen.notices}
    offenders, number = [], 0
    for name, records in by_customer(seen.output).items():
        for window in customers[name].rates.windows[1:]:
            counts = Counter(_window_of(record.timestamp, window) for record in records)
            counts.pop(None, None)
            number += len(counts)
            offenders += [
                {"customer": customers[name], "window": start, "sent": sent}
                for start, sent in counts.items() if sent > window.limit
            ]  # fmt: skip
    return Finding("no quota is exceeded", f"{number} windows", offenders)


def _window_of(timestamp: int, window: RateWindow) -> int | None:
    start, since = divmod(timestamp * 1000, window.period_us)
    return None if since < SLACK * 1e6 else start


def forwarded_once(seen: Seen) -> Finding:
    """What came in another partition than its customer's was passed on there once."""
    copies: dict[int, list[Committed]] = defaultdict(list)
    originals = [record for record in seen.input if seen.was_forwarded(record)]
    for record in seen.input:
        if "forwarded" in record.headers:
            copies[record.number].append(record)
    offenders: list[Any] = []
    for original in originals:
        mark = f"{seen.topic}/{original.partition}/{original.offset}".encode()
        right = partition_of(original.key or b"", seen.partitions)
        found = [(copy.partition, copy.headers["forwarded"]) for copy in copies.pop(original.number, [])]
        if found != [(right, mark)]:
            offenders.append({"original": original.place, "copies": found})
    offenders += list(copies.values())
    return Finding("what is in the wrong partition is forwarded once", f"{len(originals)} records", offenders)


def expired_in_time(seen: Seen) -> Finding:
    """Nothing is given up before its time."""
    came, offenders = seen.valid(), []
    for record in seen.expired:
        original, notice = came.get(record.source[1:]), seen.notices[record.number]
        life = notice.customer.ttl if notice.ttl is None else notice.ttl
        reason = json.loads(record.value or b"{}").get("reason")
        if original is None or reason != "ttl" or not life or record.timestamp < _created(original) + life * 1000:
            offenders.append({"record": record, "lives": life})
    return Finding("nothing expires before its time", f"{len(seen.expired)} expired", offenders)


def _created(record: Committed) -> int:
    """Milliseconds since 1970, whole ones as of a record; a copy that was forwarded is as old as its original."""
    return int(datetime.fromisoformat(json.loads(record.value or b"")["created_at"]).timestamp() * 1000)


def letters_once(seen: Seen) -> Finding:
    wanted = {record.place for record in seen.input if seen.notices[record.number].is_poison}
    wrong = each_once(wanted, map(place_of, seen.letters))
    return Finding("each poison record becomes one dead letter", f"{len(wanted)} records", wrong)
