"""The CDC path: hints are claimed, everything else is skipped or parked, and nothing is sent twice."""

import json
import threading
import uuid
from datetime import timedelta

import pytest
from django.db import OperationalError, connection, transaction

from config.database.clock import database_now
from config.fields import uuid7, uuid7_milliseconds
from config.kafka import RecordBatch, Replayed
from config.telemetry import metrics
from outbox.channels.permits import ensure
from outbox.delivery.claim import claim
from outbox.letters.models import DeadLetter
from outbox.models import ChannelState, DeliveryAttempt, OutboxMessage
from outbox.workers.listen import DeliveryThread, Listen
from tests.crash.wire import wait_for
from tests.lost_sessions import lost_answer
from tests.outbox.race import race
from tests.outbox.scripted import TRANSIENT, Scripted, message, promise, states

pytestmark = pytest.mark.django_db(transaction=True)
TOPIC = "outbox.outbox_message"


def hint(pk: uuid.UUID) -> bytes:
    return json.dumps({"op": "c", "after": {"id": str(pk), "event_type": "order.paid", "created_at": None}}).encode()


def batch(*values: bytes | None, at: int = 1000) -> RecordBatch:
    records = [Replayed(TOPIC, 0, offset, at, None, value) for offset, value in enumerate(values)]
    return RecordBatch(records, {TOPIC: "t"})


@pytest.fixture
def listen(install):
    """A listener on a handler; `hear` stores a batch as the consumer's writer does."""
    made = []

    def start(handler=None):
        memory = install(handler or Scripted())
        made.append(Listen(threading.Event()))
        made[0].memory = memory
        return made[0]

    yield start
    for one in made:
        one.close()


def hear(listener, found: RecordBatch) -> None:
    found.prepared = listener.prepare(found)
    with transaction.atomic():
        listener.write(found, database_now())


def finish(listener) -> None:
    for thread in listener.threads:
        thread.close()
    listener.threads = []


def heard(listener, *values: bytes | None) -> list[uuid.UUID]:
    """Hear one batch and deliver what it brought; what the channel has accepted by then."""
    hear(listener, batch(*values))
    finish(listener)
    return listener.memory.accepted


def test_what_is_hinted_at_is_delivered(listen):
    heard(listen(), *[hint(promise(f"order:{n}")) for n in range(4)])
    assert states() == {"sent": 4}
    assert set(DeliveryAttempt.objects.values_list("path", flat=True)) == {"cdc"}


def test_the_legs_of_what_was_hinted_at_add_up(listen):
    def times() -> list[float]:
        legs = [metrics.CDC_LEG_SECONDS.labels(leg)._sum.get() for leg in ("record", "claim", "try", "settle")]
        return [*legs, metrics.COMMIT_TO_SEND._sum.get()]

    listener, pk = listen(), promise()
    written = database_now() - timedelta(seconds=30)
    OutboxMessage.objects.update(created_at=written)
    recorded = int(written.timestamp() * 1000) + 2000
    before = times()
    hear(listener, batch(hint(pk), at=recorded))
    finish(listener)
    record, claimed, tried, settled, whole = (after - old for after, old in zip(times(), before, strict=True))
    assert record == pytest.approx(2.0, abs=0.001)
    assert claimed >= 28
    assert record + claimed + tried + settled == pytest.approx(whole)


def test_hints_that_come_again_find_nothing(listen):
    listener, pk = listen(), promise()
    for _ in range(2):
        hear(listener, batch(hint(pk), hint(pk)))
    assert heard(listener, hint(pk)) == [pk]


def test_a_hint_at_nothing_and_what_is_no_insert_are_skipped(listen):
    listener = listen()
    update = json.dumps({"op": "u", "after": {"id": str(uuid7()), "event_type": "e"}}).encode()
    hear(listener, batch(hint(uuid7()), update, None))
    assert not DeadLetter.objects.exists()


def test_what_cannot_be_read_is_parked_and_holds_nothing_up(listen):
    listener, pk = listen(), promise()
    assert heard(listener, b"{", hint(pk)) == [pk]
    letter = DeadLetter.objects.get()
    assert (letter.source, letter.step, letter.reason, letter.topic) == ("outbox", "decode", "invalid_json", TOPIC)


