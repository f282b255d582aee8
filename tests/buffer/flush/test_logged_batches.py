"""Each state that an order and its batch come to is a line of the log, once it is committed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest

from buffer.events.levers import withdraw
from buffer.events.models import Batch, BufferedEvent
from buffer.flush.claim import claim
from buffer.flush.flusher import lease_unsent, publish
from buffer.flush.freeze import LeasedBatch, ids_of_batches, orders_in
from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import Failed, Refused, Sent
from outbox.bookkeeping import counters
from outbox.bookkeeping.leases import recover
from outbox.letters import transitions
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from tests.buffer.flush.test_flusher import urge
from tests.conftest import order
from tests.logged import lines

pytestmark = pytest.mark.django_db
ADA = Operator("ada")


@pytest.fixture
def told(caplog, django_capture_on_commit_callbacks):
    """The lines of an act by their event."""

    def run(act, *arguments, **more) -> dict[str, dict]:
        caplog.clear()
        with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
            act(*arguments, **more)
        return {line["event"]: line for line in lines(caplog)}

    return run


def test_of_two_versions_in_one_batch_the_line_names_the_one_that_is_stored(ingest, records, told):
    """They lie in two partitions, of which the older one was read last: the newer timestamp wins."""
    trace = "8" * 32
    (newer,) = records(order("A1"), partition=1, timestamp=2)
    headers = [("correlation_id", b"c-newer"), ("traceparent", f"00-{trace}-{'1' * 16}-01".encode())]
    line = told(ingest, [replace(newer, headers=headers), *records(order("A1"), timestamp=1)])["orders_stored"]
    assert BufferedEvent.objects.get().trace_id == trace
    assert (line["correlation_id"], line["trace_id"]) == (["c-newer"], [trace])


def test_the_life_of_an_order_is_told(ingest, records, stream, producer, told):
    stored = told(ingest, records(order("A1"), order("A2"), order("A2"), b"{"))
    assert set(stored) == {"orders_stored", "letters_opened", "groups_moved"}
    line = stored["orders_stored"]
    assert (sorted(line["order_id"]), line["orders"], line["records"]) == (["A1", "A2"], 2, 4)
    assert line["outcomes"] == {"accepted": 2, "superseded": 1, "parked": 1}

    second = BufferedEvent.objects.get(order_id="A2")
    assert told(withdraw, [second.pk], ADA, "wrong")["orders_withdrawn"]["order_id"] == ["A2"]
    urge()
    cut = told(claim, stream)["batches_cut"]
    batch = Batch.objects.get()
    assert (cut["order_id"], cut["batch_id"], cut["reasons"]) == (["A1"], [str(batch.pk)], {"manual": 1})
    orders = {"order_id": ["A1"], "of_batch": [str(batch.pk)], "batch_id": [str(batch.pk)], "more": 0}
    assert cut.items() >= orders.items()

    Batch.objects.update(lease_token=None, lease_until=None)
    for answer, events in (
        (Failed("away"), {"publish_failed"}), (Refused("too large"), {"batches_parked", "letters_opened", "groups_moved"}),
    ):  # fmt: skip
        token, batches = lease_unsent([stream])
        producer.outcomes = [answer]
        said = told(publish, batches, token, producer)
        assert set(said) == events
        assert said[min(events)].items() >= orders.items()
        Batch.objects.update(lease_until=None)
    letters = list(DeadLetter.objects.filter(step="publish").values_list("pk", flat=True))
    freed = told(pull, "requeue", letters, ADA, "limit raised")
    assert set(freed) == {"batches_freed", "letters_moved", "action_recorded"}
    leased = told(lease_unsent, [stream])
    assert set(leased) == {"batches_leased"}
    for line in (freed["batches_freed"], leased["batches_leased"]):
        assert line.items() >= orders.items()
    Batch.objects.update(lease_token=None, lease_until=None)
    token, batches = lease_unsent([stream])
    sent = told(publish, batches, token, producer)["batches_sent"]
    assert (sent["location_id"], sent["events"]) == (["WH-1"], 1)
    assert sent.items() >= orders.items()


def test_batches_that_the_broker_refuses_are_one_line_and_each_has_its_letter(ingest, records, stream, producer, told):
    ingest(records(*(order(f"A{number}", f"WH-{number}") for number in range(4))))
    urge()
    told(claim, stream)
    errors = {"WH-0": "too large", "WH-2": "too old", "WH-3": "too large"}
    for revision in (0, 1):
        Batch.objects.update(lease_token=None, lease_until=None)
        token, batches = lease_unsent([stream])
        places = [batch.location_id for batch in batches]
        producer.outcomes = [Refused(errors[place]) if place in errors else Sent(0, 7) for place in places]
        line = told(publish, batches, token, producer)["batches_parked"]
        parked = {str(batch.pk): errors[batch.location_id] for batch in batches if batch.location_id in errors}
        assert (line["batches"], line["batch_id"], line["error"]) == (3, list(parked), next(iter(parked.values())))
        letters = DeadLetter.objects.filter(revision=revision)
        assert dict(letters.values_list("business_key", "error")) == parked
        assert {str(batch.pk): batch.error for batch in Batch.objects.parked()} == parked
        Batch.objects.parked().update(status="claimed")
    first = dict(DeadLetter.objects.filter(revision=0).values_list("business_key", "pk"))
    assert dict(DeadLetter.objects.filter(revision=1).values_list("business_key", "predecessor")) == first


def test_what_a_transaction_does_to_many_refused_batches_is_one_line(
    ingest, records, stream, producer, caplog, django_capture_on_commit_callbacks
):
    """One that is not parked any more, or of which an order went another way, is refused, and spares the others."""
    ingest(records(*(order(f"A{number}", f"WH-{number % 4}") for number in range(12))))
    urge()
    round_ = claim(stream)
    producer.outcomes = [Refused("too large")] * 4
    publish(round_.batches, round_.token, producer)
    letters = list(DeadLetter.objects.order_by("pk"))
    gone = Batch.objects.get(pk=letters[0].business_key)
    Batch.objects.filter(pk=gone.pk).update(status="claimed")
    by_batch = {str(batch.pk): batch.location_id for batch in Batch.objects.exclude(pk=gone.pk)}

    def act(verb):
        caplog.clear()
        with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
            effects = list(verb(letters, database_now()).values())
        said = lines(caplog)
        assert len(said) == len({line["event"] for line in said})
        return effects, {line["event"]: line for line in said}

    effects, said = act(transitions.discard)
    assert [effect.state for effect in effects] == ["refused", *["discarded"] * 3]
    assert effects[1].evidence == "the batch and its 3 orders are discarded"
    assert set(Batch.objects.filter(pk__in=by_batch).values_list("status", flat=True)) == {"discarded"}
    line = said["batches_discarded"]
    assert (line["batches"], line["orders"], line["more"]) == (3, 9, 0)
    assert dict(zip(line["batch_id"], line["location_id"], strict=True)) == by_batch
    assert {order_id: by_batch[batch] for order_id, batch in zip(line["order_id"], line["of_batch"], strict=True)} == {
        f"A{number}": f"WH-{number % 4}" for number in range(12) if f"WH-{number % 4}" != gone.location_id
    }  # fmt: skip
    assert said["letters_moved"]["letters"] == 3
    assert counters.totals(stream.name)["discarded"] == 9

    BufferedEvent.objects.filter(order_id=line["order_id"][0]).update(status="pending")
    by_batch.pop(line["of_batch"][0])
    effects, said = act(transitions.restore)
    line = said["batches_restored"]
    assert sorted(line["batch_id"]) == sorted(by_batch)
    assert (line["batches"], line["orders"], len(line["order_id"])) == (2, 6, 6)
    assert sorted(effect.state for effect in effects) == ["refused", "waiting", "waiting"]
    assert "1 of its 3 orders were opened again" in str(effects)
    assert counters.totals(stream.name)["discarded"] == 3
    assert set(Batch.objects.filter(pk__in=by_batch).values_list("status", flat=True)) == {"parked"}


def test_buckets_that_said_more_than_waits_are_one_line(ingest, records, stream, told):
    ingest(records(*(order(f"A{number}", f"WH-{number}") for number in range(3))))
    urge()
    BufferedEvent.objects.exclude(order_id="A0").update(status="discarded")
    said = told(claim, stream)
    assert set(said) == {"batches_cut", "buckets_recounted"}
    line = said["buckets_recounted"]
    assert (line["stream"], line["buckets"]) == (stream.name, 2)
    assert sorted(zip(line["location_id"], line["left"], strict=True)) == [("WH-1", "0"), ("WH-2", "0")]


def test_a_line_reads_the_messages_of_no_more_batches_than_it_names_orders_of():
    message = f'{{"batch_id": "{uuid4()}", "location_id": "WH-1", "order_ids": ["A", "B"]}}'
    batches = [LeasedBatch(uuid4(), "transfer-requests", "WH-1", message, {}, 2) for _ in range(60)]
    pairs = orders_in((batch.pk, batch.stream, batch.payload) for batch in batches)
    assert next(pairs) == ("A", batches[0].pk)
    fields = ids_of_batches(batches, 120).fields
    assert fields["order_id"] == ["A", "B"] * 50
    assert fields["of_batch"] == [str(batch.pk) for batch in batches[:50] for _ in "AB"]
    assert fields["more"] == 20


@pytest.mark.parametrize("message", ["", "{", b'{"order_ids": ["A", "\xff"]}', "{}", "[]", '{"order_ids": [7]}'])
def test_a_message_that_says_nothing_of_its_orders_spoils_no_line(message):
    assert list(orders_in([(uuid4(), "transfer-requests", message)])) == []


def test_batches_that_are_recovered_or_lost_are_named(ingest, records, stream, producer, told):
    ingest(records(order("A1")))
    urge()
    found = claim(stream)
    pk = str(found.batches[0].pk)
    Batch.objects.update(lease_until=database_now() - timedelta(seconds=1))
    line = told(recover, Batch, database_now())["claims_recovered"]
    assert (line["table"], line["rows"], line["row_id"]) == ("buffer_batch", 1, [pk])
    line = told(publish, found.batches, found.token, producer)["fence_lost"]
    assert (line["table"], line["lost"], line["row_id"]) == ("buffer_batch", 1, [pk])
    assert told(recover, Batch, database_now()) == {}
