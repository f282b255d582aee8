"""What a crash run of messages-in asks of its promises finds each fault that it is there to find."""

import json
from pathlib import Path

from tests.crash.mail.calls import each_answer_is_true
from tests.crash.mail.oracle import Event
from tests.crash.mail.promiser import traffic
from tests.crash.mail.promises import event_of, nothing_else, one_id_each, produced, promised

JOURNAL = [
    {"kind": "new", "aggregate": "w1", "number": 1},
    {"kind": "new", "aggregate": "w1", "number": 2},
    {"kind": "again", "aggregate": "w1", "number": 1},
]
EVENTS = [Event("w1", n, f"w1/{n}", "sent", 0, 0, 1) for n in (1, 2)]


def mail(name: str, message_id: str, to: str = "w1@example.com") -> dict[str, str]:
    return {"subject": name, "message_id": message_id, "to": to}


def test_a_promise_that_is_missing_there_twice_or_of_nobody_is_found():
    assert promised(JOURNAL, EVENTS, 2).ok
    assert not promised(JOURNAL, EVENTS[:1], 1).ok
    assert not promised(JOURNAL, [*EVENTS, EVENTS[0]], 3).ok
    assert not promised(JOURNAL, EVENTS, 3).ok
    assert not nothing_else(EVENTS, ["w1/1", "w1/3"]).ok
    assert event_of(("messages-in/w1/2", "w1", "sent", 0, 0, 1), "messages-in") == EVENTS[1]
    assert event_of(("orders/w1/2", "w1", "sent", 0, 0, 1), "messages-in") is None


def test_a_mail_with_two_ids_an_id_of_two_mails_and_a_wrong_recipient_are_found():
    assert one_id_each([mail("w1/1", "<1>"), mail("w1/1", "<1>"), mail("w1/2", "<2>")]).ok
    assert not one_id_each([mail("w1/1", "<1>"), mail("w1/1", "<2>")]).ok
    assert not one_id_each([mail("w1/1", "<1>"), mail("w1/2", "<1>")]).ok
    assert not one_id_each([mail("w1/1", "<1>", to="nobody@example.com")]).ok


def test_traffic_numbers_each_aggregate_in_order_and_holds_what_is_to_be_refused(tmp_path: Path):
    (enough := tmp_path / "enough").touch()
    records = list(traffic(500, enough, 7, "w"))
    new = [(line["aggregate"], line["number"]) for line, _ in records if line["kind"] == "new"]
    assert len(new) == len(set(new)) == 500
    for aggregate in {name for name, _ in new}:
        numbers = [number for name, number in new if name == aggregate]
        assert numbers == list(range(1, len(numbers) + 1))
    assert {line["kind"] for line, _ in records} == {"new", "again", "conflict", "poison"}
    for line, message in records:
        assert message.key == line["aggregate"].encode()
        assert json.loads(message.value)["payload"]["subject"] in (line["name"], None)
    assert produced({**JOURNAL[0], "name": "w1/1", "value_b64": "e30=", "partition": 1, "offset": 4}).place == (1, 4)


def test_an_answer_that_names_another_message_is_found():
    journal = [{**JOURNAL[0], "name": "w1/1", "id": "0198-c2b4"}, {"kind": "unanswered", "status": 0}]
    assert each_answer_is_true(journal, {"w1/1": "0198c2b4"}).ok
    assert not each_answer_is_true(journal, {"w1/1": "0198c2b5"}).ok
    assert not each_answer_is_true(journal, {}).ok
