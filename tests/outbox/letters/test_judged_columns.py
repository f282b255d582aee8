"""A preview loads only the columns that judgements need: no flow may ask for another, a query for each letter."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from django.db import transaction

from config.database.clock import database_now
from config.fields import uuid7
from config.kafka import Replayed
from outbox.letters import redelivery
from outbox.letters.burial import Letter, bury
from outbox.letters.models import NOT_JUDGED, DeadLetter, fitting
from tests.conftest import order

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC).isoformat(timespec="seconds")
ORDER = order("A1", "WH-1", at=NOW)
SALE = b'{"saleOrderId": "S1", "merchantId": "M", "items": [{"stockId": "ST-1", "quantity": 1}]}'
NOTICE = msgspec.json.encode({
    "notification_id": "n1", "customer_id": "c1", "recipient": "a@example.com", "message": {}, "created_at": NOW,
})  # fmt: skip
MESSAGE = [("channel", b"email"), ("event_type", b"order.paid")]


@pytest.mark.parametrize(("source", "step", "topic", "value", "says"), [
    ("transfer-requests", "decode", "transfer-requests", ORDER, "The order waits"),
    ("transfer-requests", "late", "transfer-requests", ORDER, "would be refused"),
    ("transfer-requests", "publish", "transfer-batches", b"[]", "would be refused"),
    ("ledger", "effect", "PAYMENT_SUCCESS", SALE, "ST-1|Fails again"),
    ("outbox", "decode", "outbox.outbox_message", b'{"id": "x"}', "Fails again"),
    ("outbox", "send", "", b'{"to": "a@example.com"}', "A new message"),
    ("throttler", "decode", "notifications-in", NOTICE, "It is sent again"),
])  # fmt: skip
def test_no_flow_asks_for_what_a_preview_leaves_out(source, step, topic, value, says):
    record = Replayed(topic, 0, 7, int(database_now().timestamp() * 1000), b"k", value, MESSAGE)
    with transaction.atomic():
        bury(
            [Letter(source, step, "reason", "said", record, str(uuid7()), business_key=str(uuid7()))],
            "g",
            database_now(),
        )
    letter = DeadLetter.objects.to_judge().get()
    missing = letter.get_deferred_fields()
    judgement = redelivery.judge([letter], database_now())[letter.pk]
    assert any(words in judgement.verdict for words in says.split("|")), judgement
    assert letter.get_deferred_fields() == missing
    assert len(missing) == len(NOT_JUDGED)


def test_payloads_fit_up_to_the_limit_and_one_always_does(monkeypatch):
    monkeypatch.setattr("outbox.letters.models.MOST_BYTES", 10)
    assert [fitting(sizes) for sizes in ([], [99], [10, 1], [4, 6, 1], [1, 99, 1])] == [0, 1, 1, 2, 1]
