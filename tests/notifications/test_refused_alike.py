"""A mistake in the account, against a real mail server and a provider's API: the channel pauses, and no mail is lost by it."""

import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from config.environment.mail import MailServer
from notifications.models import Suppression
from outbox.channels import handlers as registry
from outbox.channels import permits
from outbox.delivery.candidates import lower_bound
from outbox.models import ChannelState, DeadLetter, OutboxMessage
from tests.notifications.post import go, paid
from tests.notifications.provider import Provider
from tests.notifications.smtp_sink import Sink

pytestmark = pytest.mark.django_db
ME = Operator("me")
MAILS = 17


@pytest.fixture
def channel(settings):
    """The e-mail handler of these settings."""
    settings.HANDLERS = {"email": "notifications.email_handler.EmailHandler"}

    def make(**more):
        for name, value in more.items():
            setattr(settings, name, value)
        registry.installed.clear()
        lower_bound.forget()
        permits.ensure(["email"])
        return registry.handlers()["email"]

    yield make
    registry.installed.clear()


@pytest.fixture
def smtp(channel):
    with Sink() as sink:
        yield sink, channel(EMAIL_CHANNEL="smtp", EMAIL_SERVER=MailServer("127.0.0.1", sink.port))


@pytest.fixture
def api(channel):
    with Provider() as provider:
        options = {
            "RESEND_API_KEY": "k", "RESEND_API_URL": provider.url, "MAILGUN_API_KEY": "k", "MAILGUN_API_URL": provider.url,
            "MAILGUN_SENDER_DOMAIN": "mg.example.com",
        }  # fmt: skip
        yield provider, lambda esp: channel(EMAIL_CHANNEL="anymail", EMAIL_ESP=esp, ANYMAIL=options)


def sells(number=MAILS):
    return [paid(f"ada.{at}@example.com") for at in range(number)]


def states():
    rows = OutboxMessage.objects.order_by().values_list("state", flat=True)
    return {state: list(rows).count(state) for state in set(rows)}


def paused():
    return ChannelState.objects.get(name="email").pause_reason


def test_relaying_denied_at_rcpt_pauses_after_ten_and_all_arrive_when_it_is_allowed(smtp, admin_client):
    sink, handler = smtp
    sells()
    sink.refuse = lambda recipient: f"554 5.7.1 <{recipient}>: Relay access denied"
    assert go(handler) == 0
    assert states() == {"dead_lettered": 10, "pending": 7}
    assert "refused alike: RCPT: 554 5.7.1" in paused()
    assert "Relay access denied" in paused()
    assert "example.com" not in paused()
    page = admin_client.get("/admin/", follow=True).content.decode()
    assert "Channel email is paused" in page
    assert "Relay access denied" in page
    sink.refuse = lambda recipient: ""
    permits.resume("email", ME, "relaying is allowed")
    assert go(handler) == MAILS
    assert set(sink.counts().values()) == {1}
    assert (states(), DeadLetter.objects.open().count()) == ({"sent": MAILS}, 0)
    assert not Suppression.objects.exists()


def test_refused_at_the_end_of_every_mail_pauses_as_well(smtp):
    sink, handler = smtp
    sells()
    sink.script.extend(["dot:554"] * MAILS)
    go(handler)
    assert states() == {"dead_lettered": 10, "pending": 7}
    assert "DATA: 554" in paused()


@pytest.mark.parametrize("said", ["550 5.1.1 no such user", "550 mailbox unavailable", "552 5.2.2 mailbox full"])
def test_ten_recipients_known_to_be_bad_pause_it_and_one_that_is_refused_again_does_not(smtp, said):
    sink, handler = smtp
    for _ in range(12):
        paid("eve@example.com")
    sink.refuse = lambda recipient: said
    go(handler)
    assert (paused(), states()) == ("", {"dead_lettered": 12})
    sells(12)
    go(handler)
    assert f"refused alike: RCPT: {said}" in paused()
    assert states() == {"dead_lettered": 21, "pending": 3}
    sink.refuse = lambda recipient: ""
    permits.resume("email", ME, "their directory is back")
    go(handler)
    assert states()["sent"] >= 12


@pytest.mark.parametrize("step", ["rcpt", "dot"])
@pytest.mark.parametrize(
    ("reply", "seconds"),
    [
        ("550 5.4.5 Daily user sending quota exceeded", 3600), ("550 Outgoing mail quota exceeded for this account", 3600),
        ("550 Domain example.com has exceeded the max emails per hour (5/5 (100%)) allowed. Message discarded.", 900),
        ("454 Throttling failure: Maximum sending rate exceeded.", 1), ("421 4.7.28 an unusual rate of mail", 900),
    ],
)  # fmt: skip
def test_a_sending_limit_waits_and_costs_neither_letter_nor_try(smtp, step, reply, seconds):
    sink, handler = smtp
    sells(3)
    sink.replies[step] = reply
    before = database_now()
    go(handler)
    assert states() == {"pending": 3}
    assert set(OutboxMessage.objects.values_list("attempts", flat=True)) == {0}
    until = ChannelState.objects.get(name="email").wait_until
    assert seconds - 1 <= (until - before).total_seconds() <= seconds + 30
    assert paused() == ""
    assert sink.accepted == []


@pytest.mark.parametrize("step", ["rcpt", "dot"])
@pytest.mark.parametrize(
    "reply",
    [
        "554 5.2.0 STOREDRV.Submission.Exception:SendAsDeniedException.MapiExceptionSendAsDenied; Failed to process message",
        "550 5.7.60 SMTP; Client does not have permissions to send as this sender",
        "554 Message rejected: Email address is not verified.", "550 Maximum credits exceeded",
        "553 5.7.1 <shop@example.com>: Sender address rejected: not owned by user",
    ],
)  # fmt: skip
def test_a_sender_or_an_account_that_is_refused_pauses_at_once_and_costs_no_letter(smtp, step, reply):
    sink, handler = smtp
    sells(3)
    sink.replies[step] = reply
    go(handler)
    assert states() == {"pending": 3}
    assert paused().startswith(f"account or credentials refused: {'RCPT' if step == 'rcpt' else 'DATA'}: {reply[:3]}")


def test_a_domain_that_the_provider_does_not_know_pauses_at_once_and_costs_no_letter(api):
    provider, use = api
    handler = use("mailgun")
    sells(20)
    provider.script.append('json:404:{"message": "Domain not found: mg.example.com"}')
    go(handler)
    assert states() == {"pending": 20}
    assert "404" in paused()
    assert "Domain not found" in paused()
    assert len(provider.requests) == 1


def test_a_refusal_that_no_table_knows_pauses_after_ten(api):
    provider, use = api
    handler = use("resend")
    sells()
    provider.script.extend(['json:422:{"name": "odd_thing", "message": "No more for ada@example.com"}'] * 10)
    go(handler)
    assert (states(), len(provider.requests)) == ({"dead_lettered": 10, "pending": 7}, 10)
    assert "odd_thing" in DeadLetter.objects.first().error
    permits.resume("email", ME, "they changed their mind")
    assert go(handler) == MAILS
    assert states() == {"sent": MAILS}


def test_home_and_the_lever_say_what_comes_back(smtp, admin_client):
    sink, handler = smtp
    sells(10)
    sink.refuse = lambda recipient: "554 5.7.1 Relay access denied"
    go(handler)
    page = admin_client.get("/admin/outbox/channelstate/email/change/", follow=True).content.decode()
    assert "10 recipients in a row were refused alike" in page
    assert "Comes back on resume" in page
