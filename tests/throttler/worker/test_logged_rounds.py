"""The line of a transaction says which notification went which way, and costs nothing where nobody wants it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from config.kafka import Replayed
from config.kafka.transactional_producer import RefusedRecord
from tests.logged import lines
from tests.throttler.worker.bench import Bench
from throttler.engine.decisions import decode
from throttler.messages import id_in
from throttler.worker.round import OwnerRound


@pytest.fixture
def bench(settings):
    return Bench(settings)


def moved(name):
    return SimpleNamespace(notification_id=name, customer_id=name.upper())


def arrived(name):
    return SimpleNamespace(message=moved(name))


def test_the_line_of_a_round_says_the_way_of_each_what_is_rare_first(bench, caplog):
    round_ = OwnerRound(bench.context)
    round_.out.live += map(arrived, ["l1", "l2"])
    round_.out.rows.append((None, moved("b")))
    round_.out.drained.append((None, moved("d")))
    round_.out.expired.append((arrived("e1"), "ttl"))
    round_.out.overdue += [(None, moved("e2"), "ttl"), (None, moved("p"), "purged")]
    round_.out.forwarded.append((arrived("f"), 3))
    round_.out.letters.append((arrived("x"), SimpleNamespace(business_key="x")))
    with caplog.at_level("INFO"):
        round_.committed(0)
    (line,) = lines(caplog)
    ways = list(zip(line["notification_id"], line["path"], strict=True))
    assert ways == [
        ("x", "parked"), ("e2", "expired"), ("p", "purged"), ("e1", "expired"), ("f", "forwarded"), ("b", "buffered"),
        ("d", "drained"), ("l1", "live"), ("l2", "live"),
    ]  # fmt: skip
    assert line["customer_id"] == ["", *(name.upper() for name, _path in ways[1:])]
    assert (line["messages"], line["more"]) == (9, 0)
    assert line["paths"] == {
        "live": 2, "buffered": 1, "drained": 1, "purged": 1, "expired": 2, "parked": 1, "forwarded": 1,
    }  # fmt: skip


class Watched:
    """A message that says when it was looked at."""

    looks = 0
    customer_id = "a"

    @property
    def notification_id(self):
        Watched.looks += 1
        return "n"


@pytest.mark.parametrize(("level", "looks"), [("WARNING", 0), ("INFO", 100)])
def test_no_more_messages_are_read_than_a_line_names_and_none_for_a_line_that_nobody_wants(bench, caplog, level, looks):
    round_ = OwnerRound(bench.context)
    round_.out.live += [SimpleNamespace(message=Watched())] * 2000
    round_.out.drained += [(None, Watched())] * 2000
    Watched.looks = 0
    with caplog.at_level(level):
        round_.committed(0)
    assert Watched.looks == looks
    assert [line["more"] for line in lines(caplog)] == [3900] * (looks > 0)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (b'{"notification_id": "n1", "customer_id": 7}', "n1"),
        (b'{"notification_id": "n\\u00001"}', "n\ufffd1"),
        (b'{"notification_id": "%b"}' % (b"n" * 300), "n" * 200),
        (b'{"notification_id": 7}', "7"),
        (b'{"notification_id": true}', ""),
        (b"[]", ""),
        (b'{"notification_id": "\xff"}', ""),
        (b"{not json", ""),
        (b'{"x": ' + b"[" * 100_000, ""),
        (b"", ""),
        (None, ""),
    ],
)
def test_a_letter_has_the_id_of_its_notification_where_it_can_be_read(bench, value, name):
    letter = decode(Replayed("in", 0, 7, 1, None, value), bench.gate, "t").letter
    assert letter
    assert letter.business_key == name == id_in(value)


def test_the_letter_of_a_notification_that_the_broker_refuses_has_its_id(bench):
    decoded = decode(bench.record(7, "a"), bench.gate, "t")
    bench.context.refuse(decoded.record, RefusedRecord(0, "out", 0, "too large"))
    assert bench.context.checked(decoded).letter.business_key == "7"
