"""Rows of the outbox, and whether exactly they have arrived."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from config.fields import smallest_uuid7, uuid7
from outbox.models import OutboxMessage
from outbox.workers.change_capture import Hint, read_change
from tests.debezium.connector import Reader

DAY = timedelta(days=1)


def message(at: datetime | None = None, **values: Any) -> OutboxMessage:
    """A row as publish() writes it; `at` makes its id of another time, and so its partition."""
    now = datetime.now(UTC)
    moment = at or now
    identity = smallest_uuid7(int(moment.timestamp() * 1000)) if at else uuid7()
    return OutboxMessage(**{
        "id": identity, "channel": "email", "event_type": "order.paid", "aggregate": "order:1",
        "payload": '{"secret": "body"}', "created_at": moment, "available_at": now,
        "expires_at": now + DAY, **values,
    })  # fmt: skip


def insert(count: int = 1, **values: Any) -> list[OutboxMessage]:
    return OutboxMessage.objects.bulk_create([message(**values) for _ in range(count)])


def arrived(reader: Reader, rows: Sequence[OutboxMessage]) -> None:
    """Exactly these rows, each once. A marker written last tells when everything before it must be there."""
    (marker,) = insert(event_type="marker")
    expected = {row.id: Hint(row.id, row.event_type, row.created_at) for row in [*rows, marker]}
    # Each partition keeps the order of the log, but the marker is in one only: a moment for the others.
    reader.wait_for(len(expected))
    reader.poll(0.5)
    found = [read_change(record.value) for record in reader.records]
    assert sorted(found) == sorted(expected.values())
