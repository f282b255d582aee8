"""Each state that an order and its batch come to is a line of the log, once it is committed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from buffer.events.levers import withdraw
from buffer.events.models import Batch, BufferedEvent
from buffer.flush.claim import claim
from buffer.flush.flusher import lease_unsent, publish
from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import Failed, Refused, Sent
from outbox.bookkeeping.leases import recover
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
    assert set(stored) == {"orders_stored", "letters_opened"}
    line = stored["orders_stored"]
    assert (sorted(line["order_id"]), line["orders"], line["records"]) == (["A1", "A2"], 2, 4)
    assert line["outcomes"] == {"accepted": 2, "superseded": 1, "parked": 1}

    second = BufferedEvent.objects.get(order_id="A2")
    assert told(withdraw, [second.pk], ADA, "wrong")["orders_withdrawn"]["order_id"] == ["A2"]
    urge()
    cut = told(claim, stream)["batches_cut"]
    batch = Batch.objects.get()
    assert (cut["order_id"], cut["batch_id"], cut["reasons"]) == (["A1"], [str(batch.pk)], {"manual": 1})

    Batch.objects.update(lease_token=None, lease_until=None)
    for answer, events in (
        (Failed("away"), {"publish_failed"}), (Refused("too large"), {"batches_parked", "letters_opened"}),
    ):  # fmt: skip
        token, batches = lease_unsent([stream])
        producer.outcomes = [answer]
        said = told(publish, batches, token, producer)
        assert set(said) == events
        Batch.objects.update(lease_until=None)
    letters = list(DeadLetter.objects.filter(step="publish").values_list("pk", flat=True))
    assert set(told(pull, "requeue", letters, ADA, "limit raised")) == {
        "batches_freed", "letters_moved", "action_recorded",
    }  # fmt: skip
    assert set(told(lease_unsent, [stream])) == {"batches_leased"}
    Batch.objects.update(lease_token=None, lease_until=None)
    token, batches = lease_unsent([stream])
    sent = told(publish, batches, token, producer)["batches_sent"]
    assert (sent["batch_id"], sent["location_id"], sent["events"]) == ([str(batch.pk)], ["WH-1"], 1)


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
