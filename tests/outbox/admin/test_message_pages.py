"""The pages of messages and channels: every state renders, levers do what they say, mails stay in their frame."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.urls import reverse

from config.admin.levers import Operator
from config.database.clock import database_now
from config.environment.mail import MailServer
from outbox.audit_log.models import OperatorAction
from outbox.channels import handlers as registry
from outbox.channels import permits
from outbox.flow import Outbox
from outbox.messages.retention import sweep_keys
from outbox.models import ChannelState, DeliveryAttempt, IdempotencyKey, OutboxMessage
from tests.config.admin.conftest import client_with, list_of, page_of, reveal, seen
from tests.outbox.scripted import promise

pytestmark = pytest.mark.django_db
STATES = [state.value for state in OutboxMessage.State]
MAIL = '{"to":"m@example.com","from":"s@example.com","subject":"Paid","text":"Hi","html":"<script>alert(1)</script><p>Hi</p>"}'


@pytest.fixture
def messages():
    """One message in each state, tried once."""
    now = database_now()
    permits.ensure(["email"])
    found = {}
    for state in STATES:
        found[state] = row = OutboxMessage.objects.create(
            channel="email", event_type="order.paid", aggregate=f"order:{state}", payload=MAIL, state=state,
            attempts=1, available_at=now + timedelta(minutes=1), expires_at=now + timedelta(hours=1),
            created_at=now, sent_at=now if state == "sent" else None, error="451 later",
        )  # fmt: skip
        DeliveryAttempt.objects.create(
            message_id=row.pk, channel="email", number=1, lease_token=row.pk, path="cdc", worker="w",
            started_at=now, finished_at=now, outcome="transient", error="451 later",
        )  # fmt: skip
    return found


@pytest.mark.parametrize("state", STATES)
def test_every_state_has_its_page_and_its_list(boss, reader, messages, state):
    for client in (boss, reader):
        page = seen(client, page_of(messages[state]))
        assert f"order:{state}" in page
        assert f"order:{state}" in seen(client, f"{list_of(OutboxMessage)}?state={state}")


def test_who_may_not_see_payloads_sees_no_mail(reader, messages):
    page = seen(reader, page_of(messages["sent"]))
    assert "m@example.com" not in page
    body = reverse("admin:outbox_outboxmessage_body", args=[messages["sent"].pk])
    assert reader.get(body).status_code == 403


def test_data_that_are_no_mail_are_hidden_as_well(reader, messages):
    OutboxMessage.objects.filter(pk=messages["sent"].pk).update(payload='{"iban":"DE02120300000000202051"}')
    answer = reader.get(page_of(messages["sent"]))
    assert answer.context["payload"] == '{"••••": "••••"}'  # not left to the template alone
    assert "Values are dots." in answer.content.decode()
    assert "DE0212" not in answer.content.decode()


def test_the_body_of_a_mail_needs_the_right_to_see_messages_too(messages):
    body = reverse("admin:outbox_outboxmessage_body", args=[messages["sent"].pk])
    assert client_with("view_payload").get(body).status_code == 403
    both = client_with("view_payload", "view_outboxmessage")
    assert both.get(body).status_code == 403
    reveal(both, messages["sent"])
    assert both.get(body).status_code == 200


def test_a_mail_stands_in_a_sandbox(boss, messages):
    url = page_of(messages["sent"])
    reveal(boss, messages["sent"])
    page = boss.get(url).content.decode()
    assert 'sandbox title="' in page
    assert "<script>alert" not in page
    body = boss.get(reverse("admin:outbox_outboxmessage_body", args=[messages["sent"].pk]))
    policy = body["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert "sandbox" in policy
    assert body["X-Frame-Options"] == "SAMEORIGIN"


def test_a_message_that_is_no_mail_has_no_frame(boss, messages):
    OutboxMessage.objects.filter(pk=messages["sent"].pk).update(payload='["not", "a", "mail"]')
    reveal(boss, messages["sent"])
    assert "<iframe" not in seen(boss, page_of(messages["sent"]))
    body = reverse("admin:outbox_outboxmessage_body", args=[messages["sent"].pk])
    assert boss.get(body).status_code == 404


def pull(client, model, name, *rows, reason="asked for by the shop"):
    url = reverse(f"admin:outbox_{model}_lever", args=[name])
    return client.post(url, {"id": [row.pk for row in rows], "reason": reason})


@pytest.mark.parametrize(
    ("lever", "before", "after"),
    [
        ("try-now", "pending", "pending"), ("cancel", "pending", "cancelled"), ("it-was-sent", "uncertain", "sent"),
        ("send-again", "uncertain", "pending"), ("give-up", "uncertain", "dead_lettered"),
    ],
)  # fmt: skip
def test_levers_move_what_is_ready_and_nothing_else(boss, messages, lever, before, after):
    rows = list(messages.values())
    pull(boss, "outboxmessage", lever, *rows)
    for state, row in messages.items():
        row.refresh_from_db()
        assert row.state == (after if state == before else state)
    action = OperatorAction.objects.get()
    assert action.rows == 1
    assert action.reason == "asked for by the shop"


def test_a_page_offers_what_can_be_done_and_says_once_why_the_rest_cannot(boss, messages):
    sent = seen(boss, page_of(messages["sent"]))
    assert sent.count('<a class="sw-lever') == 1
    assert "Resend…</a>" in sent
    rest = "try now, mark as sent, send again, cancel the message, make it a dead letter."
    assert sent.count(f"The message is sent. Not possible now: {rest}") == 1
    pending = seen(boss, page_of(messages["pending"]))
    assert pending.count('<a class="sw-lever') == 2
    assert (
        "The message is pending. Not possible now: mark as sent, send again, resend, make it a dead letter." in pending
    )


def test_a_channel_is_paused_and_resumed_with_a_reason(boss, messages):
    row = ChannelState.objects.get()
    pull(boss, "channelstate", "pause", row, reason="the provider is moving")
    page = seen(boss, page_of(row))
    assert "the provider is moving" in page
    assert "Paused" in seen(boss, list_of(ChannelState))
    pull(boss, "channelstate", "resume", row)
    row.refresh_from_db()
    assert not row.paused
    assert [action.verb for action in OperatorAction.objects.order_by("id")] == ["pause", "resume"]


def test_a_broken_channel_says_so(boss, messages):
    permits.pause("email", Operator("ann"), "x")
    ChannelState.objects.update(
        paused=False, breaker="open", opened_at=database_now(), last_error="refused", failures=9
    )
    assert "Nobody answers" in seen(boss, page_of(ChannelState.objects.get()))


def test_an_outage_says_which_server_and_port_do_not_answer_and_no_password(boss, settings, monkeypatch):
    """On home, and so in the notice; on the channel's page and in its list; in doctor."""
    settings.EMAIL_SERVER, settings.EMAIL_CHANNEL = MailServer("mail.example", 2525, "ada", "secret-word"), "smtp"
    monkeypatch.setattr(registry, "installed", {})
    now = database_now()
    since = {"opened_at": now, "probe_at": now, "updated_at": now}
    row = ChannelState.objects.create(
        name="email", breaker="open", failures=3, last_error="TimeoutError: timed out", **since
    )
    (need,) = [need for need in Outbox().home_row(now).needs if need.title.startswith("Nobody answers")]
    pages = [boss.get(f"/admin/outbox/channelstate/{path}").content.decode() for path in (f"{row.pk}/change/", "")]
    doctor = [detail for name, _ok, detail in Outbox().diagnose() if name == "channel email"]
    for told in (need.why, *pages, *doctor):
        assert "mail.example:2525: TimeoutError: timed out" in told
        assert "secret-word" not in told


