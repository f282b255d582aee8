"""The oracle of crash runs over resends finds each fault that it is there to find."""

from collections import Counter
from dataclasses import replace

import pytest

from tests.crash.replay.oracle import OUTCOMES
from tests.crash.replay.resend_oracle import Copy, Seen, judge

ONE_NEW = "each mail was sent again by one new mail with its own Message-ID"
MARKED = "what came twice is marked as uncertain"
ONE_COPY = "each message has one copy, and it is sent"
ADD_UP = "items are what was pinned, each mail verified once"


def again(number: int, mail: str = "") -> dict[str, str]:
    return {"to": f"mail-{number}@example.com", "message_id": mail or f"<again-{number}>"}


def well() -> Seen:
    """Three mails, asked for twice; the copy of the first was uncertain and came twice."""
    firsts = {f"mail-{n}@example.com": f"<first-{n}>" for n in range(3)}
    copies = [Copy(f"b{n}", f"a{n}", "sent", int(n == 0), f"<again-{n}>") for n in range(3)]
    counted = [Counter(verified=3), Counter(skipped=3)]
    batches = [
        {"id": n, "state": "done", "note": "", "pinned": 3, "started_at": None if n else "today",
         **dict.fromkeys(OUTCOMES, 0), **counted[n]} for n in range(2)
    ]  # fmt: skip
    items = [(n, state, number) for n in range(2) for state, number in counted[n].items()]
    return Seen(firsts, [again(0), again(0), again(1), again(2)], copies, batches, items, {"resend": 1})


def faults(seen: Seen) -> set[str]:
    return {finding.name for finding in judge(seen) if not finding.ok}


def test_what_went_well_has_no_fault():
    assert faults(well()) == set()


@pytest.mark.parametrize(
    ("accepted", "finding"),
    [
        ([again(0), again(1)], ONE_NEW),  # the third is missing
        ([again(0), again(1), again(2), again(2, "<another>")], ONE_NEW),
        ([again(0), again(1), again(2, "<first-2>")], ONE_NEW),
        ([again(0), again(1), again(2, "<again-1>")], ONE_NEW),
        ([again(0), again(1), again(2), again(3)], ONE_NEW),
        ([again(0), again(1), again(1), again(2)], MARKED),
    ],
)
def test_what_arrived_wrongly_is_found(accepted, finding):
    assert finding in faults(replace(well(), accepted=accepted))


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [Copy("b2", "a2", "pending", 0, "<again-2>")],
        [Copy("a1", "a2", "sent", 0, "<again-2>")],  # with an id below the first one's
        [Copy("b2", "a2", "sent", 0, "<again-2>"), Copy("c2", "a2", "sent", 0, "<more-2>")],
    ],
)
def test_copies_that_are_missing_unsent_or_too_many_are_found(wrong):
    assert faults(replace(well(), copies=[*well().copies[:2], *wrong])) == {ONE_COPY}


def test_items_and_actions_that_do_not_add_up_are_found():
    assert faults(replace(well(), items=well().items[1:])) == {ADD_UP}
    more = {"batches": [{**well().batches[0], "requeued": 1}, well().batches[1]]}
    assert faults(replace(well(), items=[*well().items, (0, "requeued", 1)], **more)) == {ADD_UP}
    unfinished = [{**well().batches[0], "state": "running"}, well().batches[1]]
    assert faults(replace(well(), batches=unfinished)) == {ADD_UP}
    assert faults(replace(well(), actions={"resend": 2})) == {"one operator action a batch"}
