"""The oracle of crash runs over replay batches finds each fault that it is there to find."""

import base64
import json
from dataclasses import replace

import pytest

from tests.crash.oracle import Published
from tests.crash.replay.cases import IS, OPENING, SOURCES, WAS, Cases, by_source, case_of
from tests.crash.replay.oracle import DONE_BEFORE, GONE, OUTCOMES, Seen, judge

CASES = Cases(12, 3)
CLOSED, GONE_TOO = frozenset({"pay-000001", "mail-000002", "late-000003"}), frozenset({"mail-000002"})


def well() -> Seen:
    """What is there when nothing went wrong."""
    pays = [(f"pay-{n:06d}", CASES.stock_of(n), -(1 + n % 3)) for n in range(12) if n != 1]
    sums = {f"stock-{n}": OPENING + sum(delta for _, stock, delta in pays if stock == f"stock-{n}") for n in range(3)}
    letters = [letter(name) for name in CASES.all() if name not in GONE_TOO]
    batches = [batch(number, names) for number, names in enumerate(by_source(CASES.all()).values(), 1)]
    items = [
        row for one, names in zip(batches, by_source(CASES.all()).values(), strict=True) for row in rows(one, names)
    ]
    accepted = [f"mail-{n:06d}@example.com" for n in range(12) if n != 2]
    notified = [{"notification_id": name} for name in CASES.names("note")]
    return Seen(
        CASES, CLOSED, GONE_TOO, list(map(published, range(3))), pays, sums, accepted, notified, letters, batches, items,
        [("requeue", 4), ("resolve", 3)],
    )  # fmt: skip


def letter(name, status="resolved"):
    payload = base64.b64encode(json.dumps({"of": name}).encode()).decode()
    return {"id": f"id of {name}", "payload_b64": payload, "status": status, "note": ""}


def batch(number, names):
    skipped = len(CLOSED & set(names))
    counted = dict.fromkeys(OUTCOMES, 0) | {"skipped": skipped, "verified": len(names) - skipped}
    return {"id": number, "state": "done", "note": "", "pinned": len(names), **counted}


def rows(one, names):
    closed = CLOSED & set(names)
    found = [(one["id"], "verified", "fine", one["verified"])]
    notes = ((f"{DONE_BEFORE}.", closed - GONE_TOO), (f"{GONE}: its month was dropped.", closed & GONE_TOO))
    return found + [(one["id"], "skipped", note, len(them)) for note, them in notes if them]


def published(number):
    """One batch of all orders as they came first, one of what the late ones differ by, one of the refused ones."""
    late = {name: IS - WAS for name in CASES.names("late") if name not in CLOSED}
    first = {name: WAS for kind in ("old", "late") for name in CASES.names(kind)}
    sums = [first, late, dict.fromkeys(CASES.names("big"), WAS)][number]
    items = [{"sku": sku, "quantity": quantity} for sku, quantity in sums.items()]
    body = {"batch_id": f"batch {number}", "items": items, **({"supplement_of": "batch 0"} if number == 1 else {})}
    return Published(0, number, None, json.dumps(body).encode(), ())


def faults(seen):
    return {finding.name for finding in judge(seen) if not finding.ok}


def without_first(found, name):
    return replace(found, **{name: getattr(found, name)[1:]})


def twice_first(found, name):
    return replace(found, **{name: [getattr(found, name)[0], *getattr(found, name)]})


def test_what_went_well_has_no_fault():
    assert faults(well()) == set()


def test_an_edited_letter_without_its_copy_or_with_a_second_one_is_found():
    seen = replace(well(), cases=replace(CASES, edits=True), actions=[("requeue", 3), ("edit", 1), ("resolve", 3)])
    wrong = {"each payment moved its stock once"}  # by what the letter said, not by what it was edited to
    copies = [(f"id of pay-{n:06d}", 1) for n in range(12) if n != 1]
    assert faults(replace(seen, copies=copies)) == wrong
    for harmed in (copies[1:], [*copies, (copies[0][0], 2)]):
        assert faults(replace(seen, copies=harmed)) == wrong | {"each edited letter has one copy"}


@pytest.mark.parametrize("harm", [without_first, twice_first])
@pytest.mark.parametrize(
    ("name", "finding"),
    [
        ("ledger", "each payment moved its stock once"),
        ("accepted", "each mail was accepted once"),
        ("notified", "each notification left once"),
        ("letters", "each letter is resolved, and there is no other"),
        ("items", "verified and skipped items are the pinned set, counters a recount"),
    ],
)
def test_what_is_missing_or_there_twice_is_found(harm, name, finding):
    assert faults(harm(well(), name)) == {finding}


def test_a_batch_that_is_missing_or_sent_twice_is_found():
    assert faults(without_first(well(), "published")) == {"what was sent sums up to what each order says"}
    assert faults(twice_first(well(), "published")) == {"no batch was published twice"}


@pytest.mark.parametrize("status", ["open", "requeued", "failed_again"])
def test_a_letter_in_another_state_is_found(status):
    seen = well()
    changed = [letter(case_of(base64.b64decode(one["payload_b64"])), status) for one in seen.letters[:1]]
    assert faults(replace(seen, letters=[*changed, *seen.letters[1:]])) == {
        "each letter is resolved, and there is no other"
    }


def test_what_others_had_closed_and_was_done_all_the_same_is_found():
    seen = replace(well(), accepted=[*well().accepted, "mail-000002@example.com"])
    assert faults(seen) == {"each mail was accepted once"}
    assert faults(replace(well(), closed=frozenset(), gone=frozenset())) >= {
        "what others closed or took away is skipped with the reason"
    }


def test_a_second_action_of_a_batch_is_found():
    assert faults(replace(well(), actions=[("requeue", 5)])) == {"one operator action a batch"}
    assert len(SOURCES) == 4