def test_search_finds_an_id_and_what_an_aggregate_still_has_to_send(boss, messages):
    for key in (messages["sent"].pk, "order:pending"):
        answer = boss.get(f"/admin/find/?q={key}")
        assert answer.status_code == 302
        assert "/outboxmessage/" in answer.url
    assert boss.get("/admin/find/?q=order:nobody").status_code == 200


def test_search_finds_the_messages_of_a_trace(boss, messages):
    """Wherever in the range of a span's id it stands; the neighbours belong to other traces."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    told = {
        "sent": f"00-{trace}-{'f' * 16}-01", "pending": f"00-{trace}-{'0' * 15}1-00",
        "uncertain": f"00-{trace[:-1]}7-{'0' * 15}1-01", "expired": f"00-{trace[:-1]}5-{'f' * 16}-01",
    }  # fmt: skip
    for state, traceparent in told.items():
        OutboxMessage.objects.filter(pk=messages[state].pk).update(traceparent=traceparent)
    for key in (trace, trace.upper(), told["sent"]):
        html = boss.get(f"{list_of(OutboxMessage)}?q={key}").content.decode()
        found = {state for state in told if str(messages[state].pk) in html}
        assert found == {"sent", "pending"}
    assert f"<code>{trace}</code>" in boss.get(page_of(messages["sent"])).content.decode()
    assert not OutboxMessage.objects.of_trace("no trace").exists()


@pytest.mark.parametrize("page", ["change", "history", "delete"])
def test_a_key_that_no_row_can_have_is_answered_like_one_that_no_row_has(boss, messages, page):
    for key in ("_00", "%00", "nobody"):
        answer = boss.get(f"{list_of(ChannelState)}{key}/{page}/")
        assert answer.status_code in (302, 403), key
    for key in ("\x00", "nobody"):
        answer = pull(boss, "channelstate", "pause", SimpleNamespace(pk=key), reason="x")
        assert answer.status_code in (200, 302, 404), repr(key)
    assert not ChannelState.objects.get().paused


@pytest.mark.parametrize("days", [0, 6.5, 30])
@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_the_page_of_an_old_message_shows_its_key(boss, memory, days, rounds):
    """Also one that is kept longer than others."""
    pk, then = promise(key="zq-planted"), database_now() - timedelta(days=days)
    OutboxMessage.objects.update(created_at=then)
    IdempotencyKey.objects.update(created_at=then)
    for ago in range(rounds - 1, -1, -1):
        sweep_keys(database_now() - timedelta(days=ago))
    assert "zq-planted" in boss.get(f"/admin/outbox/outboxmessage/{pk}/change/").content.decode()
