"""A hand for tests: messages, and attempts, that are days old."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import connection

from config.database.clock import database_now
from config.fields import smallest_uuid7, uuid7, uuid7_milliseconds
from config.partitions import PartitionSpec
from config.partitions.rotation import driver_for
from outbox.delivery.candidates import lower_bound
from outbox.models import DeliveryAttempt, OutboxMessage
from outbox.partitioned import ATTEMPTS, MESSAGES


def id_of_age(days: float) -> UUID:
    """As it was made so many days ago."""
    moment = database_now() - timedelta(days=days)
    return UUID(int=smallest_uuid7(int(moment.timestamp() * 1000)).int | (uuid7().int & (2**62 - 1)))


def aged(message_id: UUID, days: float) -> UUID:
    """Move a message and its attempts so many days back; returns its new id."""
    old = id_of_age(days)
    for spec in (MESSAGES, ATTEMPTS):
        ensure_day(spec, old)
    assert OutboxMessage.objects.filter(pk=message_id).update(id=old) == 1
    for attempt in DeliveryAttempt.objects.filter(message_id=message_id):
        DeliveryAttempt.objects.filter(pk=attempt.pk).update(id=UUID(int=old.int + 1), message_id=old)
    lower_bound.forget()
    return old


def ensure_day(spec: PartitionSpec, value: UUID) -> None:
    """PostgreSQL takes no row whose day has no partition; elsewhere the next one takes it."""
    driver = driver_for(spec, "default")
    day = datetime.fromtimestamp(uuid7_milliseconds(value) / 1000, UTC).date()
    partition = spec.partition(day, driver.prefix)
    if connection.vendor == "postgresql" and not any(other.covers(partition) for other in driver.existing()):
        driver.create(partition)
