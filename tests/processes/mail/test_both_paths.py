"""The poller and CDC race for the same ten thousand rows: each is sent once, whoever wins."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest
from django.db import connection

from config.database.clock import database_now
from config.database.upsert import uuid_text
from config.fields import uuid7
from outbox.channels import handlers as registry
from outbox.channels.permits import ensure
from outbox.delivery.candidates import lower_bound
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.models import DeliveryAttempt, OutboxMessage
from tests.outbox.bulk import MESSAGES, beginning
from tests.outbox.race import race, until_it_stands
from tests.outbox.scripted import Scripted

pytestmark = pytest.mark.django_db(transaction=True)
ROWS, HINTS, AGGREGATES = 10_000, 100, 4000
NEVER = threading.Event()


@pytest.fixture
def memory(monkeypatch, settings, db):
    """A channel of batches whose receiver is a list."""
    handler = Scripted(acknowledges="batch")
    settings.HANDLERS = {handler.name: "tests.outbox.scripted.Scripted"}
    monkeypatch.setattr(registry, "installed", {handler.name: handler})
    lower_bound.forget()
    ensure([handler.name])
    return handler


def write(number: int) -> list:
    now, made = database_now(), []
    for start in range(0, number, 1000):
        ids = [uuid7() for _ in range(1000)]
        rows = [
            (uuid_text(pk), "memory", "order.paid", f"order:{n % AGGREGATES}", "{}", "", "")
            for n, pk in enumerate(ids, start)
        ]
        MESSAGES.run(rows, beginning(now))
        made += ids
    return made


def test_each_of_ten_thousand_rows_is_sent_once(memory):
    ids = write(ROWS)
    # As Kafka brings them: roughly in order, and the same hint more than once.
    hints = [ids[start : start + HINTS] for start in range(0, ROWS, HINTS)]
    won: Counter[str] = Counter()

    def once(path: str, wanted: list | None) -> int:
        found = until_it_stands(lambda: claim(memory, path, HINTS, ids=wanted))
        deliver(found, memory, NEVER)
        won[path] += len(found.messages)
        return found.looked_at

    def poll() -> None:
        while once("poll", None) or OutboxMessage.objects.pending().exists():
            # Put off behind another's batch for half a second: due again at once, to keep the race hot.
            OutboxMessage.objects.pending().filter(available_at__gt=database_now()).update(available_at=database_now())

    def listen(seed: int) -> None:
        mine = random.Random(seed).sample(hints, len(hints))
        for wanted in [*hints, *mine] if seed == 1 else [*reversed(hints), *mine]:
            once("cdc", wanted)

    contenders = [poll, lambda: listen(1), lambda: listen(2)]
    race(*(contenders[:2] if connection.vendor == "sqlite" else contenders))
    poll()
    assert Counter(OutboxMessage.objects.values_list("state", "attempts")) == {("sent", 1): ROWS}
    assert len(memory.accepted) == len(set(memory.accepted)) == ROWS
    assert Counter(DeliveryAttempt.objects.values_list("path", flat=True)) == won
    if connection.vendor != "sqlite":  # there one of them may keep the only write lock to the end
        assert min(won["poll"], won["cdc"]) > 0
