"""Publishing: with the change or not at all, once a key, refused before anything is written."""

import time
import uuid

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from config.database.clock import database_now
from config.fields import smallest_uuid7, uuid7
from outbox.bookkeeping.models import FlowCounter
from outbox.messages import notify
from outbox.messages.publish import NONE_BEFORE, IdempotencyConflict, publish
from outbox.models import DeliveryAttempt, IdempotencyKey, OutboxMessage
from tests.outbox.race import race
from tests.outbox.scripted import Scripted, message, promise

pytestmark = pytest.mark.django_db
ALONE = pytest.mark.django_db(transaction=True)


@ALONE
def test_outside_a_transaction_it_is_refused(memory):
    with pytest.raises(RuntimeError, match="outside a transaction"):
        publish("order.paid", "order:1", {}, idempotency_key="k", channel="memory")


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
    "other",
    [{"payload": {"n": 2}}, {"aggregate": "order:2"}, {"event_type": "order.cancelled"}, {"channel": "other"}],
    ids=lambda other: next(iter(other)),
)
def test_a_known_key_for_something_else_is_a_conflict(install, other):
    install(Scripted(), Scripted(name="other"))
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
    in_an_hour = int((time.time() + 3600) * 1000)
    ids = [uuid.UUID(int=smallest_uuid7(in_an_hour).int | 5)]
    for _ in range(2):
        ids.append(promise(after=ids[-1]))
    assert ids == sorted(set(ids))
    assert all(pk.version == 7 for pk in ids)
    assert promise() > ids[-1]  # whoever does not know the one before is told
    assert promise(after=NONE_BEFORE) < ids[0]


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


def try_of(number, pk=None):
    """A row that names a message: here one of the outbox's own."""
    return DeliveryAttempt(
        pk=pk or uuid7(), channel="memory", number=number, lease_token=uuid7(), path="poll", worker="w",
        started_at=database_now(),
    )  # fmt: skip


def along(row, key="k"):
    """`publish` with a row, as `promise` calls it without."""
    return publish("order.paid", "order:1", {"n": 1}, idempotency_key=key, channel="memory", row=row)


def test_a_row_written_along_names_the_message(memory):
    row = try_of(7)
    with transaction.atomic():
        pk = along(row)
    assert OutboxMessage.objects.get().pk == pk == row.message_id
    stored = DeliveryAttempt.objects.get()
    names = [field.attname for field in DeliveryAttempt._meta.concrete_fields]
    assert {name: getattr(stored, name) for name in names} == {name: getattr(row, name) for name in names}


def test_a_row_that_cannot_name_a_message_is_refused(memory):
    with pytest.raises(ValueError, match="FlowCounter has no field message_id"):
        along(FlowCounter(flow="f", scope="", name="n", value=0))
    assert not IdempotencyKey.objects.exists()


@ALONE
@pytest.mark.parametrize("payload", [{"n": 1}, {"n": 2}])
def test_a_key_that_was_used_takes_no_row(memory, payload):
    promise(key="k", payload=payload)
    with transaction.atomic():
        with pytest.raises(IdempotencyConflict, match="'k'"):
            along(try_of(1))
        assert not DeliveryAttempt.objects.exists()
        along(try_of(2), key="another")
    assert OutboxMessage.objects.count() == 2
    assert DeliveryAttempt.objects.get().number == 2


@ALONE
def test_what_the_database_refuses_is_the_same_error_as_ever(memory):
    row = try_of(1)
    with transaction.atomic():
        along(row)
    with pytest.raises(IntegrityError), transaction.atomic():
        along(try_of(2, pk=row.pk), key="another")
    assert DeliveryAttempt.objects.get().number == 1
    assert IdempotencyKey.objects.get().key == "k"
    assert OutboxMessage.objects.count() == 1


@ALONE
def test_a_change_that_is_rolled_back_leaves_neither_message_nor_row(memory):
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        along(try_of(1))
        raise ZeroDivisionError
    for model in (OutboxMessage, IdempotencyKey, DeliveryAttempt):
        assert not model.objects.exists()
    assert promise() == OutboxMessage.objects.get().pk  # the session is as good as before


def test_more_messages_beside_one_with_a_row(memory):
    with transaction.atomic():
        first = along(try_of(1), key="k1")
        second = promise(key="k2")
        assert promise(key="k2") == second
        assert promise(key="k1", payload={"n": 1}) == first
    assert OutboxMessage.objects.count() == 2


@pytest.mark.parametrize("pooled", [False, True])
def test_also_behind_a_pooler_that_shares_sessions(memory, pooled):
    connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"] = pooled
    try:
        with transaction.atomic():
            pk = along(try_of(1))
    finally:
        connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"] = False
    assert OutboxMessage.objects.get().pk == DeliveryAttempt.objects.get().message_id == pk


@ALONE
def test_two_that_publish_one_key_with_a_row_write_one_row(memory):
    def attempt(number):
        try:
            with transaction.atomic():
                return along(try_of(number))
        except IdempotencyConflict:
            return "conflict"

    found = race(lambda: attempt(1), lambda: attempt(2))
    assert found.count("conflict") == 1
    assert OutboxMessage.objects.get().pk == DeliveryAttempt.objects.get().message_id


@ALONE
def test_a_commit_tells_relays_of_what_was_written_along(memory, monkeypatch):
    told = []
    monkeypatch.setattr(notify, "notify_relays", lambda: told.append(1))
    with transaction.atomic():
        along(try_of(1))
        assert not told
    assert told == [1]


def test_a_row_takes_no_round_trip(memory):
    def statements(key, row=None):
        with transaction.atomic(), CaptureQueriesContext(connection) as asked:
            along(row, key)
        return len(asked)

    statements("the first one asks the clock")
    one_by_one = 1 if connection.vendor == "sqlite" else 0
    assert statements("with", try_of(1)) == statements("without") + one_by_one
