"""The handler of `messages-in`: a promise is one message, once by its key and once by its position."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from config.database.retry import Stale
from notifications.mail.content import decode
from outbox.intake.envelope import GONE, Promise
from outbox.intake.handler import Intake
from outbox.letters.models import DeadLetter
from outbox.messages.models import IdempotencyKey, OutboxMessage
from tests.conftest import TOPIC_ID
from tests.logged import lines
from tests.outbox.intake.conftest import MAIL, counted, envelope, outcomes, reasons, record, stored, write

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


def test_a_promise_becomes_a_message_that_waits_to_be_sent():
    trace = f"00-{7:032x}-{8:016x}-01"
    taken = write(record(envelope(), headers=[("correlation_id", b"c-1"), ("traceparent", trace.encode())]))
    assert outcomes(taken) == {"stored": 1, "repeated": 0, "parked": 0}
    (message,) = stored()
    about = (message.channel, message.event_type, message.aggregate, message.state, message.attempts)
    assert about == ("email", "invoice.issued", "invoice:I-1", "pending", 0)
    assert (message.correlation_id, message.traceparent) == ("c-1", trace)
    assert message.times_revived == message.times_uncertain == 0
    assert IdempotencyKey.objects.get().message_id == message.pk


def test_what_is_no_traceparent_is_no_trace(caplog):
    with caplog.at_level("INFO"):
        write(record(envelope(), headers=[("traceparent", b"Bearer sk_live_0123456789 of Ada Lovelace, a secret")]))
    assert stored()[0].traceparent == ""
    assert "Lovelace" not in str(lines(caplog))


def test_what_a_service_leaves_out_of_a_mail_is_filled_in(settings):
    settings.EMAIL_FROM = "Shop <shop@example.com>"
    write(record(envelope(payload={**MAIL, "to": "Ada@EXAMPLE.com", "text": "One & two.\n\nThree\nfour.\n"})))
    mail = decode(stored()[0].payload)
    assert (mail.to, mail.sender, mail.subject) == ("Ada@example.com", "Shop <shop@example.com>", "Your invoice")
    assert mail.html == "<p>One &amp; two.</p>\n<p>Three<br>four.</p>\n"
    assert mail.headers.keys() == {"Date", "Message-ID"}


def test_what_a_service_says_of_a_mail_itself_stays():
    given = {"from": "Billing <billing@example.com>", "html": "<b>x</b>", "headers": {"message-id": "<1@example.com>"}}
    write(record(envelope(payload={**MAIL, **given})))
    mail = decode(stored()[0].payload)
    assert (mail.sender, mail.html) == (given["from"], given["html"])
    assert mail.headers.keys() == {"Date", "message-id"}


@pytest.mark.parametrize("blank", [None, "", "  \n"])
def test_what_is_null_or_empty_counts_as_left_out(blank, settings):
    """Also of a repeat, when the settings have changed since."""
    optional = {"from": blank, "html": blank, "headers": {"Date": blank}}
    write(record(envelope(payload={**MAIL, **optional})), record(envelope("other")))
    (told, silent) = (decode(message.payload) for message in stored())
    assert (told.sender, told.html, told.headers.keys()) == (silent.sender, silent.html, silent.headers.keys())
    settings.EMAIL_FROM = "Another <another@example.com>"
    again = [record(envelope(payload={**MAIL, **more})) for more in (optional, {})]
    assert outcomes(write(*again))["repeated"] == 2


def test_what_was_stored_as_it_came_before_blanks_counted_as_left_out_is_a_repeat():
    write(record(envelope()))
    (message,) = stored()
    before = {**msgspec.json.decode(message.payload), "html": "", "order_id": ""}
    OutboxMessage.objects.update(payload=msgspec.json.encode(before).decode())
    assert outcomes(write(record(envelope(payload={**MAIL, "html": "", "order_id": ""}))))["repeated"] == 1


def test_messages_have_the_order_of_their_records():
    write(*[record(envelope(f"k{9 - number}", event_type=f"e{number}")) for number in range(5)])
    assert [message.event_type for message in stored()] == [f"e{number}" for number in range(5)]


@pytest.mark.parametrize("same_batch", [True, False])
def test_a_promise_that_comes_again_changes_nothing(same_batch):
    """Also written later, when Date would be another, or by a service that was set up anew."""
    first, again = record(envelope()), record(envelope(), timestamp=int(time.time() * 1000) - 5_000)
    batches = [[first, again]] if same_batch else [[first], [again]]
    repeats = sum(outcomes(write(*batch))["repeated"] for batch in batches)
    assert repeats == 1
    assert len(stored()) == 1
    assert reasons() == []


def test_a_key_that_is_swept_behind_the_look_is_looked_for_once_more(monkeypatch):
    """Else the record would be neither a message nor a repeat."""
    write(record(envelope()))
    with monkeypatch.context() as patch, pytest.raises(Stale):
        patch.setattr(Intake, "_known", staticmethod(lambda keys: {}))
        write(record(envelope()))
    assert outcomes(write(record(envelope())))["repeated"] == 1


def test_a_repeat_is_one_when_the_settings_have_changed_since(settings):
    write(record(envelope()))
    settings.EMAIL_FROM = "Another <another@example.com>"
    assert outcomes(write(record(envelope())))["repeated"] == 1
    assert decode(stored()[0].payload).sender != settings.EMAIL_FROM


@pytest.mark.parametrize("same_batch", [True, False])
@pytest.mark.parametrize(
    ("changes", "unlike"),
    [
        ({"payload": {**MAIL, "to": "eve@example.com"}}, "payload (to)"),
        ({"payload": {**MAIL, "headers": {"X-Mark": "1"}}}, "payload (headers)"),
        ({"aggregate": "invoice:I-2"}, "aggregate"),
        ({"event_type": "invoice.paid"}, "event_type"),
    ],
)
def test_the_same_key_with_another_payload_is_a_letter_that_says_so(same_batch, changes, unlike):
    first, other = record(envelope()), record(envelope(**changes))
    batches = [[first, other]] if same_batch else [[first], [other]]
    assert outcomes([write(*batch) for batch in batches][-1])["parked"] == 1
    letter = DeadLetter.objects.get()
    assert (letter.step, letter.reason) == ("store", "key_conflict")
    assert letter.error == f"the key was used for another message: its {unlike} differs"
    assert bytes(letter.payload) == other.value
    assert letter.business_key == changes.get("aggregate", "invoice:I-1")
    assert len(stored()) == 1


def test_a_promise_is_compared_in_full_where_nothing_is_filled_in(settings):
    settings.MESSAGES_IN = {"messages-in": {"": ["kafka"]}}
    payload = {"topic": "invoices", "key": "I-1", "value": {"a": {"b": 1}}}
    write(record(envelope(channel="kafka", payload=payload)))
    payload = {**payload, "value": {"a": {}}}
    assert outcomes(write(record(envelope(channel="kafka", payload=payload))))["parked"] == 1
    assert reasons() == ["key_conflict"]


def test_a_known_key_whose_message_was_dropped_is_a_repeat_if_its_digest_says_so(monkeypatch):
    monkeypatch.setattr(Promise, "digest", "1" * 32)  # a mail is filled in with the time of its promise
    write(record(envelope()))
    OutboxMessage.objects.all().delete()
    write(record(envelope()))
    assert (reasons(), stored()) == ([], [])
    IdempotencyKey.objects.update(payload_hash="0" * 32)
    write(record(envelope()))
    assert (DeadLetter.objects.get().reason, DeadLetter.objects.get().error) == ("key_conflict", GONE)
    assert stored() == []


def test_a_position_that_was_read_is_never_stored_again_although_its_key_is_gone():
    first = record(envelope())
    write(first)
    IdempotencyKey.objects.all().delete()
    OutboxMessage.objects.all().delete()
    assert outcomes(write(first)) == {"stored": 0, "repeated": 1, "parked": 0}
    assert stored() == []


def test_the_same_position_of_a_topic_that_was_made_anew_is_another(monkeypatch):
    first = record(envelope(), offset=7)
    write(first)
    monkeypatch.setattr("tests.outbox.intake.conftest.TOPIC_ID", "99999999-2222-3333-4444-555555555555")
    assert outcomes(write(record(envelope("other"), offset=7)))["stored"] == 1


def test_every_record_is_counted_once():
    first = record(envelope())
    write(first, record(envelope()), record(b"{"), record(envelope(aggregate="invoice:I-2")))
    write(first)
    assert counted() == {"read": 5, "stored": 1, "repeated": 2, "parked": 2}


def test_two_services_do_not_know_each_others_keys(settings):
    settings.MESSAGES_IN = {"messages-in": {"": ["email"], "shop": ["email"]}, "billing": {"": ["email"]}}
    write(
        record(envelope("42")),
        record(envelope("42", aggregate="a"), headers=[("producer", b"shop")]),
        record(envelope("42", aggregate="b"), topic="billing"),
        record(envelope("42"), headers=[("producer", b"unnamed")]),
    )
    keys = sorted(IdempotencyKey.objects.values_list("key", flat=True))
    assert keys == ["billing/42", "messages-in/42", "messages-in@shop/42"]
    assert reasons() == []


# -- how long ----------------------------------------------------------------------------------------------
def expiry(**more: object) -> datetime:
    write(record(envelope(**more), **({"timestamp": more.pop("timestamp")} if "timestamp" in more else {})))
    return stored()[-1].expires_at


def close(moment: datetime, other: datetime) -> bool:
    return abs(moment - other) < timedelta(seconds=60)


def test_a_message_expires_as_long_after_its_promise_as_any():
    hours = timedelta(hours=20)
    late = int((datetime.now(UTC) - hours).timestamp() * 1000)
    write(record(envelope(), timestamp=late))
    assert close(stored()[0].expires_at, datetime.now(UTC) - hours + DAY)


@pytest.mark.parametrize("timestamp", [-1, 4_000_000_000_000])
def test_a_record_without_a_sensible_time_was_promised_now(timestamp):
    write(record(envelope(), timestamp=timestamp))
    assert close(stored()[0].expires_at, datetime.now(UTC) + DAY)


@pytest.mark.parametrize("shape", ["iso", "microseconds"])
def test_it_may_expire_sooner_and_never_later(shape):
    def told(moment: datetime) -> object:
        return moment.isoformat() if shape == "iso" else int(moment.timestamp() * 1_000_000)

    soon, never = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) + 90 * DAY
    write(record(envelope("a", expires_at=told(soon))), record(envelope("b", expires_at=told(never))))
    first, second = (message.expires_at for message in stored())
    assert close(first, soon)
    assert close(second, datetime.now(UTC) + DAY)


# -- after a restore ---------------------------------------------------------------------------------------
def test_what_a_restored_database_reads_again_may_have_been_sent():
    handler = Intake()
    handler.regain({"messages-in": TOPIC_ID}, {("messages-in", 0): 10})
    write(record(envelope("a"), offset=9), record(envelope("b"), offset=10), handler=handler)
    marked = [(message.state, message.times_uncertain) for message in stored()]
    assert marked == [("uncertain", 1), ("pending", 0)]


def test_what_comes_of_a_topic_that_was_created_again_meanwhile_was_not_forgotten():
    handler = Intake()
    handler.regain({"messages-in": "the topic of before"}, {("messages-in", 0): 10})
    write(record(envelope("a"), offset=9), handler=handler)
    assert [message.state for message in stored()] == ["pending"]


# -- replays of the topic ----------------------------------------------------------------------------------
def test_a_replay_stores_what_is_missing_and_nothing_that_nobody_can_tell():
    first, missing = record(envelope("a")), record(envelope("b"))
    old = record(envelope("c"), timestamp=int((datetime.now(UTC) - 8 * DAY).timestamp() * 1000))
    write(first)
    taken = write(first, missing, old, revision=1, from_log=True)
    assert outcomes(taken) == {"stored": 1, "repeated": 1, "parked": 0}
    assert set(taken.changed) == {"messages-in/b"}
    assert len(stored()) == 2
    assert counted() == {"read": 1, "replayed": 2, "stored": 2, "repeated": 1}
    assert msgspec.json.decode(stored()[1].payload)["to"] == MAIL["to"]


# -- hosts whose clocks differ -----------------------------------------------------------------------------
def test_a_message_stands_behind_that_of_a_host_whose_clock_is_ahead(clock):
    clock.ahead(seconds=2)
    write(record(envelope("a", event_type="first")))
    clock.ahead(seconds=0)
    write(record(envelope("b", event_type="second")), record(envelope("c", event_type="third")))
    assert [message.event_type for message in stored()] == ["first", "second", "third"]
    kept = IdempotencyKey.objects.order_by("message_id").values_list("key", "message_id")
    assert list(kept) == [(f"messages-in/{key}", row.pk) for key, row in zip("abc", stored(), strict=True)]


def test_it_does_so_also_behind_what_was_sent_and_not_behind_what_others_say(clock):
    clock.ahead(seconds=2)
    write(record(envelope("a")), record(envelope("b", aggregate="invoice:I-2")))
    OutboxMessage.objects.update(state="sent", sent_at=datetime.now(UTC))
    clock.ahead(seconds=0)
    write(record(envelope("c")), record(envelope("d", aggregate="invoice:I-3")))
    assert [message.aggregate[-1] for message in stored()] == ["3", "1", "1", "2"]


def test_no_clock_that_is_a_day_ahead_is_followed(clock):
    """Its messages lie in partitions that no claim reads yet."""
    clock.ahead(seconds=2 * 86_400)
    write(record(envelope("a")))
    clock.ahead(seconds=0)
    write(record(envelope("b")))
    assert [row.pk for row in stored()] == [row.pk for row in OutboxMessage.objects.order_by("-created_at")]
