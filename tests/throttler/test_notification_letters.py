"""Dead letters of the throttler go to the input again, once, as the messages they are; poison does not."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from django.db import transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import Replayed, topic_name
from config.letters import Refusal
from outbox.channels.handlers import Message
from outbox.channels.kafka import record_of
from outbox.letters import redelivery
from outbox.letters.burial import Letter, bury
from outbox.letters.levers import forecast, pull
from outbox.models import DeadLetter, OutboxMessage
from outbox.topic_replay.requests import contract_name
from tests.conftest import TOPIC_ID
from tests.logged import lines
from throttler.models import Customer

pytestmark = pytest.mark.django_db
ME = Operator("me")


@pytest.fixture(autouse=True)
def registered(settings):
    settings.FLOWS = [*settings.FLOWS, "throttler.flow.Throttler"]


def value(created=None, customer="acme", **more):
    at = (created or datetime.now(UTC)).isoformat()
    body = {
        "notification_id": "n-1",
        "customer_id": customer,
        "recipient": "a",
        "message": {"é": "'"},
        "created_at": at,
    }
    return msgspec.json.encode({**body, **more})


def letter(content, step="store", headers=()):
    record = Replayed(topic_name("notifications-in"), 3, 17, 1_900_000_000_000, b"wrong", content, headers)
    with transaction.atomic():
        bury([Letter("throttler", step, "reason", "text", record, TOPIC_ID)], "throttler", database_now())
    return DeadLetter.objects.get()


def produced(row):
    """The record that the channel makes of a message."""
    return record_of(Message(**{name: getattr(row, name, 0) for name in Message._fields}))


def test_a_letter_goes_to_the_input_as_it_came_with_the_place_it_had():
    content = value()
    found = letter(content, headers=[("tenant", b"t1"), ("forwarded", b"x/1/2"), ("source", b"y")])
    assert pull("requeue", [found.pk], ME, "repaired").acted == 1
    row = OutboxMessage.objects.get()
    record = produced(row)
    assert (row.channel, record.topic, record.value) == ("kafka", topic_name("notifications-in"), content)
    assert record.key == "acme"  # the customer, not the key it had: that is what decides its partition
    headers = dict(record.headers)
    assert headers["replay_of"] == f"{topic_name('notifications-in')}/3/17".encode()
    assert headers["tenant"] == b"t1"
    assert not headers.keys() & {"forwarded", "source"}
    found.refresh_from_db()
    assert (found.status, found.note) == ("requeued", "on its way to notifications-in")


def test_the_messages_of_many_letters_are_one_line(caplog, django_capture_on_commit_callbacks):
    for offset in range(3):
        content = b"{" if offset == 1 else value(customer=f"c{offset}")
        record = Replayed(topic_name("notifications-in"), 3, offset, 1_900_000_000_000, b"k", content, ())
        bury([Letter("throttler", "store", "reason", "text", record, TOPIC_ID)], "throttler", database_now())
    letters = list(DeadLetter.objects.order_by("pk"))
    with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
        redelivery.take_back(letters, database_now())
    said = {line["event"]: line for line in lines(caplog)}
    assert (said["messages_published"]["messages"], said["messages_published"]["aggregate"]) == (
        2, ["customer/c0", "customer/c2"],
    )  # fmt: skip
    assert "message_published" not in said


def test_a_letter_that_is_opened_and_requeued_again_is_sent_once():
    found = letter(value())
    pull("requeue", [found.pk], ME, "repaired")
    DeadLetter.objects.update(status="open")
    assert pull("requeue", [found.pk], ME, "repaired").acted == 1
    assert OutboxMessage.objects.count() == 1


@pytest.mark.parametrize("content", [b"{not json", b"", None, b'{"customer_id": "c"}', value(customer="a\0b")])
def test_poison_fails_again_and_nothing_is_sent(content):
    found = letter(content, step="decode")
    assert forecast(found).verdict == "Fails again."
    ((_letter, effect),) = pull("requeue", [found.pk], ME, "try").failed
    found.refresh_from_db()
    again = DeadLetter.objects.get(pk=effect.successor)
    assert (found.status, again.predecessor, again.revision) == ("failed_again", found.pk, 1)
    assert not OutboxMessage.objects.exists()


def test_a_letter_about_lost_messages_holds_none_to_send():
    found = letter(None, step="lost")
    ((_letter, why),) = pull("requeue", [found.pk], ME, "try").refused
    assert "nothing can be sent" in why
    assert "nothing can be sent" in forecast(found).why


def test_a_message_the_outbox_does_not_take_is_refused_and_stays_open(settings):
    settings.OUTBOX_MAX_BYTES = 100
    found = letter(value())
    ((refused, why),) = pull("requeue", [found.pk], ME, "try").refused
    assert "OUTBOX_MAX_BYTES" in why
    assert refused.status == "open"


def test_the_forecast_says_what_becomes_of_it(settings):
    found = letter(value())
    assert forecast(found).tone == "ok"
    now = database_now()
    row = Customer.objects.create(pk="acme", rates="1/s", created_at=now, updated_at=now, ttl_seconds=1)
    letters = {}
    DeadLetter.objects.update(payload=value(now - timedelta(seconds=5)))
    letters["ttl"] = forecast(DeadLetter.objects.get())
    row.ttl_seconds, row.purge_before = None, now
    row.save()
    letters["purged"] = forecast(DeadLetter.objects.get())
    DeadLetter.objects.update(payload=value(now - timedelta(seconds=5), ttl_seconds=2))
    letters["own ttl"] = forecast(DeadLetter.objects.get())
    assert [one.verdict for one in letters.values()] == ["It goes to notifications-expired."] * 3
    assert "purged" in letters["purged"].why


def test_the_input_is_not_replayed_and_the_refusal_says_why(settings):
    settings.KAFKA_TOPIC_PREFIX = "test."
    for name in ("notifications-in", "test.notifications-in"):
        with pytest.raises(Refusal, match="would be sent again; requeue its dead letters"):
            contract_name(name)
    with pytest.raises(Refusal, match="no flow replays this topic"):
        contract_name("nobody")
