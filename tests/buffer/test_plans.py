"""The plans, not the times: what is asked every second must be an index range, however much is stored."""

from datetime import timedelta

import pytest
from django.db import connection

from buffer.models import Batch, Bucket, BufferedEvent
from config.clock import database_now

pytestmark = pytest.mark.django_db(transaction=True)


def analyze(table: str) -> None:
    """Fresh statistics; on MySQL this commits, which is why these tests are transactional."""
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE TABLE {table}" if connection.vendor == "mysql" else f"ANALYZE {table}")


@pytest.fixture
def full(stream):
    now = database_now()
    Bucket.objects.bulk_create(
        Bucket(stream=stream.name, location_id=f"W{n}", due_at=now + timedelta(days=1 + n))
        for n in range(3000)
    )
    month = now.year * 100 + now.month
    BufferedEvent.objects.bulk_create(
        BufferedEvent(
            partition_key=month, stream=stream.name, location_id=f"W{n % 300}", order_id=f"A{n}", payload="{}",
            payload_hash="", status="pending" if n % 50 == 0 else "sent", source_partition=0, source_offset=n,
            source_timestamp=n, created_at=now, updated_at=now,
        )
        for n in range(6000)
    )  # fmt: skip
    for model in (Bucket, BufferedEvent, Batch):
        analyze(model._meta.db_table)
    return now


def test_finding_due_buckets(full, stream):
    assert "bucket_due" in Bucket.objects.of_stream(stream.name).due(full)[:10].explain()


def test_the_events_of_a_bucket(full, stream):
    plan = BufferedEvent.objects.pending().at(stream.name, ["W1", "W2"]).explain()
    # PostgreSQL names the indexes of partitions after their columns.
    assert "bufferedevent_open" in plan or "stream_location_id" in plan, plan


def test_an_order_by_its_id(full, stream):
    months = [full.year * 100 + full.month]
    plan = BufferedEvent.objects.in_months(months).of_stream(stream.name).filter(order_id="A77").explain()
    assert "bufferedevent_order" in plan or "order_id" in plan.split("Filter")[0], plan
