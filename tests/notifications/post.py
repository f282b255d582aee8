"""A hand for tests: orders that send mails, and a relay that can be asked for one round."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from config.database.clock import database_now
from notifications.channels.local import Memory
from notifications.email_handler import EmailHandler
from notifications.orders import changes
from outbox.channels import handlers as registry
from outbox.channels.permits import ensure
from outbox.delivery.candidates import lower_bound
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.models import OutboxMessage


@pytest.fixture
def email(db: Any, settings: Any) -> Any:
    """The real handler, through the channel that the settings name when a test first asks."""
    settings.HANDLERS = {"email": "notifications.email_handler.EmailHandler"}
    settings.EMAIL_CHANNEL = settings.EMAIL_CHANNEL if settings.EMAIL_CHANNEL != "smtp" else "memory"
    registry.installed.clear()
    lower_bound.forget()
    Memory.clear()
    ensure(["email"])
    yield registry.handlers()["email"]
    registry.installed.clear()
    Memory.clear()


def paid(address: str = "ada@example.com", currency: str = "EUR") -> OutboxMessage:
    """A paid order's message."""
    order = changes.create(address, 1999, currency, database_now())
    changes.change(order.pk, "pay")
    return OutboxMessage.objects.get(aggregate=order.aggregate)


def go(handler: EmailHandler, most: int = 100) -> int:
    """Claim and deliver what is due now, once; returns how many were accepted."""
    return deliver(claim(handler, "poll", most), handler, threading.Event())


def state_of(message: OutboxMessage) -> str:
    return OutboxMessage.objects.get(pk=message.pk).state