@pytest.mark.parametrize("acknowledges", ["each", "batch"])
def test_a_rolled_back_batch_delivers_nothing(listen, acknowledges):
    """Also of a channel that opens no attempts, which would find out that the claim is none."""
    listener, pk = listen(Scripted(acknowledges=acknowledges)), promise()
    found = batch(hint(pk))
    found.prepared = listener.prepare(found)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        listener.write(found, database_now())
        raise ZeroDivisionError
    finish(listener)
    assert not listener.memory.accepted
    assert message(pk).state == "pending"


def test_a_failure_lives_in_the_row(listen):
    listener, pk = listen(), promise()
    listener.memory.answers = [TRANSIENT]
    heard(listener, hint(pk))
    assert (message(pk).state, message(pk).attempts) == ("pending", 1)
    assert not DeadLetter.objects.exists()


@pytest.mark.parametrize("batches", [[5], [2, 3]])
def test_what_there_is_no_room_for_is_left_to_the_poller(listen, settings, batches):
    settings.OUTBOX_BATCH = 3
    listener, hold = listen(), threading.Event()
    listener.memory.before = lambda messages: hold.wait(20)
    hints = [hint(promise(f"order:{n}")) for n in range(5)]
    for number in batches:
        hear(listener, batch(*hints[:number]))
        del hints[:number]
    assert listener.pressure()
    assert states() == {"processing": 3, "pending": 2}
    hold.set()
    finish(listener)
    assert states() == {"sent": 3, "pending": 2}


def test_nothing_is_claimed_that_no_hint_names(listen):
    listener, _other, hinted = listen(), promise("order:1"), promise("order:2")
    assert heard(listener, hint(hinted)) == [hinted]


def test_how_far_cdc_has_come_is_stored_beside_the_claims(listen):
    """Each claim would wait for the others at the channels' rows."""
    listener = listen()
    pks = [promise(f"order:{n}") for n in range(3)]
    hear(listener, batch(*map(hint, [pks[2], pks[0]])))
    hear(listener, batch(hint(pks[1])))
    assert ChannelState.objects.get().cdc_seen_at is None
    listener.each_second(database_now())
    assert int(ChannelState.objects.get().cdc_seen_at.timestamp() * 1000) == uuid7_milliseconds(pks[2])


def test_a_claim_of_hints_locks_no_channel(listen):
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    listener = listen()
    ensure(["memory"])
    found = batch(hint(promise()))
    found.prepared = listener.prepare(found)
    with transaction.atomic():
        listener.write(found, database_now())
        race(lambda: ChannelState.objects.update(updated_at=database_now()))


def test_a_listener_that_ends_stores_how_far_cdc_has_come(listen):
    listener, pk = listen(), promise()
    hear(listener, batch(hint(pk)))
    listener.close()
    assert ChannelState.objects.get().cdc_seen_at is not None


def test_a_listener_claims_at_once_what_came_while_it_claimed():
    """In one batch: a mail must not wait for three transactions."""
    assert Listen.gathers


def test_a_listener_that_has_heard_nothing_says_nothing(listen):
    listener = listen()
    ensure(["memory"])
    listener.each_second(database_now())
    assert ChannelState.objects.get().cdc_seen_at is None


def test_a_listener_told_to_stop_gives_back_what_is_in_hand(install):
    memory = install(Scripted())
    stop = threading.Event()
    thread = DeliveryThread(memory, stop)
    pks = [promise(f"order:{n}") for n in range(3)]
    memory.before = lambda messages: stop.set()
    thread.submit(claim(memory, "cdc", 10, ids=pks))
    thread.close()
    assert states() == {"sent": 1, "pending": 2}


def test_two_listeners_and_a_poller_send_once(listen):
    listener, pks = listen(), [promise(f"order:{n}") for n in range(30)]
    race(lambda: hear(listener, batch(*map(hint, pks))), lambda: hear(listener, batch(*map(hint, reversed(pks)))))
    finish(listener)
    assert sorted(listener.memory.accepted) == sorted(pks)


@pytest.mark.parametrize("committed", [True, False])
def test_a_session_that_ends_at_the_batchs_commit_strands_nothing(listen, committed):
    """Whoever runs the batch again finds what its first commit has claimed."""
    listener, pk = listen(), promise()
    with lost_answer(committed=committed), pytest.raises(OperationalError):
        hear(listener, batch(hint(pk)))

    def claimed():
        hear(listener, batch(hint(pk)))
        return message(pk).lease_until or listener.memory.accepted

    wait_for(claimed, 30, "the session that is gone to let go of the message")
    finish(listener)
    assert (listener.memory.accepted, message(pk).attempts) == ([pk], 1)
