"""Lines about a letter name the order that the letter is about, so that one filter finds every line about an order."""

from __future__ import annotations

import pytest
from django.db import transaction
from django.test import TestCase

from buffer.flush.claim import claim
from buffer.flush.flusher import publish
from config.database.clock import database_now
from config.kafka import Refused
from outbox.letters import transitions
from outbox.letters.models import DeadLetter
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from outbox.replay_batches.run import _ids_of_items
from tests.buffer.flush.test_flusher import urge
from tests.buffer.ledger.conftest import cooked, paid, received, record, write
from tests.conftest import order
from tests.logged import lines

pytestmark = pytest.mark.django_db


def told(caplog) -> dict[str, dict[str, str]]:
    """`{event: {business key: order}}` of the lines about letters, after all that are open were given up."""
    with TestCase.captureOnCommitCallbacks(execute=True), transaction.atomic():
        transitions.discard(DeadLetter.objects.order_by("pk"), database_now())
    found: dict[str, dict[str, str]] = {"letters_opened": {}, "letters_moved": {}}
    for line in lines(caplog):
        if line["event"] in found:
            orders = line.get("order_id") or [""] * len(line["business_key"])
            found[line["event"]] |= zip(line["business_key"], orders, strict=True)
    return found


def of(item: DeadLetter) -> ReplayItem:
    return ReplayItem(letter=item.pk, source=item.source, step=item.step, business_key=item.business_key)


def test_a_letter_of_the_buffer_is_about_an_order_and_one_of_a_batch_about_none(
    ingest, records, stream, producer, caplog
):
    with caplog.at_level("INFO"), TestCase.captureOnCommitCallbacks(execute=True):
        ingest(records(order("A1", at="1999-01-01T00:00:00Z"), b'{"order_id": "A2"}', b"{", order("A3")))
        urge()
        found = claim(stream)
        producer.outcomes = [Refused("too large")]
        publish(found.batches, found.token, producer)
    orders = {"A1": "A1", "A2": "A2", "": "", str(found.batches[0].pk): ""}
    assert told(caplog) == {"letters_opened": orders, "letters_moved": orders}
    chunk = _ids_of_items(ReplayBatch(verb="requeue"), list(map(of, DeadLetter.objects.all()))).fields
    assert dict(zip(chunk["business_key"], chunk["order_id"], strict=True)) == orders


def test_a_letter_of_the_ledger_and_what_moved_are_about_a_sale_order_or_none(caplog, settings):
    settings.LEDGER_UNKNOWN_STOCK = "park"
    with caplog.at_level("INFO"), TestCase.captureOnCommitCallbacks(execute=True):
        write(record(paid("SO1", Z=1)), record(received("PO1", Z=1)), record(cooked("KT1", Z=1)))
        settings.LEDGER_UNKNOWN_STOCK = "create"
        write(record(paid("SO2", Y=1)), record(received("PO2", Y=1)))
    _parked, applied = (line for line in lines(caplog) if line["event"] == "effects_applied")
    assert dict(zip(applied["reference_id"], applied["order_id"], strict=True)) == {"SO2": "SO2", "PO2": ""}
    orders = {"SO1": "SO1", "PO1": "", "KT1": ""}
    assert told(caplog) == {"letters_opened": orders, "letters_moved": orders}
