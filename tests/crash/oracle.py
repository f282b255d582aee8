"""The oracle: what must be in the output topic and among the dead letters, from what was produced alone."""

from __future__ import annotations

import base64
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.crash.traffic import TAG, Sample

Order = tuple[str, str]  # location, order id
Place = tuple[int, int]  # partition, offset
SHOWN = 5


@dataclass(frozen=True)
class Produced:
    """A record and where the broker put it."""

    sample: Sample
    partition: int
    offset: int

    @property
    def place(self) -> Place:
        return (self.partition, self.offset)


@dataclass(frozen=True)
class Published:
    """A record of the output topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes
    headers: tuple[tuple[str, bytes], ...]


@dataclass
class Finding:
    """One invariant: whether it holds, the figures behind it, and what breaks it."""

    name: str
    figures: str = ""
    offenders: list[Any] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.offenders

    def __str__(self) -> str:
        lines = [f"{'PASS' if self.ok else 'FAIL'}  {self.name}  {self.figures}".rstrip()]
        lines += [f"        {offender}" for offender in self.offenders[:SHOWN]]
        more = len(self.offenders) - SHOWN
        return "\n".join([*lines, *([f"        … {more} more"] if more > 0 else [])])


def judge(
    produced: Sequence[Produced], published: Sequence[Published], letters: Sequence[Mapping[str, Any]], max_batch: int
) -> list[Finding]:
    """Every invariant of a run without requeues; `letters` as `dead_letters list --json` prints them."""
    history = histories(produced)
    batches = distinct(published)
    bodies = [json.loads(copies[0].value) for copies in batches.values()]
    sent = {order: version for body in bodies for order, version in versions(body)}
    late = [letter for letter in letters if letter["reason"] == "late_event"]
    return [
        exactly_once(history, bodies),
        same_bytes(batches),
        belongs(batches, bodies, max_batch),
        in_order(batches),
        newest_before_claim(history, sent, {place_of(letter) for letter in late}),
        sums_agree(history, bodies),
        one_letter_each("every poison record is one dead letter with its raw bytes",
                        [record for record in produced if not record.sample.version],
                        [letter for letter in letters if letter["reason"] != "late_event"]),
        one_letter_each("every late change is one dead letter with its raw bytes",
                        late_of(history, sent, {place_of(letter) for letter in late}), late),
    ]  # fmt: skip


def histories(produced: Iterable[Produced]) -> dict[Order, list[Produced]]:
    """The valid records of each order as they stand in the log."""
    found: defaultdict[Order, list[Produced]] = defaultdict(list)
    for record in produced:
        if record.sample.version:
            found[record.sample.location, record.sample.order].append(record)
    for records in found.values():
        records.sort(key=lambda record: record.place)
    return found


def distinct(published: Sequence[Published]) -> dict[str, list[Published]]:
    """Copies by batch id; the first delivery of each comes first."""
    found: defaultdict[str, list[Published]] = defaultdict(list)
    for record in sorted(published, key=lambda record: record.offset):
        found[json.loads(record.value)["batch_id"]].append(record)
    return found


def versions(body: Mapping[str, Any]) -> Iterator[tuple[Order, int]]:
    """Which version of which order a batch contains: the quantity of the order's own SKU."""
    quantities = {item["sku"]: item["quantity"] for item in body["items"]}
    for order in body["order_ids"]:
        yield (body["location_id"], order), quantities.get(f"{TAG}{order}", 0)


def exactly_once(history: Mapping[Order, Any], bodies: Sequence[Mapping[str, Any]]) -> Finding:
    sent = [(body["location_id"], order) for body in bodies for order in body["order_ids"]]
    figures = f"{len(history)} orders in {len(bodies)} batches"
    return Finding("every valid order stands exactly once over distinct batch ids", figures, each_once(history, sent))


def same_bytes(batches: Mapping[str, Sequence[Published]]) -> Finding:
    offenders = [name for name, copies in batches.items() if len({(c.key, c.value, c.headers) for c in copies}) > 1]
    again = sum(len(copies) - 1 for copies in batches.values())
    return Finding("a batch that was delivered again has the same bytes", f"{again} repeated deliveries", offenders)


def belongs(batches: Mapping[str, Sequence[Published]], bodies: Sequence[Mapping[str, Any]], max_batch: int) -> Finding:
    offenders = [
        {"batch": name, "key": copies[0].key, "location": body["location_id"], "orders": len(body["order_ids"])}
        for (name, copies), body in zip(batches.items(), bodies, strict=True)
        if copies[0].key != body["location_id"].encode() or not 1 <= len(body["order_ids"]) <= max_batch
    ]
    warehouses = len({body["location_id"] for body in bodies})
    return Finding("every batch goes to its warehouse and is not too large", f"{warehouses} warehouses", offenders)


def in_order(batches: Mapping[str, Sequence[Published]]) -> Finding:
    """Two flushers must not overtake each other at one warehouse."""
    last: dict[str, str] = {}
    offenders = []
    for name, copies in batches.items():
        body = json.loads(copies[0].value)
        if body["flushed_at"] < last.get(body["location_id"], ""):
            offenders.append({"batch": name, "location": body["location_id"], "flushed_at": body["flushed_at"]})
        last[body["location_id"]] = max(body["flushed_at"], last.get(body["location_id"], ""))
    return Finding("batches of one warehouse arrive in the order in which they were cut", "", offenders)


