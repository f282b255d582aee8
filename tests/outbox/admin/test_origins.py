"""Where letters come from: what several share, never what only one says, from the newest thousand."""

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from config.database.clock import database_now
from config.kafka import Replayed
from outbox.admin.groups import figures as group_figures
from outbox.admin.groups.figures import origins_of
from outbox.groups.models import FailureGroup
from outbox.letters.burial import Letter, bury
from outbox.letters.models import DeadLetter

pytestmark = pytest.mark.django_db


def mails(*recipients, start=0, event="order.paid"):
    """Letters of mails; the recipient stands at the front or behind much else."""
    headers = [("event_type", event.encode()), ("channel", b"email"), ("correlation_id", b"planted-c")]
    letters = []
    for number, to in enumerate(recipients, start):
        payload = msgspec.json.encode({"to": to, "subject": "planted-s", "text": "x" * 5000})
        record = Replayed("", -1, 1, 1000, b"k", payload, headers)
        letters.append(Letter("outbox", "deliver", "refused", "550 no", record, topic_id=str(number)))
    bury(letters, "g", database_now())
    return FailureGroup.objects.get().pk


def told(found):
    return {one.kind: (dict(one.values), one.kinds, one.others) for one in found.origins}


def test_domains_and_events_of_mails_the_most_common_first():
    group = mails(*["a@One.example"] * 5, *["b@two.example"] * 3, "c@three.example", "d@four.example")
    mails("e@one.example", start=100, event="order.refunded")
    found = origins_of(group)
    assert told(found) == {
        "domains": ({"one.example": 6, "two.example": 3}, 2, 2),
        "events": ({"order.paid": 10}, 1, 1),
        "channels": ({"email": 11}, 0, 0),
    }
    assert found.standing_out == ("one.example", 6)


def test_what_only_one_letter_says_is_not_said():
    found = origins_of(mails("ada@planted.example", "bob@other.example"))
    assert "domains" not in told(found)
    assert "planted" not in repr(found)


@pytest.mark.parametrize("to", ["no address", '"quoted"@x', "", "@", "a@" + "x" * 200])
def test_a_strange_recipient_is_left_out(to):
    assert "domains" not in told(origins_of(mails(to, to))) or to.startswith('"')


def test_records_of_kafka_say_their_partition_and_nothing_is_read_of_them():
    letters = [
        Letter("s", "decode", "r", "e", Replayed("t", number % 2, number, 0, b"k", b"{}"), topic_id="t")
        for number in range(9)
    ]
    bury(letters, "g", database_now())
    group = FailureGroup.objects.get().pk
    with CaptureQueriesContext(connection) as queries:
        found = origins_of(group)
    assert told(found) == {"partitions": ({"t/0": 5, "t/1": 4}, 0, 0)}
    assert not [query["sql"] for query in queries if "payload" in query["sql"]]
    assert found.standing_out == ("t/0", 5)


def test_only_the_newest_are_looked_at_and_it_says_so(monkeypatch):
    monkeypatch.setattr(group_figures, "NEWEST", 4)
    group = mails(*["a@old.example"] * 5)
    mails(*["b@new.example"] * 4, start=50)
    found = origins_of(group)
    assert (found.looked_at, found.bounded) == (4, True)
    assert told(found)["domains"] == ({"new.example": 4}, 0, 0)


def test_of_a_group_without_open_letters_the_closed_ones_are_looked_at():
    group = mails("a@x.example", "b@x.example")
    DeadLetter.objects.update(status="resolved")
    assert told(origins_of(group))["domains"] == ({"x.example": 2}, 0, 0)
    assert origins_of(group + 1).origins == []
