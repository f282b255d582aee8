"""What a transaction carries, from the bytes of the input to those of the output."""

import json
from collections import defaultdict

import pytest

from config.kafka import Replayed
from config.kafka.client import MAX_REQUEST_BYTES
from config.kafka.transactional_producer import Committed
from throttler.customers.policy_cache import CustomerTerms
from throttler.engine.decisions import Decider, Decisions, decode, packed, row_of, unpacked
from throttler.engine.output_transaction import OutputTransaction
from throttler.engine.partition import OwnedPartition
from throttler.lanes import state
from throttler.limits.rate import parse_rates
from throttler.messages import day_of, gate

NOW = 1_790_000_000_000_000
HEADERS = [("trace", b"\xff1"), ("empty", None), ("forwarded", b"x"), ("source", b"a lie")]


def value(**fields):
    return json.dumps({
        "notification_id": "n", "customer_id": "acme", "recipient": "ada", "message": {"text": "é"},
        "created_at": "2026-09-21T13:33:20Z", "extra": [1.50], **fields,
    }).encode()  # fmt: skip


def record(offset=10, content=None, headers=(), key=b"other"):
    return Replayed("notifications-in", 3, offset, NOW // 1000, key, value() if content is None else content, headers)


class Recorder:
    """A producer that keeps what it is told."""

    def __init__(self):
        self.sent, self.offsets, self.begun = defaultdict(list), None, 0
        self.verdict = Committed()

    def begin(self):
        self.begun += 1

    def send(self, topic, partition, key, content, headers):
        self.sent[topic].append((partition, key, content, headers))

    def commit(self, offsets, metadata):
        self.offsets, self.metadata = offsets, metadata
        return self.verdict


@pytest.fixture
def producer(settings):
    settings.KAFKA_TOPIC_PREFIX = "p."
    return Recorder()


@pytest.fixture
def part():
    return OwnedPartition(3, "t", 7, decided=10, committed=10, read=10)


def send(producer, part, records, right=3, now=NOW, decisions=None):
    terms = CustomerTerms(parse_rates("1/s", 1), None, 1, 0, False)
    decider = Decider(lambda _: terms, 3_600_000_000, lambda _: right, lambda one, day: row_of(one, "t", day))
    out = decisions or Decisions()
    for one in records:
        decider.decide(part, decode(one, gate(), "t"), now, out)
    assert OutputTransaction(producer).run(out, [part], [(part, "gone")], "metadata") == producer.verdict
    return out


def test_what_goes_live_is_the_input_with_one_more_field_and_its_source(producer, part):
    send(producer, part, [record(headers=HEADERS)])
    ((partition, key, content, headers),) = producer.sent["p.notifications-out"]
    assert (partition, key) == (3, b"acme")
    assert json.loads(content) == json.loads(value()) | {"throttled": False}
    assert headers == [("trace", b"\xff1"), ("empty", None), ("source", b"notifications-in/3/10")]


def test_offsets_and_changelog_travel_with_it(producer, part):
    send(producer, part, [record(10), record(11)])
    assert (producer.begun, producer.metadata) == (1, "metadata")
    assert producer.offsets == {("p.notifications-in", 3): 12}
    (key, content), gone, (mine, position) = [found[1:3] for found in producer.sent["p.notifications-changelog"]]
    lane = state.lane_of("acme", state.lane_record_from(content))
    assert (key, lane.backlog, lane.seen) == (b"acme", 1, 11)
    assert gone == (b"gone", None)
    assert (mine, state.partition_from(position).decided) == (state.PARTITION_KEY, 12)
    assert mine.startswith(b"\x00")


def test_a_row_leaves_with_the_headers_it_came_with(producer, part):
    row = row_of(decode(record(headers=HEADERS), gate(), "t"), "t", day_of(NOW))
    out = Decisions(drained=[(part, row)], overdue=[(part, row, "ttl")])
    send(producer, part, [], decisions=out)
    ((partition, key, content, headers),) = producer.sent["p.notifications-out"]
    assert (partition, key, json.loads(content)["throttled"]) == (3, b"acme", True)
    assert headers == [("trace", b"\xff1"), ("empty", None), ("source", b"p.notifications-in/3/10")]
    ((_, _, content, headers),) = producer.sent["p.notifications-expired"]
    assert (json.loads(content)["reason"], headers[-1][0]) == ("ttl", "source")


def test_what_has_expired_goes_to_its_topic_with_the_reason(producer, part):
    send(producer, part, [record(content=value(created_at="2026-09-21T10:00:00Z"))])
    ((partition, key, content, headers),) = producer.sent["p.notifications-expired"]
    assert (partition, key, json.loads(content)["reason"]) == (3, b"acme", "ttl")
    assert headers == [("source", b"notifications-in/3/10")]


def test_what_is_forwarded_keeps_its_bytes_and_is_marked(producer, part):
    send(producer, part, [record(headers=[("trace", b"1")])], right=5)
    assert producer.sent["p.notifications-in"] == [
        (5, b"acme", value(), [("trace", b"1"), ("forwarded", b"notifications-in/3/10")])
    ]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", value(customer_id=""), value(created_at="x"), value(ttl_seconds=-1)]
)
def test_what_is_no_message_is_a_letter_with_its_bytes(content):
    decoded = decode(record(content=content), gate(), "t")
    assert decoded.message is None
    assert (decoded.letter.source, decoded.letter.step, decoded.letter.record.value) == ("throttler", "decode", content)


def test_what_the_broker_would_not_take_with_what_is_added_is_a_letter():
    headers = [("h", b"x" * (MAX_REQUEST_BYTES - len(value()) - 500))]
    letter = decode(record(headers=headers), gate(), "t").letter
    assert (letter.reason, decode(record(headers=[("h", b"x")]), gate(), "t").letter) == ("too_large", None)


def test_headers_come_back_as_they_were():
    assert unpacked(packed(HEADERS)) == HEADERS
    assert (packed(()), unpacked(b"")) == (b"", [])