def newest_before_claim(
    history: Mapping[Order, list[Produced]], sent: Mapping[Order, int], late: set[Place]
) -> Finding:
    """The version sent must be one after which exactly the later changes became letters."""
    offenders = [
        {"order": order, "log": [(r.sample.version, r.place) for r in records], "sent": sent[order],
         "letters": sorted(late & {r.place for r in records})}
        for order, records in history.items()
        if order in sent and cut_of(records, sent[order], late) is None
    ]  # fmt: skip
    changed = sum(len({record.sample.version for record in records}) > 1 for records in history.values())
    return Finding("the newest payload before the claim was sent", f"{changed} orders changed", offenders)


def cut_of(records: Sequence[Produced], version: int, late: set[Place]) -> int | None:
    """After which record of its log an order was claimed; None when its letters fit none."""
    places = {record.place for record in records} & late
    for index, record in enumerate(records):
        if record.sample.version == version and places == set(changes_after(records, index)):
            return index
    return None


def changes_after(records: Sequence[Produced], index: int) -> Iterator[Place]:
    """Later records that say something new: neither what was sent nor what the last change said."""
    taken, seen = records[index].sample.version, 0
    for record in records[index + 1 :]:
        if record.sample.version not in (taken, seen):
            seen = record.sample.version
            yield record.place


def late_of(history: Mapping[Order, list[Produced]], sent: Mapping[Order, int], late: set[Place]) -> list[Produced]:
    """The records that must be letters, given what was sent."""
    found = []
    for order, records in history.items():
        index = cut_of(records, sent.get(order, 0), late)
        wanted = set(changes_after(records, index)) if index is not None else set()
        found += [record for record in records if record.place in wanted]
    return found


def sums_agree(history: Mapping[Order, list[Produced]], bodies: Sequence[Mapping[str, Any]]) -> Finding:
    """Each batch holds the sums of the versions it took, SKU by SKU."""
    values = {(order, r.sample.version): r.sample.value for order, records in history.items() for r in records}
    offenders, total = [], 0
    for body in bodies:
        expected: Counter[str] = Counter()
        for order, version in versions(body):
            for item in json.loads(values.get((order, version)) or b'{"items": []}')["items"]:
                expected[item["sku"]] += item["quantity"]
        found = Counter({item["sku"]: item["quantity"] for item in body["items"]})
        total += found.total()
        if found != expected or len(found) != len(body["items"]):
            offenders.append({"batch": body["batch_id"], "differs": dict((found - expected) | (expected - found))})
    return Finding("sums by SKU agree, batch by batch", f"{total} pieces", offenders)


def one_letter_each(
    name: str, records: Sequence[Produced], letters: Sequence[Mapping[str, Any]], prefix: str = ""
) -> Finding:
    """`prefix` of the topics, where the records are of several."""

    def topic(of: str) -> str:
        return of.removeprefix(prefix) if prefix else ""

    found: defaultdict[tuple[str, Place], list[Mapping[str, Any]]] = defaultdict(list)
    for letter in letters:
        found[topic(letter["topic"]), place_of(letter)].append(letter)
    offenders: list[Any] = []
    for record in records:
        place = topic(record.sample.topic), record.place
        mine = found.pop(place, [])
        if len(mine) != 1:
            offenders.append({"letters": len(mine), "place": place, "value": (record.sample.value or b"")[:80]})
        elif raw(mine[0]) != record.sample.value or (mine[0]["key"] or "").encode() != record.sample.key:
            offenders.append({"bytes differ": place, "letter": mine[0]["id"]})
    offenders += [{"letter for nothing": letter["id"], "reason": letter["reason"], "place": place}
                  for place, mine in found.items() for letter in mine]  # fmt: skip
    reasons = ", ".join(f"{number} {reason}" for reason, number in Counter(one["reason"] for one in letters).items())
    return Finding(name, f"{len(records)} records, {len(letters)} letters: {reasons}", offenders)


def raw(letter: Mapping[str, Any]) -> bytes | None:
    return None if letter["payload_b64"] is None else base64.b64decode(letter["payload_b64"])


def place_of(letter: Mapping[str, Any]) -> Place:
    return (letter["partition"], letter["offset"])


# -- what other oracles ask, too ----------------------------------------------------------------------
def differences(wanted: Mapping[Any, Any], found: Mapping[Any, Any]) -> list[Any]:
    return [
        {"of": name, "is": found.get(name), "expected": wanted.get(name)}
        for name in sorted(wanted.keys() | found.keys())
        if found.get(name) != wanted.get(name)
    ]


def each_once(wanted: Iterable[Any], found: Iterable[Any]) -> list[Any]:
    """What is missing, there more than once, or not wanted."""
    times, known = Counter(found), set(wanted)
    offenders: list[Any] = [{"missing": one} for one in sorted(known - times.keys())]
    offenders += [{"times": number, "of": one} for one, number in times.items() if number > 1]
    return offenders + [{"not wanted": one} for one in sorted(times.keys() - known)]
