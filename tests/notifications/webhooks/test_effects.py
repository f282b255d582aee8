"""What webhook events do: deliveries move, late proof settles, and a crash in between loses nothing."""

import itertools
import uuid
from datetime import timedelta

import pytest
from django.db import DatabaseError, connection
from django.test import TestCase
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from config.database import queries
from notifications.channels.local import Memory
from notifications.mail import deliveries, suppression
from notifications.models import Delivery, Suppression, WebhookEvent
from notifications.webhooks import inbox as applying
from notifications.webhooks import views
from notifications.webhooks.inbox import PATIENCE, apply, apply_open, sweep_old
from outbox.channels.handlers import Outcome
from outbox.messages import publish
from outbox.models import DeliveryAttempt, OutboxMessage
from tests.logged import lines
from tests.notifications.post import go, paid, state_of
from tests.notifications.signing import at, event, generic, post, status, tell
from tests.row_locks import locks_asked_for


# -- what it does ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("order", list(itertools.permutations(["accepted", "deferred", "delivered"])))
def test_reordered_events_end_where_ordered_ones_do(sent, order):
    for kind in order:
        tell(event(kind, sent.pk))
    assert status() == "delivered"


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize(("last", "suppressed"), [("delivered", None), ("bounced", True)])
def test_of_bounce_and_delivery_the_later_holds(sent, swap, last, suppressed):
    times = (
        {"delivered": at(-10), "bounced": at(-20)}
        if last == "delivered"
        else {"delivered": at(-20), "bounced": at(-10)}
    )
    events = [event(kind, sent.pk, occurred_at=when) for kind, when in times.items()]
    for found in reversed(events) if swap else events:
        tell(found)
    assert status() == last
    delivery = Delivery.objects.get()
    assert delivery.delivered_at is not None
    assert delivery.bounced_at is not None
    found = list(Suppression.objects.values_list("address", flat=True))
    # One that was believed before the delivery was heard of has stopped the address already.
    assert found == (["ada@example.com"] if suppressed or swap else [])


@pytest.mark.parametrize("last", ["delivered", "bounced"])
def test_a_bounce_that_a_delivery_in_the_same_request_overtakes_stops_nobody(sent, last):
    times = {"delivered": at(-10), "bounced": at(-20 if last == "delivered" else -5)}
    tell(*[event(kind, sent.pk, occurred_at=when) for kind, when in times.items()])
    assert status() == last
    assert Suppression.objects.exists() is (last == "bounced")


def test_a_complaint_is_recorded_whatever_came_before_or_after(sent):
    tell(event("complained", sent.pk, occurred_at=at(-100)))
    tell(event("delivered", sent.pk, occurred_at=at(-1)), event("bounced", sent.pk, occurred_at=at(0)))
    assert status() == "complained"
    assert Suppression.objects.get().reason == "complaint"


@pytest.mark.parametrize("ids", ["12", "21"])
def test_of_a_bounce_and_a_complaint_in_one_request_the_complaint_is_the_reason(email, ids):
    """Of two mails to one address; events of one request are applied by their ids."""
    one, other = paid(), paid()
    go(email)
    tell(event("complained", one.pk, id=ids[0]), event("bounced", other.pk, id=ids[1]))
    assert Suppression.objects.get().reason == "complaint"


@pytest.mark.parametrize("seconds", [-100, 0])
def test_a_complaint_that_changes_nothing_suppresses_again_who_was_let_in_again(sent, seconds):
    tell(event("complained", sent.pk, occurred_at=at(-10)))
    Suppression.objects.all().delete()
    tell(event("complained", sent.pk, occurred_at=at(seconds)))
    assert Suppression.objects.get().reason == "complaint"


@pytest.mark.parametrize("kind", ["accepted", "deferred", "delivered", "rejected", "opened"])
def test_only_hard_bounces_and_complaints_suppress(sent, kind):
    tell(event(kind, sent.pk))
    assert not Suppression.objects.exists()


