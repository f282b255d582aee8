"""The flush: claim, freeze, publish, settle, in every order in which things can go wrong."""

import uuid
from datetime import timedelta

import pytest

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush.claim import STORE, claim
from buffer.flush.flusher import Flusher, in_order, lease_unsent
from buffer.flush.freeze import content_hash
from config.admin.levers import Operator
from config.database.clock import database_now
from config.database.upsert import uuid_text
from config.kafka import Failed, Refused
from config.telemetry import metrics
from outbox.bookkeeping.models import Watermark
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from outbox.workers.start import recover_claims
from spillway_ext.testing import age as age
from tests.conftest import order
from tests.exported import exported

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("everything_adds_up")]
STREAM = "transfer-requests"


@pytest.fixture
def flusher(stream, producer):
    return Flusher([stream], producer)


def test_a_batch_is_counted_from_zero(stream, producer):
    metrics.PUBLISHED.clear()
    Flusher([stream], producer)
    assert exported(metrics.PUBLISHED) == dict.fromkeys([(STREAM, kind) for kind in ("sent", "failed", "refused")], 0)


def urge(**where) -> None:
    """Make buckets due now."""
    Bucket.objects.filter(**where).update(urged="manual", due_at=database_now() - timedelta(seconds=1))


def hear(**ago: float) -> None:
    """The consumer was caught up on partition 0 that long ago."""
    Watermark.objects.update_or_create(
        group="buffer-ingest", topic="transfer-requests", partition=0,
        defaults={"next_offset": 0, "caught_up_at": database_now() - timedelta(**ago), "updated_at": database_now()},
    )  # fmt: skip


def test_an_idle_bucket_becomes_one_message(ingest, records, flusher, producer):
    ingest(records(order("A1", items={"S1": 1, "S2": 5}), order("A2", items={"S1": 2}), order("A3", "WH-2")))
    age(minutes=5)
    hear(seconds=0)
    assert flusher.tick() == 2
    messages = {value["location_id"]: value for value in producer.values}
    assert messages["WH-1"]["order_ids"] == ["A1", "A2"]
    assert messages["WH-1"]["items"] == [{"sku": "S1", "quantity": 3}, {"sku": "S2", "quantity": 5}]
    assert {message.key for message in producer.sent} == {"WH-1", "WH-2"}
    assert set(BufferedEvent.objects.values_list("status", flat=True)) == {"sent"}
    batch = Batch.objects.get(location_id="WH-1")
    assert (batch.status, batch.reason, batch.event_count, batch.lease_token) == ("sent", "idle", 2, None)
    assert batch.output_offset is not None
    assert Bucket.objects.get(location_id="WH-1").due_at is None


def test_nothing_is_cut_before_it_is_due(ingest, records, flusher, producer):
    ingest(records(order()))
    hear(seconds=0)
    assert flusher.tick() == 0
    assert producer.sent == []


def test_silence_of_a_consumer_that_is_behind_cuts_nothing_until_the_cap(ingest, records, flusher, producer):
    ingest(records(order()))
    age(minutes=10)
    hear(minutes=8)
    assert flusher.tick() == 0
    bucket = Bucket.objects.get()
    assert database_now() < bucket.due_at <= bucket.cap_at  # put off, not asked again at once
    age(minutes=21)
    assert flusher.tick() == 1
    assert Batch.objects.get().reason == "cap"


def test_leftovers_of_a_big_bucket_leave_at_once(ingest, records, flusher, producer, stream, monkeypatch):
    monkeypatch.setattr(stream, "max_batch", 10)
    monkeypatch.setattr("buffer.flush.claim.EVENTS_A_ROUND", 20)
    ingest(records(*[order(f"A{n:02d}") for n in range(45)]))
    while flusher.tick():
        pass
    assert [len(value["order_ids"]) for value in producer.values] == [10, 10, 10, 10, 5]
    assert [name for value in producer.values for name in value["order_ids"]] == [f"A{n:02d}" for n in range(45)]
    assert list(Batch.objects.order_by("sequence").values_list("sequence", flat=True)) == [1, 2, 3, 4, 5]
    assert Bucket.objects.get().open_count == 0


def test_a_batch_stays_within_its_bytes(ingest, records, flusher, producer, stream, monkeypatch):
    monkeypatch.setattr(stream, "max_bytes", 6000)
    ingest(records(*[order(f"A{n}", pad="x" * 900) for n in range(10)]))
    urge()
    while flusher.tick():
        pass
    assert len(producer.sent) > 3
    assert all(message.size <= 6000 + 1024 for message in producer.sent)


def test_a_broker_that_is_away_loses_nothing_and_repeats_the_same_bytes(ingest, records, flusher, producer):
    ingest(records(order("A1"), order("A2", "WH-2")))
    urge()
    producer.outcomes = [Failed("away"), Failed("away")]
    assert flusher.tick() == 2
    assert flusher.broker_away
    frozen = dict(Batch.objects.values_list("batch_id", "payload"))
    urge()
    ingest(records(order("A3")))
    urge()
    assert flusher.tick() == 0  # nothing more is cut while the broker is away
    assert Batch.objects.count() == 2
    Batch.objects.update(lease_until=database_now() - timedelta(seconds=1))
    assert flusher.tick() > 0
    assert {message.value.decode() for message in producer.sent} >= set(frozen.values())
    assert Batch.objects.filter(batch_id__in=frozen, attempts=1, status="sent").count() == 2


