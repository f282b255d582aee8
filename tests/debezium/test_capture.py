"""What the real connectors bring: a hint at every committed insert, and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from config.fields import uuid7
from config.partitions.rotation import driver_for, ensure_partitions
from outbox.models import OutboxMessage
from outbox.partitioned import MESSAGES
from outbox.workers.change_capture import read_change
from tests.debezium.connector import server
from tests.debezium.rows import DAY, arrived, insert, message

COLUMNS = {"id", "event_type", "created_at"}


def test_every_committed_row_becomes_one_hint(reader):
    arrived(reader, [*insert(50), *insert(1, event_type="order.refunded")])


def test_updates_and_deletes_arrive_as_nothing(reader):
    rows = insert(10)
    OutboxMessage.objects.update(state="sent", attempts=1)
    OutboxMessage.objects.all().delete()
    arrived(reader, rows)


def test_a_transaction_that_is_rolled_back_never_arrives(reader):
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        insert(10)
        raise ZeroDivisionError
    with transaction.atomic():
        kept = insert(1)
        point = transaction.savepoint()
        insert(10)
        transaction.savepoint_rollback(point)
    arrived(reader, kept)


def test_nothing_but_three_columns_travels(reader):
    (row,) = insert(1)
    arrived(reader, [row])
    for record in reader.records:
        assert json.loads(record.value).keys() == COLUMNS
        assert b"secret" not in record.value
        assert not record.headers


def test_the_key_is_the_id_so_that_one_row_stays_in_one_partition(reader):
    arrived(reader, insert(20))
    assert all(record.key.decode() == json.loads(record.value)["id"] for record in reader.records)
    assert len({record.partition for record in reader.records}) > 1


def test_a_row_arrives_under_one_name_from_every_partition(reader):
    today = datetime.now(UTC)
    arrived(reader, [row for days in (-1, 0, 1, 5) for row in insert(1, at=today + days * DAY)])


def test_an_id_that_ends_in_zero_bytes_is_whole(reader):
    """One of 256 does; MariaDB's binary log leaves them out."""
    ends = [0x0100, 0x010000, 0x01000000, 0x20, 0x2000]
    ids = [UUID(int=uuid7().int >> 32 << 32 | end) for end in ends]
    arrived(reader, OutboxMessage.objects.bulk_create([message(id=identity) for identity in ids]))


@pytest.fixture
def beyond(transactional_db: None) -> Iterator[datetime]:
    """A day that has no partition yet; those made for it go again."""
    driver = driver_for(MESSAGES, "default")
    before = driver.existing()
    newest = max(partition.upper for partition in before if partition.upper)
    yield datetime.combine(newest, datetime.min.time(), UTC) + 1.5 * DAY
    OutboxMessage.objects.all().delete()
    for partition in driver.existing():
        if partition.name not in {known.name for known in before}:
            driver.drop(partition)


def test_a_partition_made_while_the_connector_runs_is_captured(reader, beyond):
    ahead = (beyond.date() - datetime.now(UTC).date()).days
    assert ensure_partitions(replace(MESSAGES, ahead=ahead)) == 2
    arrived(reader, insert(1, at=beyond))


def test_a_hint_arrives_soon_after_the_commit(reader, capsys):
    """At 167 inserts a second for three seconds, as in seed 4's peak."""
    count, rate = 500, 167
    committed: dict[Any, float] = {}
    began = time.monotonic()
    for number in range(count):
        (row,) = insert(1)
        committed[row.id] = time.time()
        while time.monotonic() < began + (number + 1) / rate:
            reader.poll(0.001)
    reader.wait_for(count, 60)
    late = sorted(
        reader.arrived[index] - committed[read_change(record.value).id] for index, record in enumerate(reader.records)
    )
    p50, p99 = (1000 * late[int(count * share)] for share in (0.5, 0.99))
    with capsys.disabled():
        print(f"\n{server()}: commit → record p50 {p50:.0f} ms, p99 {p99:.0f} ms at {rate}/s")
    # A figure to read, not to judge: on a machine that does other things it is any number.
    assert p99 < 60_000