def test_an_unknown_event_is_kept_and_does_nothing(sent):
    assert tell(event("opened", sent.pk), event("", sent.pk)) == ["ignored", "ignored"]
    assert status() == "accepted"


def test_an_event_about_another_recipient_does_nothing(sent):
    assert tell(event("bounced", sent.pk, recipient="eve@example.com")) == ["other_recipient"]
    assert (status(), Suppression.objects.count()) == ("accepted", 0)
    assert tell(event("bounced", sent.pk, recipient="ADA@EXAMPLE.COM"))[1:] == ["applied"]


def test_a_clock_that_runs_ahead_does_not_decide_for_ever(sent):
    tell(event("delivered", sent.pk, occurred_at=at(10**8)))
    assert Delivery.objects.get().status_at <= timezone.now() + timedelta(seconds=61)


def test_many_events_of_one_request_are_applied_together(email, caplog):
    messages = [paid(f"u{number}@example.com") for number in range(5)]
    go(email)
    with caplog.at_level("INFO"), TestCase.captureOnCommitCallbacks(execute=True):
        verdicts = tell(*(event(kind, m.pk) for m in messages for kind in ("delivered", "deferred", "complained")))
    (line,) = (line for line in lines(caplog) if line["event"] == "addresses_suppressed")
    hashes = sorted(suppression.hash_of(f"u{number}@example.com") for number in range(5))
    assert (line["addresses"], line["reason"], line["address_hash"]) == (5, ["complaint"] * 5, hashes)
    assert "@" not in str(line)
    assert sorted(set(verdicts)) == ["applied", "no_news"]
    assert set(Delivery.objects.values_list("status", flat=True)) == {"complained"}
    assert Suppression.objects.count() == 5


@pytest.mark.parametrize("kept", [True, False])
def test_lines_about_events_name_the_order_and_what_its_mail_was_about(email, caplog, kept):
    """Also of events that know a mail by its provider's id alone, and of a mail whose message retention took."""
    first, second = paid(), paid("eve@example.com")
    OutboxMessage.objects.filter(pk=first.pk).update(correlation_id="c1")
    go(email)
    known_as = Delivery.objects.get(pk=second.pk).provider_message_id
    Delivery.objects.filter(pk=second.pk).update(provider="generic")
    if not kept:
        OutboxMessage.objects.all().delete()
    stranger = uuid.uuid4()
    caplog.clear()
    with caplog.at_level("INFO"), TestCase.captureOnCommitCallbacks(execute=True):
        tell(
            event("delivered", first.pk), event("bounced", provider_message_id=known_as), event("bounced", stranger),
            event("opened", first.pk),
        )  # fmt: skip
    said = {line["event"]: line for line in lines(caplog)}
    ids = [(str(message.pk), message.aggregate.removeprefix("order:")) for message in (first, second)]
    judged, moved = said["webhooks_judged"], said["deliveries_moved"]
    assert set(zip(judged["message_id"], judged["order_id"], judged["verdict"], judged["kind"], strict=True)) == {
        (*ids[0], "applied", "delivered"), (*ids[1], "applied", "bounced"), (str(stranger), "", "parked", "bounced"),
        (str(first.pk), "", "ignored", "other"),
    }  # fmt: skip
    assert list(zip(moved["message_id"], moved["order_id"], strict=True)) == ids
    assert moved["became"] == ["delivered", "bounced"]
    assert moved.get("event_type") == (["order.paid"] * 2 if kept else None)
    if kept:
        assert moved["correlation_id"][0] == "c1"


def test_nobody_reads_what_a_mail_was_about_for_a_line_that_nobody_wants(sent, caplog):
    with caplog.at_level("WARNING"), CaptureQueriesContext(connection) as queried:
        tell(event("delivered", sent.pk))
    assert status() == "delivered"
    assert "outbox_outboxmessage" not in str(queried.captured_queries)


