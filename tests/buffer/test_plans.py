"""The plans, not the times: what is asked every second must be an index range, however much is stored."""

from datetime import timedelta

import pytest
from django.db import connection

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush.claim import CLAIM
from buffer.ingest.after_restore import MARK_SENT
from buffer.ingest.handler import SEEN
from config.database.clock import database_now

pytestmark = pytest.mark.django_db(transaction=True)


def analyze(table: str) -> None:
    """Fresh statistics; on MySQL this commits, which is why these tests are transactional."""
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE TABLE {table}" if connection.vendor == "mysql" else f"ANALYZE {table}")


@pytest.fixture
def full(stream):
    now = database_now()
    Bucket.objects.bulk_create(
        Bucket(stream=stream.name, location_id=f"W{n}", due_at=now + timedelta(days=1 + n)) for n in range(3000)
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


def test_orders_by_their_trace(full):
    plan = BufferedEvent.objects.of_trace("ab" * 16).explain()
    assert "bufferedevent_trace" in plan or "traceparent_idx" in plan, plan


def test_a_claim_keeps_the_size_of_a_row():
    """Else InnoDB moves each row within its page: the claim's UPDATE takes a third longer (docs/adr/0018)."""
    written = [BufferedEvent._meta.get_field(name) for name in f"{CLAIM.changes} {CLAIM.constants}".split()]
    assert {field.name for field in written} == {"batch_id", "status", "updated_at"}
    assert not [field.name for field in written if field.null]
    assert len(BufferedEvent.Status.PENDING.value) == len(BufferedEvent.Status.CLAIMED.value)


@pytest.mark.skipif(connection.vendor != "mysql", reason="partial indexes need no flag")
def test_the_flag_of_the_claims_index_keeps_its_size_too(full):
    with connection.cursor() as cursor:
        cursor.execute("SELECT status, is_pending FROM buffer_bufferedevent")
        assert set(cursor.fetchall()) == {("pending", 1), ("sent", 0)}


@pytest.mark.parametrize("rewrite", [CLAIM, SEEN, MARK_SENT])
def test_rows_are_rewritten_by_look_up(rewrite):
    """SQLite once compared each of 40 000 orders with each of the rows, and held its one lock for minutes."""
    if connection.vendor != "sqlite":
        pytest.skip("the others are told the order of the join, or know it from statistics")
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS sqlite_stat1")  # nobody analyses a database that is in use
    ran = []
    names = ["status", "updated_at", "stream"]
    values = {name: database_now() if name == "updated_at" else "x" for name in names}
    with connection.execute_wrapper(
        lambda run, sql, params, *rest: ran.append((sql, params)) or run(sql, params, *rest)
    ):
        rewrite.run([["1"] * (len(f"{rewrite.key} {rewrite.changes}".split()))], values, [202611, 202612])
    ((sql, params),) = ran
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN QUERY PLAN {sql}", params)
        steps = [row[3] for row in cursor.fetchall()]
    touched = [step for step in steps if "buffer_bufferedevent" in step]
    assert touched
    assert all("rowid=?" in step or "order_id=?" in step for step in touched), steps


def test_rows_are_found_by_their_ids_whatever_the_statistics_say():
    """MySQL once walked all pending orders for each id of a claim, for minutes, with statistics of an empty table."""
    if connection.vendor != "mysql":
        pytest.skip("only MySQL and MariaDB take the index of a constant for the better one")
    ran = []
    row = [7, "1" * 32]
    with connection.execute_wrapper(
        lambda run, sql, params, *rest: ran.append((sql, params)) or run(sql, params, *rest)
    ):
        CLAIM.run([row], {"status": "claimed", "updated_at": database_now()}, [202611, 202612])
    sql, params = next(found for found in ran if found[0].startswith("UPDATE"))
    with connection.cursor() as cursor:
        cursor.execute(
            f"EXPLAIN FORMAT=TRADITIONAL {sql}" if not connection.mysql_is_mariadb else f"EXPLAIN {sql}", params
        )
        names = [column[0] for column in cursor.description]
        plans = [dict(zip(names, found, strict=True)) for found in cursor.fetchall()]
    assert [plan["key"] for plan in plans if plan["table"] == "buffer_bufferedevent"] == ["PRIMARY"], plans
