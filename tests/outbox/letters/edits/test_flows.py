"""Copies of orders, notifications and messages: each flow takes them as it takes the letter, and proves them alike."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from django.db import transaction

from buffer.events.models import BufferedEvent
from config.database.clock import database_now
from config.letters import Refusal
from config.telemetry.redaction import DOTS
from outbox.delivery.levers import cancel
from outbox.letters import levers, redelivery
from outbox.letters.burial import Letter, bury
from outbox.letters.edits import examine, text_of, why_not
from outbox.letters.models import DeadLetter, PayloadRevision
from outbox.letters.verify import letters_are_as_they_came
from outbox.models import FailureGroup, IdempotencyKey, OutboxMessage
from tests.config.admin.conftest import flush, page_of
from tests.conftest import order
from tests.outbox.letters.edits.edited import ANN, again, edited, faults, only, send, verdict
from tests.outbox.scripted import PERMANENT, promise
from throttler.engine.row_writer import LOST

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _letters_keep_their_bytes(db):
    yield
    assert [check for check in letters_are_as_they_came() if not check.ok] == []


@pytest.mark.parametrize("twice", ['"order_id": "A2", ', '"order\\u005fid": "A2", '])
def test_a_copy_in_which_a_name_stands_twice_is_refused(ingest, records, twice):
    """Its lock compares one of the two; whoever reads the message may take the other."""
    ingest(records(order("A1", items={"S1": "three"})))
    text = edited(only(), ('"three"', "3"))
    assert faults(only(), text) == []
    doubled = text.replace("{", "{" + twice, 1)
    assert faults(only(), doubled) == [("", 2)]
    with pytest.raises(Refusal):
        send(only(), doubled)
    deep = text.replace('"quantity": 3', '"quantity": 3, "quantity": 3')
    assert len(faults(only(), deep)) == 1
    assert not BufferedEvent.objects.exists()


# -- orders ------------------------------------------------------------------------------------------------
@pytest.fixture
def broken_order(ingest, records) -> DeadLetter:
    ingest(records(order("A1", items={"S1": "three"})))
    return only()


def test_the_copy_of_an_order_is_stored_at_its_position_and_proven_by_its_batch(broken_order, producer, stream):
    text = edited(broken_order, ('"three"', "3"))
    assert verdict(broken_order, text) == "The order waits at WH-1."
    assert send(broken_order, text) == "waiting"
    event = BufferedEvent.objects.get()
    assert (event.order_id, event.source_offset) == ("A1", broken_order.offset)
    assert redelivery.look_after(database_now()) == 0
    flush(stream, producer)
    assert producer.values[0]["items"] == [{"sku": "S1", "quantity": 3}]
    assert redelivery.look_after(database_now()) == 1
    assert again(broken_order).status == "resolved", "the letter's own bytes name no order"


def test_what_cannot_be_edited_says_why(rows_of_all):
    said = {name: why_not(letter) for name, letter in rows_of_all.items()}
    assert said == {
        "batch": "It is a refused batch: its bytes are promised.",
        "bytes": "Its payload is no text.",
        "hint": "It is a hint of change capture: the poller takes its message in any case.",
        "tombstone": "It has no payload.",
        "large": "It has more than 65,536 bytes, the most that can be edited.",
        "lost": "It stands for messages that are lost: there is nothing to edit.",
        "stopped": "It stands for a stopped partition, not for a record.",
        "control": "Its payload holds control characters, which a form does not keep.",
        "nobody's": "No flow of FLOWS takes letters of 'nobody'; if a package brought them, name it in SPILLWAY_APPS.",
    }


@pytest.fixture
def rows_of_all(records) -> dict[str, DeadLetter]:
    wanted = {
        "batch": ("transfer-requests", "publish", b"{}"), "bytes": ("ledger", "decode", b"\xff"),
        "hint": ("outbox", "decode", b"{}"), "tombstone": ("ledger", "decode", None), "large": ("ledger", "decode", b"x" * 70_000),
        "lost": ("throttler", LOST, b"{}"), "stopped": ("ledger", "position", b"{}"), "control": ("ledger", "decode", b"{\x01}"),
        "nobody's": ("nobody", "decode", b"{}"),
    }  # fmt: skip
    found = records(*[value for _, _, value in wanted.values()])
    letters = [
        Letter(source, step, "r", "e", raw)
        for (source, step, _), raw in zip(wanted.values(), found, strict=True)
    ]  # fmt: skip
    with transaction.atomic():
        bury(letters, "g", database_now())
    by_offset = {letter.offset: letter for letter in DeadLetter.objects.all()}
    return {name: by_offset[raw.offset] for name, raw in zip(wanted, found, strict=True)}


# -- messages ----------------------------------------------------------------------------------------------
@pytest.fixture
def refused(memory, go: Callable) -> DeadLetter:
    promise(payload={"n": 1, "order_id": "7"})
    memory.answers = [PERMANENT]
    go(memory)
    return only()


@pytest.fixture
def copied(refused) -> DeadLetter:
    assert send(refused, edited(refused, ('"n": 1', '"n": 2'))) == "waiting"
    return again(refused)


def test_the_copy_of_a_message_is_a_new_message_with_a_key_of_its_own(copied, memory, go):
    first = OutboxMessage.objects.get(pk=copied.topic_id)
    second = OutboxMessage.objects.exclude(pk=first.pk).get()
    assert (first.state, second.state, copied.carrier) == ("dead_lettered", "pending", second.pk)
    assert msgspec.json.decode(second.payload) == {"n": 2, "order_id": "7"}
    assert (second.aggregate, second.channel, second.event_type) == (first.aggregate, first.channel, first.event_type)
    assert IdempotencyKey.objects.filter(message_id=second.pk).exists()
    go(memory)
    assert [one.id for one in memory.calls[-1]] == [second.pk]
    redelivery.look_after(database_now())
    assert (again(copied).status, again(copied).evidence) == ("resolved", "sent, receipt r-1")
    assert OutboxMessage.objects.get(pk=first.pk).state == "dead_lettered", "nothing sends the original"
    assert FailureGroup.objects.get().state == "resolved"


def test_the_letters_page_leads_to_the_message_of_the_copy(copied, boss):
    html = boss.get(page_of(copied)).content.decode()
    assert f'href="/admin/outbox/outboxmessage/{copied.carrier}/change/"' in html
    assert html.count("Edited copy") == 1


def test_a_copy_that_is_too_large_is_told_at_once(refused):
    (fault,) = examine(refused, f'{{"n": "{"x" * 70_000}"}}', database_now()).faults
    assert fault.text == "It has more than 65,536 bytes, the most that can be edited."


def test_the_handler_checks_the_copy_as_it_checks_what_is_published(refused):
    (fault,) = examine(refused, '{"never": true}', database_now()).faults[:1]
    assert {found.text for found in examine(refused, '{"never": true}', database_now()).faults} >= {"payload: never"}
    assert fault
    with pytest.raises(Refusal):
        send(refused, '{"never": true}')


def test_a_message_that_was_sent_meanwhile_is_not_sent_as_a_copy(refused):
    OutboxMessage.objects.update(state="sent", receipt="r-9", sent_at=database_now())
    text = edited(refused, ('"n": 1', '"n": 2'))
    found = examine(refused, text, database_now())
    assert not found.may_go
    assert "a second message" in found.judgement.why
    with pytest.raises(Refusal):
        send(refused, text)
    with transaction.atomic():
        effect = redelivery.take_back([refused.copy_with(text.encode(), 1)], database_now())[refused.pk]
    assert effect.state == "refused"
    assert OutboxMessage.objects.count() == 1


def test_a_restored_letter_that_is_taken_back_as_it_is_is_no_copy_any_more(broken_order, settings, monkeypatch):
    """Its proof reads its own bytes again."""
    send(broken_order, edited(broken_order, ('"three"', "3")))
    found = PayloadRevision.objects.in_force([again(broken_order)])
    assert found[0].edit == 1
    assert DOTS not in str(found)
    DeadLetter.objects.filter(pk=broken_order.pk).update(requeued_at=database_now() + timedelta(seconds=1))
    assert PayloadRevision.objects.in_force([again(broken_order)])[0].edit == 0


def test_a_letter_that_is_open_again_after_an_edit_is_not_what_the_second_editor_saw(copied, memory):
    carrier = OutboxMessage.objects.get(pk=again(copied).carrier)
    cancel([carrier.pk], ANN, "not wanted any more")
    redelivery.look_after(database_now())
    levers.pull("restore", [copied.pk], ANN, "it is wanted after all")
    assert again(copied).status == "open"
    with pytest.raises(Refusal, match="Somebody was faster"):
        send(copied, text_of(copied).replace("1", "3"), seen=0)
    assert PayloadRevision.objects.count() == 1