# -- messages nobody knows, or not yet ---------------------------------------------------------------------
def test_an_event_without_a_message_waits_and_is_then_given_up(sent):
    assert tell(event("bounced", uuid.uuid4()), event("bounced", provider_message_id="x")) == ["parked", "parked"]
    assert dict(apply_open(timezone.now())) == {"parked": 2}
    WebhookEvent.objects.update(received_at=timezone.now() - PATIENCE)
    assert dict(apply_open(timezone.now())) == {"unknown_message": 2}
    assert not apply_open(timezone.now())
    assert (status(), Suppression.objects.count()) == ("accepted", 0)


def test_an_event_that_was_faster_than_our_own_commit_is_applied_when_the_message_settles(email):
    message = paid()
    tell(event("delivered", provider_message_id=f"memory-{message.pk}"))
    WebhookEvent.objects.update(provider="memory")
    assert not Delivery.objects.exists()
    go(email)
    assert dict(apply_open(timezone.now())) == {"applied": 1}
    assert status() == "delivered"


def test_an_event_of_a_mail_confirms_no_message_of_another_channel(email):
    message = paid()
    OutboxMessage.objects.update(channel="kafka", attempts=1)
    assert tell(event("delivered", message.pk)) == ["parked"]
    assert (state_of(message), Delivery.objects.count()) == ("pending", 0)


def test_a_message_that_was_never_tried_cannot_have_been_delivered(email):
    message = paid()
    assert tell(event("delivered", message.pk)) == ["parked"]
    assert (state_of(message), Delivery.objects.count()) == ("pending", 0)


@pytest.mark.parametrize("kind", deliveries.STATUSES)
def test_late_proof_settles_an_uncertain_message_and_cancels_its_retry(email, kind):
    Memory.script.append(Outcome("ambiguous", "no answer"))
    message = paid()
    go(email)
    assert state_of(message) == "uncertain"
    tell(event(kind, message.pk, provider_message_id="p-1"))
    row = OutboxMessage.objects.get()
    assert (row.state, row.receipt, row.times_uncertain) == ("sent", "p-1", 1)
    assert (status(), Delivery.objects.get().provider_message_id) == (kind, "p-1")
    OutboxMessage.objects.update(available_at=timezone.now() - timedelta(days=1))
    assert go(email) == 0
    assert Memory.sent == []


def test_proof_that_comes_while_the_worker_still_waits_wins_and_nothing_is_doubled(email):
    message = paid()

    def slow(mail, key):
        tell(event("delivered", message.pk, provider_message_id="p-1"))
        return Outcome("ambiguous", "timeout")

    email.channel.send = slow
    go(email)
    assert state_of(message) == "sent"
    assert status() == "delivered"
    assert not DeliveryAttempt.objects.filter(finished_at__isnull=True).exists()


def test_a_retry_of_a_transient_failure_is_cancelled_by_proof(email):
    Memory.script.append(Outcome("transient", "451"))
    message = paid()
    go(email)
    tell(event("delivered", message.pk))
    assert state_of(message) == "sent"


def test_proof_of_many_messages_is_one_line_of_each_kind(email, caplog):
    Memory.script += [Outcome("ambiguous", "no answer")] * 3
    messages = [paid(f"u{number}@example.com") for number in range(3)]
    go(email)
    caplog.clear()
    with caplog.at_level("INFO"), TestCase.captureOnCommitCallbacks(execute=True):
        tell(*(event("delivered", message.pk, provider_message_id=f"p-{message.pk}") for message in messages))
    said = {line["event"]: line for line in lines(caplog)}
    assert len(lines(caplog)) == len(said)
    ids = sorted(str(message.pk) for message in messages)
    for name, number in (("messages_confirmed", "messages"), ("deliveries_accepted", "deliveries")):
        assert (said[name][number], said[name]["message_id"]) == (3, ids)
        assert said[name]["event_type"] == ["order.paid"] * 3
    assert said["messages_confirmed"]["aggregate"] == [message.aggregate for message in messages]
    found = OutboxMessage.objects.values_list("state", "receipt")
    assert sorted(found) == [("sent", f"p-{pk}") for pk in ids]
    assert dict(Delivery.objects.values_list("message_id", "provider_message_id")) == {
        message.pk: f"p-{message.pk}" for message in messages
    }


