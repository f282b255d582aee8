"""Plans: with tens of thousands of sent messages, work costs what is unfinished, and nothing is sorted."""

import threading
import uuid
from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from config.database.clock import database_now
from config.database.queries import forced
from config.database.upsert import uuid_text
from config.fields import uuid7
from outbox.delivery import settle
from outbox.delivery.candidates import DUE, lower_bound, read_messages
from outbox.delivery.claim import CLAIM, PUT_OFF, Claim
from outbox.home import OutboxNumbers
from outbox.messages.models import first_unfinished_day
from outbox.models import DeliveryAttempt, OutboxMessage
from tests.outbox.bulk import MESSAGES, beginning

pytestmark = pytest.mark.django_db
SENT, UNFINISHED = 30_000, 600


def write(number: int, state: str, **more) -> list[uuid.UUID]:
    now = database_now()
    made = []
    for start in range(0, number, 5000):
        ids = [uuid7() for _ in range(min(5000, number - start))]
        rows = [
            (uuid_text(pk), "memory", "order.paid", f"order:{n % 20_000}", "{}", "", "")
            for n, pk in enumerate(ids, start)
        ]
        MESSAGES.run(rows, {**beginning(now - timedelta(hours=1)), "state": state, "attempts": 1, **more})
        made += ids
    return made


@pytest.fixture
def full(memory):
    write(SENT, "sent")
    pending = write(UNFINISHED, "pending")
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # on MySQL it would commit, and nobody does it on SQLite
            cursor.execute("ANALYZE outbox_outboxmessage")
    lower_bound.forget()
    return pending


def explained(sql: str, params) -> str:
    prefix = {"sqlite": "EXPLAIN QUERY PLAN", "mysql": "EXPLAIN FORMAT=JSON"}.get(connection.vendor, "EXPLAIN")
    with connection.cursor() as cursor:
        cursor.execute(f"{prefix} {sql}", params)
        return "\n".join(str(row[3] if connection.vendor == "sqlite" else row[0]) for row in cursor.fetchall())


def plan(rows) -> str:
    return explained(*rows.query.sql_with_params())


def claim_plan(rows) -> str:
    sql, params = rows.query.sql_with_params()
    return explained(forced(sql, OutboxMessage, DUE) if connection.vendor == "mysql" else sql, params)


def plan_of(rewrite, rows, values) -> str:
    ran = []
    with connection.execute_wrapper(
        lambda run, sql, params, *rest: ran.append((sql, params)) or run(sql, params, *rest)
    ):
        rewrite.run(rows, values)
    return explained(*ran[0])


# PostgreSQL names the indexes of partitions itself.
NAMES = {
    "due": ("outboxmessage_due", "channel_available_at_id_idx"),
    "unfinished": ("outboxmessage_unfinished", "aggregate_id_idx"),
    "taken": ("outboxmessage_taken", "state_lease_until_idx"),
    "trace": ("outboxmessage_trace", "traceparent_idx"),
}


def uses(text: str, *indexes: str) -> bool:
    return any(name in text for index in indexes for name in NAMES[index])


def scans(text: str, table: str) -> bool:
    """Whether the plan reads a whole table."""
    if connection.vendor == "postgresql":
        return f"Seq Scan on {table}_p{database_now():%Y%m%d}" in text
    if connection.vendor == "sqlite":
        return any(line.startswith(f"SCAN {table}") for line in text.splitlines())
    return '"access_type": "ALL", "rows": 3' in text or f'"table_name": "{table}",\n      "access_type": "ALL"' in text


def test_candidates_come_from_the_claims_index_in_its_order(full):
    now = database_now()
    for rows in (
        OutboxMessage.objects.due("memory", now).from_id(lower_bound.read())[:100],
        OutboxMessage.objects.due("memory", now).from_id(lower_bound.read()).older_than(now)[:100],
    ):
        text = claim_plan(rows)
        assert uses(text, "due"), text
        assert not any(word in text for word in ('filesort": true', "TEMP B-TREE", "Sort  (")), text


def test_what_waits_longest_in_a_channel_is_one_look_into_the_claims_index(full):
    now = database_now()
    with CaptureQueriesContext(connection) as asked:  # as the server gets it, with the hint
        assert list(OutboxNumbers(now).first_due) == ["memory"]
    (text,) = (explained(query["sql"], None) for query in asked)
    assert uses(text, "due"), text
    assert not any(word in text for word in ("filesort", "TEMP B-TREE", "Sort  (", "Sort: ")), text


def test_a_locking_claim_keeps_the_plan(full):
    with transaction.atomic():
        text = claim_plan(
            OutboxMessage.objects.due("memory", database_now()).from_id(lower_bound.read()).locked()[:100]
        )
    assert uses(text, "due"), text


