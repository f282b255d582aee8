"""Publishing: with the change or not at all, once a key, refused before anything is written."""

import uuid

import pytest
from django.db import IntegrityError, connection, transaction

from config.fields import uuid7_floor
from outbox import wake
from outbox.models import FlowCounter, IdempotencyKey, OutboxMessage
from outbox.publish import IdempotencyConflict, publish, publishing
from tests.outbox.race import race
from tests.outbox.scripted import message, promise

pytestmark = pytest.mark.django_db
ALONE = pytest.mark.django_db(transaction=True)


@ALONE
def test_outside_a_transaction_it_is_refused(memory):
    with pytest.raises(RuntimeError, match="outside a transaction"):
        publish("order.paid", "order:1", {}, idempotency_key="k", channel="memory")


def test_a_change_that_is_rolled_back_promises_nothing(memory):
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        publish("order.paid", "order:1", {}, idempotency_key="k", channel="memory")
        raise ZeroDivisionError
    assert not OutboxMessage.objects.exists()
    assert not IdempotencyKey.objects.exists()


def test_what_is_stored_is_what_was_given(memory):
    pk = promise("order:7", payload={"b": "ü", "a": [1, 2.5, None]}, correlation_id="c-1")
    row = message(pk)
    assert (row.channel, row.event_type, row.aggregate) == ("memory", "order.paid", "order:7")
    assert row.payload == '{"b":"ü","a":[1,2.5,null]}'
    assert (row.state, row.attempts, row.correlation_id) == ("pending", 0, "c-1")
    assert row.available_at == row.created_at
    assert (row.expires_at - row.created_at).total_seconds() == 86_400


def test_the_same_key_again_is_the_same_message(memory):
    first = promise(key="k", payload={"n": 1})
    assert promise(key="k", payload={"n": 1}) == first
    assert OutboxMessage.objects.count() == 1


@pytest.mark.parametrize(
    "other", [{"payload": {"n": 2}}, {"aggregate": "order:2"}, {"event_type": "order.cancelled"}]
)
def test_a_known_key_for_something_else_is_a_conflict(memory, other):
    promise(key="k", payload={"n": 1})
    with pytest.raises(IdempotencyConflict, match="'k'"):
        promise(**{"key": "k", "payload": {"n": 1}, **other})
    assert OutboxMessage.objects.count() == 1


def test_a_conflict_leaves_the_transaction_usable(memory):
    promise(key="k", payload={"n": 1})
    with transaction.atomic():
        with pytest.raises(IdempotencyConflict):
            publish("order.paid", "order:1", {"n": 2}, idempotency_key="k", channel="memory")
        publish("order.paid", "order:1", {"n": 2}, idempotency_key="k2", channel="memory")
    assert OutboxMessage.objects.count() == 2


@ALONE
def test_two_that_publish_one_key_at_once_write_one_message(memory):
    ids = race(*[lambda: promise(key="k") for _ in range(4)])
    assert len(set(ids)) == OutboxMessage.objects.count() == IdempotencyKey.objects.count() == 1


@ALONE
def test_two_that_publish_one_key_for_two_messages_get_one_conflict(memory):
    def attempt(n):
        try:
            return promise(key="k", payload={"n": n})
        except IdempotencyConflict:
            return "conflict"

    found = race(lambda: attempt(1), lambda: attempt(2))
    assert found.count("conflict") == 1
    assert OutboxMessage.objects.count() == 1


