"""`verify --flow buffer`: quiet on a healthy buffer, and names each row that somebody changed by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.core.management import call_command
from django.db.models import F

from buffer.events import levers
from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flow import Aggregator
from buffer.flush.claim import claim
from buffer.flush.flusher import Flusher
from buffer.ingest.rebuild import UNDER_WAY, _start_over
from buffer.partitioned import sweep_batches
from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import Refused
from outbox.bookkeeping.models import FlowCounter, Watermark
from outbox.letters.levers import pull
from outbox.letters.models import BurialKey, DeadLetter
from tests.conftest import order

pytestmark = pytest.mark.django_db
ME = Operator("tester")
FAR = datetime(2099, 1, 1, tzinfo=UTC)


def broken() -> list[str]:
    flow = Aggregator()
    return [check.name for check in [*flow.verify(), *flow.verify_payloads()] if not check.ok]


def send(flusher: Flusher) -> None:
    Bucket.objects.filter(open_count__gt=0, held=False).update(urged="manual", due_at=database_now())
    flusher.tick()


@pytest.fixture
def busy(ingest, records, stream, producer):
    """Sent, claimed, parked and discarded batches, buckets that wait and one that is held."""
    flusher = Flusher([stream], producer)
    ingest(records(order("A1", "SENT"), order("A2", "SENT-2"), b"poison"))
    send(flusher)
    for location in ("PARKED", "DISCARDED"):
        ingest(records(order(f"order at {location}", location)))
        producer.outcomes = [Refused("too large")]
        send(flusher)
    pull("discard", [DeadLetter.objects.get(business_key=batch_at("DISCARDED").get().pk).pk], ME, "test data")
    ingest(records(order("A5", "CLAIMED")))
    Bucket.objects.filter(location_id="CLAIMED").update(urged="manual", due_at=database_now())
    claim(stream)
    ingest(records(order("A6", "HELD"), order("A7", "WAITS")))
    levers.hold([Bucket.objects.get(location_id="HELD").pk], ME, "stocktake")
    assert dict(Batch.objects.values_list("location_id", "status")) == {
        "SENT": "sent", "SENT-2": "sent", "PARKED": "parked", "DISCARDED": "discarded", "CLAIMED": "claimed",
    }  # fmt: skip


def batch_at(location):
    return Batch.objects.filter(location_id=location)


def waits():
    return Bucket.objects.filter(location_id="WAITS")


STRUCTURE = "every sent batch, and no other, knows where it went"
COUNTED = "batches sent = sent batches + swept by retention"
BY_HAND = {
    "a watermark deleted": (
        lambda: Watermark.objects.all().delete(), "every partition that was read has its watermark"),
    "a filled bucket neither held nor due": (
        lambda: waits().update(due_at=None), "every filled bucket is held or due"),
    "a held bucket set free without a time": (
        lambda: Bucket.objects.filter(location_id="HELD").update(held=False), "every filled bucket is held or due"),
    "a filled bucket due in 2099": (
        lambda: waits().update(due_at=FAR), "every filled bucket is held or due"),
    "a sent batch set back to claimed": (
        lambda: batch_at("SENT").update(status="claimed"), STRUCTURE),
    "a sent batch made as if it had never been sent": (
        lambda: batch_at("SENT").update(status="claimed", sent_at=None, output_partition=None, output_offset=None),
        COUNTED),
    "a claimed batch called sent": (
        lambda: batch_at("CLAIMED").update(status="sent", output_partition=0, output_offset=99), STRUCTURE),
    "a claimed batch called sent, with a time": (
        lambda: batch_at("CLAIMED").update(
            status="sent", output_partition=0, output_offset=99, sent_at=database_now(), lease_token=None), COUNTED),
    "a sent batch without its place": (
        lambda: batch_at("SENT").update(output_offset=None), STRUCTURE),
    "a claimed batch discarded": (
        lambda: batch_at("CLAIMED").update(status="discarded"), "no batch is refused or discarded without a letter"),
    "a parked batch discarded": (
        lambda: batch_at("PARKED").update(status="discarded"), "a batch is discarded with its orders"),
    "a claimed batch parked": (
        lambda: batch_at("CLAIMED").update(status="parked"), "no batch is refused or discarded without a letter"),
    "a parked batch set back without its letter": (
        lambda: batch_at("PARKED").update(status="claimed"), "no batch waits whose letter is open"),
    "a sent batch deleted": (
        lambda: batch_at("SENT").delete(), COUNTED),
    "the frozen payload of a batch altered": (
        lambda: batch_at("SENT").update(payload="{}"), "every batch has the bytes that were frozen"),
    "the frozen headers of a batch altered": (
        lambda: batch_at("SENT").update(headers={"positions": "[]"}), "every batch has the bytes that were frozen"),
    "the payload of an order altered": (
        lambda: BufferedEvent.objects.filter(order_id="A7").update(payload="{}"),
        "every order has the payload that was taken"),
    "the burial key of a refused batch deleted": (
        lambda: BurialKey.objects.filter(topic_id=str(batch_at("PARKED").get().pk)).delete(),
        "no batch is refused or discarded without a letter"),
}  # fmt: skip


@pytest.mark.parametrize("change", BY_HAND)
def test_what_was_changed_by_hand_is_found(busy, change):
    assert broken() == []
    by_hand, name = BY_HAND[change]
    by_hand()
    assert name in [found.partition(": ")[2] for found in broken()]


def test_the_row_is_named(busy):
    batch_at("SENT").update(payload="{}")
    BufferedEvent.objects.filter(order_id="A7").update(payload="{}")
    rows = [row for check in Aggregator().verify_payloads() for row in check.rows]
    assert rows == [{"order": "A7", "location": "WAITS"}, {"batch": str(batch_at("SENT").get().pk)}]


def test_a_batch_from_before_the_digest_is_left_out(busy):
    batch_at("SENT").update(payload="{}", content_hash="")
    assert broken() == []


def test_a_bucket_waits_while_a_rebuild_is_under_way(busy):
    waits().update(due_at=None)
    FlowCounter.objects.create(flow="transfer-requests", scope="rebuild", name="rebuild", value=1)
    assert broken() == []


def test_batches_that_retention_deleted_are_still_counted(busy, settings):
    BufferedEvent.objects.filter(location_id__in=["SENT", "SENT-2", "DISCARDED"]).update(
        status="sent", batch_id="0" * 32
    )
    done = Batch.objects.filter(status__in=["sent", "discarded"])
    done.update(partition_key=F("partition_key") - 10_000)
    assert sweep_batches(database_now()) == 3
    assert not done.exists()
    assert broken() == []


def test_batches_that_a_rebuild_finds_are_no_surplus(busy, stream):
    BufferedEvent.objects.all().delete()
    FlowCounter.objects.create(flow=stream.name, scope=UNDER_WAY, name=UNDER_WAY, value=1)
    _start_over(stream)
    assert Batch.objects.sent().count() == 2
    assert not any(COUNTED in name for name in broken())


def test_the_command_reads_payloads_unless_told_not_to(busy, capsys):
    batch_at("SENT").update(payload="{}")
    call_command("verify", "--flow", "buffer", "--no-payloads")
    with pytest.raises(SystemExit):
        call_command("verify", "--flow", "buffer")
    assert str(batch_at("SENT").get().pk) in capsys.readouterr().out


def test_an_old_bucket_is_looked_at_when_its_cap_says_so(busy):
    long_ago = database_now() - timedelta(days=3)
    waits().update(first_arrival=long_ago, cap_at=long_ago, due_at=long_ago)
    assert broken() == []


def test_a_bucket_may_wait_until_its_cap_after_the_idle_time_was_shortened(busy):
    now = database_now()
    waits().update(due_at=now + timedelta(hours=1), cap_at=now + timedelta(hours=2))
    assert broken() == []
