"""A mail whose address was wrong: a copy goes to the right one, as a message of its own, and its receipt closes the letter."""

from __future__ import annotations

import msgspec

from config.admin.levers import Operator
from config.database.clock import database_now
from notifications.channels.local import Memory
from notifications.mail import suppression
from notifications.models import Delivery
from outbox.letters import redelivery
from outbox.letters.edits import examine, requeue_copy, text_of
from outbox.letters.models import DeadLetter
from outbox.models import OutboxMessage
from tests.notifications.post import email, go, paid  # noqa: F401 (a fixture)

WRONG, RIGHT = "ada@exampel.com", "ada@example.com"


def refused(handler) -> DeadLetter:
    suppression.suppress({WRONG: ("hard_bounce", "550 no such user")}, database_now())
    paid(WRONG)
    assert go(handler) == 0
    return DeadLetter.objects.get()


def faults(letter: DeadLetter, text: str) -> list[tuple[str, str]]:
    return [(fault.path, fault.text) for fault in examine(letter, text, database_now()).faults]


def test_a_mail_goes_to_the_right_address_under_its_own_key(email):  # noqa: F811
    letter = refused(email)
    text = text_of(letter).replace(WRONG, RIGHT)
    assert faults(letter, text) == []
    assert requeue_copy(letter.pk, text, 0, Operator("ann"), "the customer called").state == "waiting"
    assert go(email) == 1
    [(key, mail)] = Memory.sent
    first = OutboxMessage.objects.get(pk=letter.topic_id)
    second = OutboxMessage.objects.exclude(pk=first.pk).get()
    assert (key, mail.to) == (str(second.pk), RIGHT)
    assert {**msgspec.json.decode(first.payload), "to": RIGHT} == msgspec.json.decode(second.payload)
    redelivery.look_after(database_now())
    letter.refresh_from_db()
    assert (letter.status, letter.carrier) == ("resolved", second.pk)
    assert Delivery.objects.get().message_id == second.pk


def test_its_handler_checks_the_copy_and_order_and_event_are_locked(email):  # noqa: F811
    letter = refused(email)
    text = text_of(letter)
    assert faults(letter, text.replace(WRONG, "nobody at all"))[0][1].startswith(
        "not a mail: it is not one bare address"
    )
    order = msgspec.json.decode(text)["order_id"]
    assert [path for path, _ in faults(letter, text.replace(WRONG, RIGHT).replace(order, "another"))] == ["order_id"]
    assert [path for path, _ in faults(letter, text.replace(WRONG, RIGHT).replace("order.paid", "order.x"))] == [
        "event_type"
    ]
    ((missing, said),) = faults(letter, text.replace('"subject"', '"object"'))
    assert (missing, said) == ("subject", "is missing.")
