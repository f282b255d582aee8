"""The oracle of replay batches: each effect once, each letter with its verdict, from what was sent alone; no code of Spillway."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.crash.oracle import Finding, Published, differences, each_once
from tests.crash.replay.cases import IS, OPENING, WAS, Cases, by_source, case_of

OUTCOMES = ("eligible", "skipped", "requeued", "verified", "failed_again", "refused", "left")
DONE_BEFORE = "It is resolved already"  # what a batch says of a letter that somebody else has closed
GONE = "The letter is gone"


@dataclass(frozen=True)
class Seen:
    """What is there at the end, as others see it; `closed` and `gone` are the cases that were not for the batches."""

    cases: Cases
    closed: frozenset[str]  # by somebody else, before their turn
    gone: frozenset[str]  # of those: their rows were deleted, as a rotation does
    published: Sequence[Published]  # batches
    ledger: Sequence[tuple[str, str, int]]  # reference, stock, delta
    quantities: Mapping[str, int]
    accepted: Sequence[str]  # recipients of mails
    notified: Sequence[Mapping[str, Any]]  # bodies that left the throttler
    letters: Sequence[Mapping[str, Any]]  # as `dead_letters list --json` prints them
    batches: Sequence[Mapping[str, Any]]  # as `dead_letters batches --json` prints them
    items: Sequence[tuple[int, str, str, int]]  # batch, state, note, number
    actions: Sequence[tuple[str, int]]  # verb, number
    copies: Sequence[tuple[str, int]] = ()  # letter, number of its edited copy


def judge(seen: Seen) -> list[Finding]:
    """Every invariant."""
    return [
        payments_once(seen),
        mails_once(seen),
        notifications_once(seen),
        quantities_sent(seen),
        same_bytes(seen.published),
        letters_proven(seen),
        items_are_the_pinned_set(seen),
        others_first(seen),
        one_action_each(seen),
        one_copy_each(seen),
    ]


def payments_once(seen: Seen) -> Finding:
    """One row for each payment, with its delta, and the stock says the same."""
    wanted = {
        name: (seen.cases.stock_of(n), -seen.cases.sold(n))
        for n, name in enumerate(seen.cases.names("pay"))
        if name not in seen.closed
    }
    rows = Counter(reference for reference, _, _ in seen.ledger)
    there = {reference: (stock, delta) for reference, stock, delta in seen.ledger}
    offenders: list[Any] = [{"rows": number, "of": name} for name, number in rows.items() if number != 1]
    offenders += differences(wanted, there)
    sums = Counter({f"stock-{n}": OPENING for n in range(seen.cases.places)})
    for stock, delta in wanted.values():
        sums[stock] += delta
    offenders += differences(dict(sums), seen.quantities)
    return Finding("each payment moved its stock once", f"{len(wanted)} payments", offenders)


def mails_once(seen: Seen) -> Finding:
    wanted = [f"{name}@example.com" for name in seen.cases.names("mail") if name not in seen.closed]
    return Finding("each mail was accepted once", f"{len(wanted)}", each_once(wanted, seen.accepted))


def notifications_once(seen: Seen) -> Finding:
    wanted = [name for name in seen.cases.names("note") if name not in seen.closed]
    left = [body["notification_id"] for body in seen.notified]
    return Finding("each notification left once", f"{len(wanted)}", each_once(wanted, left))


def quantities_sent(seen: Seen) -> Finding:
    """All batches and supplements together say of each order what was last known of it; one batch counts once."""
    bodies = {body["batch_id"]: body for body in map(_body, seen.published)}
    sums: Counter[str] = Counter()
    for body in bodies.values():
        for item in body["items"]:
            sums[item["sku"]] += item["quantity"]
    wanted = {name: WAS for kind in ("old", "big") for name in seen.cases.names(kind) if name not in seen.closed}
    wanted |= {name: WAS if name in seen.closed else IS for name in seen.cases.names("late")}
    supplements = sum("supplement_of" in body for body in bodies.values())
    figures = f"{len(wanted)} orders, {len(bodies)} batches, {supplements} of them supplements"
    return Finding("what was sent sums up to what each order says", figures, differences(wanted, sums))


def same_bytes(published: Iterable[Published]) -> Finding:
    """No flusher was killed: a batch that is freed again is published once."""
    ids = Counter(_body(record)["batch_id"] for record in published)
    return Finding("no batch was published twice", "", [one for one in ids.items() if one[1] > 1])


def letters_proven(seen: Seen) -> Finding:
    """Each is resolved: those that the batches took by evidence, the others by somebody; none failed again."""
    cases = [case_of(base64.b64decode(letter["payload_b64"] or "")) for letter in seen.letters]
    wanted = [name for name in seen.cases.all() if name not in seen.gone]
    offenders: list[Any] = [
        {"letter": letter["id"], "status": letter["status"], "case": name, "note": letter["note"]}
        for letter, name in zip(seen.letters, cases, strict=True)
        if letter["status"] != "resolved"
    ]
    offenders += each_once(wanted, cases)
    states = dict(Counter(letter["status"] for letter in seen.letters))
    return Finding("each letter is resolved, and there is no other", str(states), offenders)


def items_are_the_pinned_set(seen: Seen) -> Finding:
    """What is done and what was skipped are together what was pinned; and counters are a recount."""
    offenders = wrongly_counted(seen.batches, [(batch, state, number) for batch, state, _, number in seen.items])
    sizes = by_source(seen.cases.all())
    pinned = sorted(batch["pinned"] for batch in seen.batches)
    offenders += _unless(pinned == sorted(map(len, sizes.values())), {"pinned": pinned})
    return Finding("verified and skipped items are the pinned set, counters a recount", f"pinned {pinned}", offenders)


def wrongly_counted(batches: Sequence[Mapping[str, Any]], items: Iterable[tuple[int, str, int]]) -> list[Any]:
    """Batches that are not done, or whose counters are no recount of their items: (batch, state, number)."""
    recount: dict[int, Counter[str]] = {batch["id"]: Counter() for batch in batches}
    for batch_id, state, number in items:
        recount[batch_id][state] += number
    offenders: list[Any] = []
    for batch in batches:
        found, counted = recount[batch["id"]], {name: batch[name] for name in OUTCOMES}
        if counted != {name: found[name] for name in OUTCOMES} or found.total() != batch["pinned"]:
            offenders.append({"batch": batch["id"], "counted": counted, "items": dict(found)})
        if batch["state"] != "done" or found["verified"] + found["skipped"] != batch["pinned"]:
            offenders.append({"batch": batch["id"], "state": batch["state"], "note": batch["note"], **found})
    return offenders


def others_first(seen: Seen) -> Finding:
    """What somebody else closed before its turn was skipped, with the reason."""
    notes = Counter[str]()
    for _batch, state, note, number in seen.items:
        if state == "skipped":
            notes[GONE if note.startswith(GONE) else DONE_BEFORE if note.startswith(DONE_BEFORE) else note] += number
    wanted = {DONE_BEFORE: len(seen.closed - seen.gone), GONE: len(seen.gone)}
    return Finding(
        "what others closed or took away is skipped with the reason", str(dict(notes)), differences(wanted, notes)
    )


def one_action_each(seen: Seen) -> Finding:
    actions = dict(seen.actions)
    wanted = {"requeue": len(seen.batches) - seen.cases.edits, "edit": int(seen.cases.edits)}
    right = {verb: actions.get(verb, 0) for verb in wanted} == wanted
    return Finding("one operator action a batch", str(actions), _unless(right, actions))


def one_copy_each(seen: Seen) -> Finding:
    """Each letter that was edited has its first copy, once; no other letter has any."""
    edited = [name for name in seen.cases.names("pay") if seen.cases.edits and name not in seen.closed]
    letters = [letter for letter, _number in seen.copies]
    right = len(letters) == len(set(letters)) == len(edited) and {number for _, number in seen.copies} <= {1}
    return Finding("each edited letter has one copy", f"{len(letters)}", _unless(right, {"expected": len(edited)}))


def _body(record: Published) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(record.value)
    return found


def _unless(holds: bool, offender: Any) -> list[Any]:
    return [] if holds else [offender]
