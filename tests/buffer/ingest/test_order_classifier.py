"""What a further record of a stored order is: decided without a database."""

from buffer.events.arrivals import Position
from buffer.events.models import NO_BATCH
from buffer.ingest.batch import OrderClassifier, StoredOrder


def at(offset: int) -> Position:
    return Position("t", 0, offset, 1000 + offset)


def sent(seen: Position | None = None, seen_hash: str = "") -> OrderClassifier:
    """An order of which version 0 was sent, and of which a later record was seen."""
    later = ("", None, None, None) if seen is None else seen
    return OrderClassifier(StoredOrder(202611, "A1", "WH-1", "sent", NO_BATCH, "v0", *at(0), *later, seen_hash))


def test_a_late_record_is_late_once_and_then_redelivered_whatever_was_seen_after_it():
    order = sent()
    assert [order.verdict(at(1), "v1"), order.verdict(at(2), "v2")] == ["late_event", "late_event"]
    assert (order.seen, order.seen_hash) == (at(2), "v2")
    for again in (order, sent(order.seen, order.seen_hash)):
        assert [again.verdict(at(1), "v1"), again.verdict(at(2), "v2")] == ["redelivered", "redelivered"]


def test_what_is_older_than_the_row_is_no_news_although_it_is_newer_than_what_was_seen_late():
    """A requeued letter, or a version that came while the order was open again, has moved the row past it."""
    stored = sent(at(2), "v2").stored._replace(source_offset=5, source_timestamp=1005)
    assert OrderClassifier(stored).verdict(at(3), "v3") == "redelivered"
