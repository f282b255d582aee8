"""Letters of change capture: the hint is read again, and the state of the message that it names proves it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest
from django.db import transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from config.fields import smallest_uuid7
from config.kafka import Replayed
from outbox.bookkeeping import counters
from outbox.letters import levers, redelivery
from outbox.letters.burial import Letter, bury
from outbox.letters.models import DeadLetter
from outbox.messages.models import FLOW
from outbox.partitioned import MESSAGES

pytestmark = pytest.mark.django_db


def letter_about(value: bytes) -> DeadLetter:
    record = Replayed("outbox.outbox_message", 0, 7, 1_900_000_000_000, b"k", value)
    with transaction.atomic():
        bury([Letter("outbox", "decode", "bad_id", "text", record, "t")], "outbox-listen", database_now())
    return DeadLetter.objects.get()


def hint(message_id) -> bytes:
    return msgspec.json.encode({"id": str(message_id), "event_type": "order.paid", "created_at": None})


def look(letter: DeadLetter) -> tuple[str, str]:
    redelivery.look_after(database_now())
    found = DeadLetter.objects.get(pk=letter.pk)
    return found.status, found.evidence


def test_a_message_that_retention_took_had_ended():
    old = database_now() - timedelta(days=400)
    letter = letter_about(hint(smallest_uuid7(int(old.timestamp() * 1000))))
    levers.pull("requeue", [letter.pk], Operator("me"), "try")
    assert look(letter) == ("resolved", "its message ended and was dropped")


def test_a_message_that_a_shorter_retention_took_had_ended():
    """What was dropped says what is gone, not what the setting would drop today."""
    now = database_now()
    day = MESSAGES.partition((now - timedelta(days=5)).date())
    counters.record_dropped("default", replace(day, key=f"{day.label}.gone"), {(FLOW, "sent"): 1})
    dropped, kept = (smallest_uuid7(int((now - timedelta(days=ago)).timestamp() * 1000)) for ago in (5, 4))
    letter = letter_about(hint(dropped))
    levers.pull("requeue", [letter.pk], Operator("me"), "try")
    assert look(letter) == ("resolved", "its message ended and was dropped")
    DeadLetter.objects.update(status="requeued", carrier=kept, evidence="")
    assert look(letter) == ("requeued", "")


def test_a_young_message_that_nobody_knows_proves_nothing():
    letter = letter_about(hint(smallest_uuid7(int(database_now().timestamp() * 1000))))
    levers.pull("requeue", [letter.pk], Operator("me"), "try")
    assert look(letter) == ("requeued", "")


def test_what_names_no_message_is_resolved_and_what_is_no_hint_fails_again():
    letter = letter_about(b'{"op": "d", "before": {"id": "x"}, "after": null}')
    levers.pull("requeue", [letter.pk], Operator("me"), "try")
    assert look(letter) == ("resolved", "the record names no new message: nothing is missing")
    DeadLetter.objects.update(status="open", payload=b"{bad", evidence="")
    ((failed, effect),) = levers.pull("requeue", [letter.pk], Operator("me"), "try").failed
    after = DeadLetter.objects.get(pk=effect.successor)
    assert (after.predecessor, after.revision, after.status) == (failed.pk, 1, "open")