def test_proof_takes_as_many_statements_more_as_there_are_messages_twice(email):
    def statements(number: int) -> int:
        Memory.script += [Outcome("ambiguous", "no answer")] * number
        messages = [paid(f"{number}-{each}@example.com") for each in range(number)]
        go(email)
        with CaptureQueriesContext(connection) as asked:
            assert publish.confirm({message.pk: "p" for message in messages}, timezone.now()) == number
        return len(asked)

    assert statements(4) - statements(1) == 2 * 3


# -- crashes -----------------------------------------------------------------------------------------------
def test_what_was_stored_and_not_applied_is_applied_by_the_sweep(sent, monkeypatch):
    def crash(*_):
        raise DatabaseError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(views, "apply", crash)
        signed = generic(event("bounced", sent.pk))
        assert post(signed).status_code == 204  # stored is enough: they must not send it again
    assert (status(), WebhookEvent.objects.get().verdict) == ("accepted", "new")
    assert dict(apply_open(timezone.now())) == {"applied": 1}
    assert (status(), Suppression.objects.count()) == ("bounced", 1)


def test_applying_twice_is_applying_once(sent):
    tell(event("bounced", sent.pk))
    Suppression.objects.all().delete()
    assert not apply(list(WebhookEvent.objects.values_list("pk", flat=True)), timezone.now())
    assert not Suppression.objects.exists()


def test_a_verdict_that_another_process_gave_meanwhile_stands(sent, monkeypatch):
    """The event is locked: whoever gives a verdict nevertheless, it is given once."""
    classify = applying._classify

    def meanwhile(*given):
        WebhookEvent.objects.update(verdict="ignored", applied_at=timezone.now())
        return classify(*given)

    monkeypatch.setattr(applying, "_classify", meanwhile)
    with locks_asked_for() as locks:
        assert tell(event("delivered", sent.pk)) == ["ignored"]
    assert locks == ["notifications_webhookevent?", "notifications_delivery"]


def test_old_events_are_swept_in_chunks_and_young_ones_stay(sent, settings, monkeypatch):
    monkeypatch.setattr(queries, "CHUNK", 4)
    tell(*(event("opened", sent.pk) for _ in range(7)))
    keep = WebhookEvent.objects.first()
    old = timezone.now() - timedelta(days=settings.WEBHOOK_RETENTION_DAYS, seconds=1)
    WebhookEvent.objects.exclude(pk=keep.pk).update(received_at=old)
    assert sweep_old(timezone.now()) == 6
    assert WebhookEvent.objects.get() == keep


def test_an_event_that_breaks_stays_open_and_the_others_are_applied(sent, monkeypatch):
    move, strange = applying.deliveries.move, []

    def picky(said, now):
        if any(news.detail == "strange" for found in said.values() for news in found):
            raise ValueError("what is this?")
        return move(said, now)

    monkeypatch.setattr(applying.deliveries, "move", picky)
    monkeypatch.setattr(views, "apply", lambda ids, now: strange.append(ids))
    for detail in ("strange", "", ""):
        tell(event("delivered", sent.pk, detail=detail))
    assert apply_open(timezone.now()).total() == 2
    assert list(WebhookEvent.objects.filter(applied_at=None).values_list("detail", flat=True)) == ["strange"]
    assert status() == "delivered"
    assert sweep_old(timezone.now() + timedelta(days=100)) == 2, "what was not applied is kept until it is"
