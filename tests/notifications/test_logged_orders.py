"""In the log an order's id has one name and one spelling, so that one filter finds every line about it."""

from __future__ import annotations

import pytest
from django.test import TestCase

from notifications.channels.local import Memory
from notifications.orders import changes
from outbox.channels.handlers import Outcome
from tests.logged import lines
from tests.notifications.conftest import new_order
from tests.notifications.post import go
from tests.outbox.intake.conftest import envelope, record, write

pytestmark = pytest.mark.django_db


def of_orders(line: dict) -> set[str]:
    told = line.get("order_id", [])
    return {told} if isinstance(told, str) else set(told)


def test_one_filter_finds_every_line_about_an_order(email, caplog):
    Memory.script.append(Outcome("permanent", "550 no such mailbox"))
    with caplog.at_level("INFO"), TestCase.captureOnCommitCallbacks(execute=True):
        order = new_order()
        changes.change(order.pk, "pay")
        go(email)
        changes.change(order.pk, "refund", 1)
        go(email)
        write(record(envelope()))
        go(email)
    told = {line["event"] for line in lines(caplog) if of_orders(line) == {str(order.pk)}}
    assert told >= {
        "order_created", "order_changed", "message_published", "messages_claimed", "messages_dead", "letters_opened",
        "messages_sent", "deliveries_accepted",
    }  # fmt: skip
    assert {pk for line in lines(caplog) for pk in of_orders(line)} == {str(order.pk)}
    invoices = [line for line in lines(caplog) if line.get("aggregate") == ["invoice:I-1"]]
    assert {line["event"] for line in invoices} >= {"messages_published", "messages_claimed", "messages_sent"}