def test_a_clock_that_is_behind_does_not_reorder_an_aggregate(memory):
    ahead = uuid.UUID(int=uuid7_floor(int(4e12)).int | 5)
    with transaction.atomic():
        from outbox.publish import uuid7_after

        ids = [uuid7_after(ahead)]
        ids.append(uuid7_after(ids[0]))
    assert ahead < ids[0] < ids[1]
    assert all(pk.version == 7 for pk in ids)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"payload": {"never": True}}, "payload: never"),
        ({"payload": "x" * 2000}, "OUTBOX_MAX_BYTES"),
        ({"event_type": "x" * 101}, "event_type"),
        ({"aggregate": ""}, "aggregate"),
        ({"aggregate": "a\x00b"}, "aggregate"),
        ({"key": "x" * 201}, "idempotency_key"),
        ({"channel": "pigeon"}, "HANDLERS has no channel 'pigeon'"),
    ],
)
def test_what_could_never_be_delivered_is_refused_before_it_is_written(memory, settings, wrong, says):
    settings.OUTBOX_MAX_BYTES = 1000
    with pytest.raises(ValueError, match=says):
        promise(**wrong)
    assert not IdempotencyKey.objects.exists()


def test_a_new_message_takes_two_statements_and_the_time(memory, django_assert_max_num_queries):
    with transaction.atomic(), django_assert_max_num_queries(4 if connection.vendor == "mysql" else 3):
        publish("order.paid", "order:1", {}, idempotency_key="k", channel="memory")


def along(key="k"):
    """`publishing`, as `promise` calls `publish`."""
    return publishing("order.paid", "order:1", {"n": 1}, idempotency_key=key, channel="memory")


def note(name):
    FlowCounter.objects.create(flow="along", scope="", name=str(name), value=0)


def notes():
    return FlowCounter.objects.filter(flow="along")


def test_rows_written_along_name_the_message(memory):
    with transaction.atomic(), along() as pk:
        note(pk)
    assert OutboxMessage.objects.get().pk == pk == uuid.UUID(notes().get().name)


@ALONE
def test_outside_a_transaction_nothing_is_written_along(memory):
    with pytest.raises(RuntimeError, match="outside a transaction"), along() as pk:
        note(pk)
    assert not notes().exists()


@ALONE
def test_a_key_that_was_used_takes_what_is_written_along_with_it(memory):
    promise(key="k")
    with pytest.raises(IdempotencyConflict, match="'k'"), transaction.atomic(), along() as pk:
        note(pk)
    assert not notes().exists()
    assert OutboxMessage.objects.count() == 1


@ALONE
def test_a_failure_of_the_block_takes_the_message_with_it(memory):
    with pytest.raises(ZeroDivisionError), transaction.atomic(), along() as pk:
        note(pk)
        raise ZeroDivisionError
    assert not OutboxMessage.objects.exists()
    assert promise() == OutboxMessage.objects.get().pk  # the session is as good as before


@ALONE
def test_what_the_database_refuses_is_the_same_error_as_ever(memory):
    note("twice")
    with pytest.raises(IntegrityError), transaction.atomic(), along():
        FlowCounter.objects.bulk_create([FlowCounter(flow="along", scope="", name="twice", value=1)])
    assert not OutboxMessage.objects.exists()
    assert promise() == OutboxMessage.objects.get().pk


def test_more_messages_within_the_block(memory):
    with transaction.atomic(), along(key="k1") as first:
        second = promise(key="k2")
        assert promise(key="k2") == second
        assert promise(key="k1") == first
    assert OutboxMessage.objects.count() == 2


@ALONE
def test_a_commit_rings_for_what_was_written_along(memory, monkeypatch):
    rung = []
    monkeypatch.setattr(wake, "ring", lambda: rung.append(1))
    with transaction.atomic(), along():
        assert not rung
    assert rung == [1]


@pytest.mark.parametrize("pooled", [False, True])
def test_on_postgresql_they_share_a_round_trip_unless_a_pooler_shares_the_session(memory, pooled):
    if connection.vendor != "postgresql":
        pytest.skip("only PostgreSQL's driver has a pipeline")
    connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"] = pooled
    try:
        with transaction.atomic(), along() as pk:
            assert bool(connection.connection.pgconn.pipeline_status) is not pooled
        assert connection.connection.pgconn.pipeline_status == 0
    finally:
        connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"] = False
    assert OutboxMessage.objects.get().pk == pk
