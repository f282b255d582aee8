"""The page of a message shows the key under which it was promised, also one that is kept longer than others."""

from datetime import timedelta

import pytest

from config.database.clock import database_now
from outbox.messages.retention import sweep_keys
from outbox.models import IdempotencyKey, OutboxMessage
from tests.config.admin.conftest import _plain_http, boss
from tests.outbox.scripted import promise

__all__ = ["_plain_http", "boss"]
pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("days", [0, 6.5, 30])
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_the_page_of_an_old_message_shows_its_key(boss, memory, days, rounds):
    pk, then = promise(key="zq-planted"), database_now() - timedelta(days=days)
    OutboxMessage.objects.update(created_at=then)
    IdempotencyKey.objects.update(created_at=then)
    for ago in range(rounds - 1, -1, -1):
        sweep_keys(database_now() - timedelta(days=ago))
    assert "zq-planted" in boss.get(f"/admin/outbox/outboxmessage/{pk}/change/").content.decode()
