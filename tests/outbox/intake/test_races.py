"""Workers that read the same promises at the same time, on whichever database runs this."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction

from outbox.intake.flow import MessagesIn
from tests.outbox.intake.conftest import MAIL, counted, envelope, outcomes, reasons, record, stored, write
from tests.outbox.race import PATIENCE, race

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_same_keys_in_two_partitions_are_stored_once():
    """In opposite orders: keys are locked in theirs."""
    names = [f"k{number}" for number in range(40)]
    parts = [[record(envelope(name), partition=part) for name in names[:: 1 - 2 * part]] for part in (0, 1)]
    taken = race(lambda: write(*parts[0]), lambda: write(*parts[1]))
    sums = [sum(outcomes(each)[name] for each in taken) for name in ("stored", "repeated", "parked")]
    assert sums == [40, 40, 0]
    assert len(stored()) == 40
    assert counted() == {"read": 80, "stored": 40, "repeated": 40}
    assert [check for check in MessagesIn().verify() if not check.ok] == []


def test_a_process_that_finishes_late_stores_nothing_again():
    """Both had read the same records: a partition went from one to the other."""
    records = [record(envelope(f"k{number}")) for number in range(20)]
    taken = race(lambda: write(*records), lambda: write(*records))
    assert sum(outcomes(each)["stored"] for each in taken) == len(stored()) == 20


def test_of_two_messages_for_one_key_one_is_a_letter():
    first, other = record(envelope()), record(envelope(payload={**MAIL, "to": "eve@example.com"}), partition=1)
    race(lambda: write(first), lambda: write(other))
    assert (len(stored()), reasons()) == (1, ["key_conflict"])


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer at a time")
def test_a_message_stands_behind_one_that_a_host_whose_clock_is_ahead_stores_at_this_moment(clock):
    """The second process has read both records, and waits for the key of the first."""
    first, second = record(envelope("a", event_type="first")), record(envelope("b", event_type="second"))
    clock.ahead(seconds=5)
    reads = threading.Event()

    def late() -> None:
        def look(execute, sql, *rest):
            try:
                return execute(sql, *rest)
            finally:
                if "outbox_watermark" in sql:
                    reads.set()

        with connection.execute_wrapper(look):
            write(first, second)

    def early() -> None:
        with transaction.atomic():
            write(first)
            clock.ahead(seconds=0)
            written.set()
            assert reads.wait(PATIENCE)

    written = threading.Event()
    race(early, lambda: written.wait(PATIENCE) and late())
    assert [message.event_type for message in stored()] == ["first", "second"]
