"""The secrets of webhooks, and a mail that they may be about."""

from __future__ import annotations

from typing import Any

import pytest

from outbox.models import OutboxMessage
from tests.notifications import signing
from tests.notifications.post import go, paid


@pytest.fixture(autouse=True)
def _secrets(settings: Any) -> None:
    settings.EMAIL_WEBHOOK_SECRETS = signing.SECRETS


@pytest.fixture
def sent(email: Any) -> OutboxMessage:
    """A message that was accepted."""
    message = paid()
    go(email)
    return message