def test_a_crash_after_the_claim_is_taken_over_with_the_same_bytes(ingest, records, stream, flusher, producer):
    ingest(records(order()))
    urge()
    (claimed,) = claim(stream).batches  # and the process dies here
    assert flusher.tick() == 0  # the lease still holds
    Batch.objects.update(lease_until=database_now() - timedelta(seconds=1))
    assert flusher.tick() == 1
    assert [message.value.decode() for message in producer.sent] == [claimed.payload]


def test_recovery_frees_what_a_dead_worker_held(ingest, records, stream):
    ingest(records(order()))
    urge()
    claim(stream)
    assert recover_claims()["buffer_batch"] == 0
    Batch.objects.update(lease_until=database_now() - timedelta(seconds=1))
    assert recover_claims()["buffer_batch"] == 1
    _, batches = lease_unsent([stream])
    assert len(batches) == 1


def test_a_batch_the_broker_refuses_is_a_letter_and_strands_nothing(ingest, records, flusher, producer):
    ingest(records(order("A1"), order("A2", "WH-2")))
    urge()
    producer.outcomes = [Refused("too large")]
    flusher.tick()
    parked = Batch.objects.parked().get()
    letter = DeadLetter.objects.get()
    assert (letter.reason, letter.business_key) == ("batch_refused", str(parked.pk))
    assert bytes(letter.payload).decode() == parked.payload
    assert (letter.trace_id, dict(letter.headers)["batch_id"]) == (parked.pk.hex, str(parked.pk))
    assert Batch.objects.sent().count() == 1
    ingest(records(order("A3", parked.location_id)))
    urge()
    assert flusher.tick() == 1  # the location goes on


def batch(location: str, sequence: int) -> Batch:
    return Batch(stream="s", location_id=location, sequence=sequence, claimed_at=database_now())


def test_two_flushers_do_not_overtake_each_other_at_one_warehouse():
    mine = [batch("WH-1", 2), batch("WH-1", 3), batch("WH-2", 1)]
    unsent = [("s", "WH-1", 1), ("s", "WH-1", 2), ("s", "WH-1", 3), ("s", "WH-2", 1), ("s", "WH-2", 2)]
    assert in_order(mine, unsent) == [mine[2]]
    assert in_order(mine, unsent[1:]) == mine


def test_a_bucket_whose_count_is_wrong_heals_itself(ingest, records, flusher, producer):
    ingest(records(order("A1")))
    BufferedEvent.objects.update(status="discarded")
    from outbox.bookkeeping import counters

    counters.add({(STREAM, "withdrawn", "open"): -1, (STREAM, "withdrawn", "discarded"): 1}, database_now())
    urge()
    assert flusher.tick() == 0
    assert Bucket.objects.get().open_count == 0


def test_above_the_high_water_mark_every_bucket_is_due(ingest, records, flusher, producer, settings):
    settings.BUFFER_HIGH_WATER = 2
    ingest(records(order("A1"), order("A2", "WH-2")))
    assert flusher.tick() == 2
    assert set(Batch.objects.values_list("reason", flat=True)) == {"pressure"}


def test_what_is_held_is_not_due_even_above_the_high_water_mark(ingest, records, flusher, settings):
    settings.BUFFER_HIGH_WATER = 1
    ingest(records(order("A1"), order("A2", "WH-2")))
    Bucket.objects.filter(location_id="WH-1").hold()
    assert flusher.tick() == 1
    assert Batch.objects.get().location_id == "WH-2"


def test_while_it_must_wait_nothing_is_cut_and_what_was_cut_leaves(ingest, records, stream, flusher, producer):
    """After a restore a batch that was refused before, and comes back, once stood still until ingestion had caught up."""
    ingest(records(order("A1")))
    urge()
    producer.outcomes = [Refused("too large")]
    flusher.tick()
    ingest(records(order("A2")))
    urge()
    pull("requeue", [DeadLetter.objects.get().pk], Operator("test"), "the limit is raised")
    waits = Flusher([stream], producer, must_wait=lambda: True)
    assert (waits.tick(), waits.tick(), waits.pause()) == (1, 0, 1.0)
    assert (Batch.objects.get().status, producer.values[-1]["order_ids"]) == ("sent", ["A1"])


def test_the_flusher_sleeps_until_the_next_bucket_is_due_at_most_a_second(ingest, records, flusher):
    assert flusher.pause() == 1.0
    ingest(records(order()))
    for due_in, least, most in [(-5, 0.02, 0.02), (0.5, 0.02, 0.5), (60, 1.0, 1.0)]:
        Bucket.objects.update(due_at=database_now() + timedelta(seconds=due_in))
        assert least <= flusher.pause() <= most


def test_long_payloads_of_any_letters_are_stored_as_they_are():
    long = ["x" * 900_000, "back\\slash" * 90_000, "it's" * 200_000, "ünï 🙂" * 90_000]
    rows = [
        (
            uuid_text(uuid.uuid4()),
            f"WH-{n}",
            n,
            "idle",
            202611,
            1,
            None,
            None,
            "[]",
            content_hash(payload, {}),
            "{}",
            "[]",
            payload,
        )
        for n, payload in enumerate(long)
    ]
    STORE.run(rows, {"stream": "long", "status": "sent", "attempts": 0, "error": "", "claimed_at": database_now()})
    stored = Batch.objects.of_streams(["long"]).order_by("sequence")
    assert list(stored.values_list("payload", flat=True)) == long