def test_obstacles_are_looked_up_by_aggregate(full):
    wanted = [f"order:{n}" for n in range(100)]
    rows = OutboxMessage.objects.blocking("memory", wanted, database_now()).from_id(lower_bound.read())
    text = plan(rows.filter(id__lte=max(full)).values_list("id"))
    assert uses(text, "unfinished", "due"), text
    assert not scans(text, "outbox_outboxmessage"), text


def test_the_oldest_unfinished_day_is_one_look_into_an_index(full):
    rows = OutboxMessage.objects.unfinished().filter(id__gte=min(full), id__lt=max(full))[:1]
    text = plan(rows.values_list("id"))
    assert not scans(text, "outbox_outboxmessage"), text


def test_the_newest_of_aggregates_are_looked_up(full):
    """Above an id of this moment there is nearly nothing, whatever was sent before."""
    newest = OutboxMessage.objects.newest_of
    for aggregates in (["order:1"], [f"order:{n}" for n in range(500)]):
        with CaptureQueriesContext(connection) as asked:
            assert newest(aggregates, uuid7()) == {}
        text = explained(asked[0]["sql"], None)
        assert not scans(text, "outbox_outboxmessage"), text


def test_messages_of_a_trace_have_an_index(full):
    text = plan(OutboxMessage.objects.of_trace("ab" * 16)[:20].values_list("id"))
    assert uses(text, "trace"), text
    assert not scans(text, "outbox_outboxmessage"), text


def test_lost_and_uncertain_ones_have_an_index(full):
    now = database_now()
    for rows in (
        OutboxMessage.objects.lost(now).from_id(lower_bound.read()).values_list("id"),
        OutboxMessage.objects.in_channel("memory").uncertain().filter(available_at__lte=now).values_list("id"),
    ):
        text = plan(rows)
        assert not scans(text, "outbox_outboxmessage"), text
        assert uses(text, "taken"), text


def test_messages_are_rewritten_by_look_up(full):
    token, now = uuid_text(uuid.uuid4()), database_now()
    ids = [pk.hex for pk in full[:100]]
    lease = {"state": "processing", "lease_token": token, "lease_until": now}
    moment = str(now)[:19]
    for rewrite, rows, values in (
        (PUT_OFF, [(pk, moment) for pk in ids], {}),
        (CLAIM, [(pk, 1) for pk in ids], lease),
        (settle.RELEASE, [(pk, 0, moment) for pk in ids], {**lease, "state": "pending"}),
        (CLAIM, [(pk, 1) for pk in ids], lease),
        (
            settle.SENT,
            [(pk, "r") for pk in ids],
            {**lease, "state": "sent", "sent_at": now, "error_class": "", "error": ""},
        ),
    ):
        text = plan_of(rewrite, rows, values)
        assert not scans(text, "outbox_outboxmessage"), text
    assert OutboxMessage.objects.filter(state="sent", receipt="r").count() == 100


def test_attempts_are_closed_by_look_up(full):
    now = database_now()
    found = Claim("memory", "poll", now)
    OutboxMessage.objects.among(full[:50]).update(state="processing", lease_token=found.token, lease_until=now)
    found.messages = read_messages(OutboxMessage.objects.among(full[:50]))
    opened = settle.open_attempts(found, found.messages, now, threading.Event())
    text = plan_of(settle.CLOSE, [(name, "sent", "", "") for name in opened.values()], {"finished_at": now})
    assert "Seq Scan on outbox_deliveryattempt" not in text or DeliveryAttempt.objects.count() < 1000
    assert DeliveryAttempt.objects.filter(outcome="sent").count() == 50


def test_the_floor_is_the_first_day_with_work(memory):
    day = 86_400_000
    today = uuid7()
    yesterday = uuid.UUID(int=((today.int >> 80) - day) << 80 | 7 << 76 | 2 << 62)
    rows = OutboxMessage.objects.all()
    start_of_today = (today.int >> 80) // day * day
    assert first_unfinished_day(rows, yesterday, today).int >> 80 == start_of_today
    (pk,) = write(1, "pending")
    old = uuid.UUID(int=(start_of_today - 5) << 80 | 7 << 76 | 2 << 62 | 5)
    OutboxMessage.objects.filter(pk=pk).delete()
    OutboxMessage.objects.create(
        id=old, channel="memory", event_type="e", aggregate="a", payload="{}", available_at=database_now(),
        expires_at=database_now() + timedelta(days=1), created_at=database_now(),
    )  # fmt: skip
    assert first_unfinished_day(rows, yesterday, today).int >> 80 == start_of_today - day
