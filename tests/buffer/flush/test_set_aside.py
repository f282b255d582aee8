"""An order that no batch can hold stops no other: it becomes a letter, and comes back from it."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from django.db import OperationalError, transaction

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush import claim as claiming
from buffer.flush.claim import claim
from buffer.flush.flusher import Flusher
from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.bookkeeping import counters
from outbox.letters import redelivery
from outbox.letters.edits import requeue_copy
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from outbox.letters.verify import every_letter_was_counted, letters_are_as_they_came, what_failed_again_is_linked
from tests.buffer.flush.test_flusher import urge
from tests.conftest import order
from tests.refusing import refusing

pytestmark = pytest.mark.django_db(transaction=True)
STREAM = "transfer-requests"
ME = Operator("test")
POISON = {"no-such-sku": 1}


@pytest.fixture(autouse=True)
def _letters_add_up(everything_adds_up):
    yield
    letters = [every_letter_was_counted(), *letters_are_as_they_came(), what_failed_again_is_linked()]
    assert [check for check in letters if not check.ok] == []


@pytest.fixture
def refused():
    """Whatever batch says `no-such` cannot be stored."""
    with refusing(Batch, "payload", "no-such"):
        yield


@pytest.fixture
def flush(stream, producer):
    """Publish all that is due; returns the ids of the orders that left."""

    def run() -> list[str]:
        urge()
        before = len(producer.sent)
        Flusher([stream], producer).tick()
        Flusher([stream], producer).tick()
        return [name for value in producer.values[before:] for name in value["order_ids"]]

    return run


def states() -> dict[str, str]:
    return dict(BufferedEvent.objects.values_list("order_id", "status"))


def give_back(*letters: DeadLetter) -> None:
    assert pull("requeue", [letter.pk for letter in letters], ME, "tried again").acted == len(letters)


def test_an_order_that_no_batch_can_hold_stops_neither_its_warehouse_nor_the_others(ingest, records, flush, refused):
    bad = (9, 10, 13, 17)
    orders = [order(f"A{n}", f"WH-{n % 4}", items=POISON if n in bad else {"S1": n + 1}) for n in range(40)]
    ingest(records(*orders))
    assert sorted(flush()) == sorted(f"A{n}" for n in range(40) if n not in bad)
    assert {name for name, state in states().items() if state == "discarded"} == {f"A{n}" for n in bad}
    letter = DeadLetter.objects.get(business_key="A9")
    assert (letter.step, letter.reason, letter.business_key) == ("cut", "database_refused", "A9")
    assert (letter.offset, bytes(letter.payload), bytes(letter.key)) == (9, orders[9], b"WH-1")
    assert "no-such-sku" not in letter.error + letter.traceback
    assert counters.totals(STREAM)["discarded"] == DeadLetter.objects.count() == 4
    assert Bucket.objects.filter(open_count__gt=0).count() == 0


def test_the_letter_has_the_trace_of_its_order(ingest, records, flush, refused):
    (plain, traced) = records(order("A1", items=POISON), order("A2", items=POISON))
    trace = uuid.uuid4().hex
    ingest([plain, replace(traced, headers=[("traceparent", f"00-{trace}-{'1' * 16}-01".encode())])])
    assert flush() == []
    assert dict(DeadLetter.objects.values_list("business_key", "trace_id")) == {"A1": None, "A2": trace}


def test_an_order_that_its_stream_cannot_sum_is_set_aside_alike(ingest, records, flush, stream, monkeypatch):
    summarise = stream.summarise

    def picky(payloads):
        texts = list(payloads)
        if any("no-such" in text for text in texts):
            raise KeyError("no-such-sku")
        return summarise(texts)

    monkeypatch.setattr(stream, "summarise", picky)
    ingest(records(order("A1"), order("A2", items=POISON), order("A3", "WH-2")))
    assert sorted(flush()) == ["A1", "A3"]
    letter = DeadLetter.objects.get()
    assert (letter.reason, letter.error_class, letter.business_key) == ("cannot_be_summed", "KeyError", "A2")


def test_orders_that_only_fail_together_leave_in_smaller_batches(ingest, records, flush, stream, monkeypatch):
    summarise = stream.summarise

    def small(payloads):
        texts = list(payloads)
        if len(texts) > 3:
            raise OverflowError("too many")
        return summarise(texts)

    monkeypatch.setattr(stream, "summarise", small)
    ingest(records(*[order(f"A{n}") for n in range(10)]))
    assert sorted(flush()) == sorted(f"A{n}" for n in range(10))
    assert not DeadLetter.objects.exists()


def test_a_fault_of_our_own_sets_no_order_aside(ingest, records, stream, monkeypatch):
    def broken(*_):
        raise AttributeError("a mistake in the code")

    monkeypatch.setattr(claiming, "_store_batches", broken)
    ingest(records(order("A1")))
    urge()
    with pytest.raises(AttributeError):
        claim(stream)
    assert states() == {"A1": "pending"}


def test_a_deadlock_on_the_way_sets_no_order_aside(ingest, records, stream, refused, monkeypatch):
    """The round is run again: it says nothing against the orders."""
    usual, calls = claiming._store_batches, []

    def deadlock(*given):
        calls.append(given)
        if len(calls) == 3:  # all, then the two of the bucket, then the first of them alone
            raise OperationalError(1213, "Deadlock found")
        return usual(*given)

    monkeypatch.setattr(claiming, "_store_batches", deadlock)
    ingest(records(order("A1"), order("A2", items=POISON)))
    urge()
    with pytest.raises(OperationalError, match="Deadlock"):
        claim(stream)
    assert states() == {"A1": "pending", "A2": "pending"}


def test_its_letter_gives_it_back_when_the_database_takes_it(ingest, records, flush):
    with refusing(Batch, "payload", "no-such"):
        ingest(records(order("A1", items=POISON)))
        assert flush() == []
    letter = DeadLetter.objects.get()
    give_back(letter)
    assert states() == {"A1": "pending"}
    assert flush() == ["A1"]
    redelivery.look_after(database_now())
    letter.refresh_from_db()
    assert letter.status == "resolved"


def test_refused_again_it_is_the_letter_of_the_next_revision(ingest, records, flush, refused):
    ingest(records(order("A1", items=POISON)))
    flush()
    for _ in range(2):
        give_back(DeadLetter.objects.get(status="open"))
        assert flush() == []
        redelivery.look_after(database_now())
    letters = list(DeadLetter.objects.order_by("revision").values_list("revision", "status"))
    assert letters == [(0, "failed_again"), (1, "failed_again"), (2, "open")]


def test_an_edited_copy_of_it_is_sent(ingest, records, flush, refused):
    ingest(records(order("A1", items=POISON)))
    flush()
    letter = DeadLetter.objects.get()
    requeue_copy(letter.pk, order("A1", items={"S7": 3}).decode(), 0, ME, "the article has another name")
    assert flush() == ["A1"]
    assert "S7" in Batch.objects.get().payload


def test_a_newer_version_of_it_is_late_and_opens_it_again(ingest, records, flush, refused):
    ingest(records(order("A1", items=POISON)))
    flush()
    ingest(records(order("A1", items={"S1": 2})))
    cut, late = DeadLetter.objects.order_by("offset")
    give_back(late)
    give_back(cut)  # has nothing more to say
    assert flush() == ["A1"]
    assert '"quantity":2' in Batch.objects.get().payload


def test_a_late_order_that_is_opened_again_and_cannot_be_cut_fails_again(ingest, records, flush, refused):
    ingest(records(order("A1", items=POISON)))
    flush()
    ingest(records(order("A1", items={"no-such-sku": 2})))
    late = DeadLetter.objects.get(step="late")
    give_back(late)
    assert flush() == []
    redelivery.look_after(database_now())
    late.refresh_from_db()
    assert late.status == "failed_again"
    assert DeadLetter.objects.get(pk=late.successor).step == "cut"


def test_what_the_producer_took_back_meanwhile_is_not_sent_when_it_comes_back(ingest, records, flush):
    with refusing(Batch, "payload", "no-such"):
        ingest(records(order("A1", items=POISON)))
        flush()
        ingest(records(order("A1", items={"S1": 2})))
        ingest(records(order("A1", items=POISON)))
    cut, late = DeadLetter.objects.order_by("offset")
    give_back(cut)
    give_back(late)
    assert flush() == ["A1"]
    assert "no-such-sku" in Batch.objects.get().payload


def test_an_order_that_changes_before_it_is_set_aside_is_left_alone(ingest, records, stream, refused, monkeypatch):
    ingest(records(order("A1", items=POISON)))
    aside = claiming.set_aside

    def meanwhile(*given):
        ingest(records(order("A1", items={"S1": 1})))
        return aside(*given)

    monkeypatch.setattr(claiming, "set_aside", meanwhile)
    urge()
    assert claim(stream).batches == []
    assert states() == {"A1": "pending"}
    assert not DeadLetter.objects.exists()
    assert len(claim(stream).batches) == 1


def test_the_bucket_of_an_order_that_was_set_aside_counts_one_less(ingest, records, stream):
    """Also where the flusher dies before it looks at the bucket again, which would count it anew."""
    ingest(records(order("A1", items=POISON), order("A2")))
    candidate = claiming.Candidate._make(Bucket.objects.values_list(*claiming.Candidate._fields).get())
    with transaction.atomic():
        poison, _good = claiming._open_events(stream, [candidate])["WH-1"]
    assert claiming.set_aside(stream, candidate.id, poison, ValueError("no such SKU"))
    assert Bucket.objects.get().open_count == 1


def test_the_page_of_the_order_leads_to_the_letter(ingest, records, flush, refused, admin_client):
    ingest(records(order("A1", items=POISON)))
    flush()
    pages = [f"/admin/buffer/bufferedevent/{BufferedEvent.objects.get().pk}/change/"]
    pages += [f"/admin/outbox/deadletter/{DeadLetter.objects.get().pk}/change/"]
    order_page, letter_page = (admin_client.get(page, follow=True).content.decode() for page in pages)
    assert "no batch can hold it" in order_page
    assert pages[1] in order_page
    assert "The order goes into the next batch." in letter_page
    give_back(DeadLetter.objects.get())
    assert "no batch can hold it" not in admin_client.get(pages[0], follow=True).content.decode()
