"""The e-mail handler inside the relay: suppression, channels, and what is remembered of a delivery."""

import pytest
from django.core.checks import run_checks
from django.db import connection
from django.test.utils import CaptureQueriesContext

from config.admin.levers import Operator
from config.database.clock import database_now
from config.environment.mail import MailServer
from notifications import channels
from notifications.channels.local import Memory
from notifications.email_handler import EmailHandler
from notifications.mail import suppression
from notifications.models import Delivery, Suppression
from outbox.audit_log.models import ActionSubject, OperatorAction
from outbox.channels import handlers as registry
from outbox.channels.handlers import Outcome
from outbox.letters.models import DeadLetter
from outbox.models import ChannelState, DeliveryAttempt, OutboxMessage
from tests.logged import lines
from tests.notifications.post import go, paid, state_of
from tests.notifications.smtp_sink import Sink
from tests.outbox.aged import aged

ME = Operator("test")


def test_a_paid_order_becomes_one_mail_and_one_delivery(email):
    message = paid()
    assert go(email) == 1
    [(key, mail)] = Memory.sent
    assert (key, mail.to) == (str(message.pk), "ada@example.com")
    delivery = Delivery.objects.get()
    order_id = message.aggregate.removeprefix("order:")
    assert (delivery.message_id, delivery.order_id, delivery.recipient) == (message.pk, order_id, "ada@example.com")
    assert (delivery.status, delivery.provider) == ("accepted", "memory")
    assert delivery.provider_message_id == f"memory-{message.pk}"


def test_deliveries_of_a_batch_are_written_together(email, settings):
    settings.EMAIL_WINDOW = 50
    handler = EmailHandler()
    handler.name = "email"
    for number in range(30):
        paid(f"user{number}@example.com")
    with CaptureQueriesContext(connection) as queries:
        assert go(handler) == 30
    assert Delivery.objects.count() == 30
    written = [query for query in queries if "INSERT INTO" in query["sql"] and "notifications_delivery" in query["sql"]]
    asked = [query for query in queries if "notifications_suppression" in query["sql"]]
    assert (len(written), len(asked)) == (1, 1)


@pytest.mark.parametrize("address", ["ada@example.com", "ADA@example.com"])
def test_a_suppressed_address_gets_nothing_and_says_why(email, address):
    suppression.suppress({"Ada@example.com": ("hard_bounce", "550 no such user")}, database_now())
    message, other = paid(address), paid("eve@example.com")
    assert go(email) == 1
    assert [mail.to for _, mail in Memory.sent] == ["eve@example.com"]
    assert (state_of(message), state_of(other)) == ("dead_lettered", "sent")
    letter = DeadLetter.objects.get()
    assert (letter.reason, letter.error) == ("suppressed", "suppressed: bounced for good")
    assert DeliveryAttempt.objects.get(message_id=message.pk).outcome == "permanent"
    assert not Delivery.objects.filter(pk=message.pk).exists()


def test_lifting_lets_mail_through_again(email):
    assert suppression.add(["Ada@Example.com", "ada@example.com "], ME, "asked by telephone") == 1
    assert suppression.add(["ada@example.com"], ME, "again") == 0
    row = Suppression.objects.get()
    assert suppression.lift([row.pk], ME, "changed her mind") == 1
    assert suppression.lift([row.pk], ME, "changed her mind") == 0
    paid()
    assert go(email) == 1
    actions = list(OperatorAction.objects.order_by("pk").values_list("verb", "reason"))
    assert actions == [("suppress", "asked by telephone"), ("lift suppression", "changed her mind")]
    assert "ada@" not in "".join(OperatorAction.objects.values_list("subject", flat=True))


def test_many_addresses_are_one_action_and_one_line_of_each_kind(db, caplog, django_capture_on_commit_callbacks):
    addresses = [f"u{number}@example.com" for number in range(3)]
    hashes = sorted(map(suppression.hash_of, addresses))

    def lines_of(act, *arguments):
        caplog.clear()
        with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
            assert act(*arguments, ME, "asked for it") == 3
        assert "@" not in str(lines(caplog))
        return {line["event"]: line for line in lines(caplog)}, len(lines(caplog))

    said, number = lines_of(suppression.add, addresses)
    keys = list(Suppression.objects.order_by("address_hash").values_list("pk", flat=True))
    assert number == 2
    assert said["addresses_suppressed"]["address_hash"] == hashes
    assert (said["action_recorded"]["rows"], said["action_recorded"]["subject_id"]) == (3, list(map(str, keys)))
    action = OperatorAction.objects.get()
    assert (action.subject, action.rows) == (f"address {hashes[0]} and 2 more", 3)
    assert action.detail == {"addresses": hashes}

    said, number = lines_of(suppression.lift, [*keys, 0])
    assert number == 1
    assert said["action_recorded"]["subject_id"] == list(map(str, keys))
    assert not Suppression.objects.exists()
    action = OperatorAction.objects.get(verb="lift suppression")
    assert (action.detail["addresses"], action.detail["reason"]) == (hashes, ["manual"] * 3)
    assert set(action.detail) == {"addresses", "reason", "since", "note"}
    for key in keys:
        assert ActionSubject.objects.filter(subject_type="notifications.suppression", subject_id=str(key)).count() == 2


def test_a_bad_address_cannot_be_suppressed(db):
    with pytest.raises(ValueError, match="one bare address"):
        suppression.add(["a@b.cd,e@f.gh"], ME, "x")


def test_a_complaint_outweighs_what_is_known_and_keeps_its_time(db):
    first = database_now()
    suppression.suppress({"a@b.cd": ("hard_bounce", "one")}, first)
    suppression.suppress({"a@b.cd": ("complaint", "two")}, database_now())
    suppression.suppress({"A@b.cd": ("hard_bounce", "three")}, database_now())
    row = Suppression.objects.get()
    assert row.reason == "complaint"
    assert abs((row.since - first).total_seconds()) < 0.001


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Outcome("permanent", "no"), "dead_lettered"), (Outcome("transient", "later", least_wait=60), "pending"),
        (Outcome("ambiguous", "?"), "uncertain"), (Outcome("auth", "wrong key"), "pending"),
        (Outcome("throttled", "slow", retry_after=9), "pending"), (Outcome("unreachable", "down"), "pending"),
    ],
)  # fmt: skip
def test_what_was_not_accepted_has_no_delivery(email, outcome, state):
    Memory.script.append(outcome)
    message = paid()
    assert go(email) == 0
    assert state_of(message) == state
    assert not Delivery.objects.exists()
    assert ChannelState.objects.get(name="email").paused is (outcome.kind == "auth")


def test_a_second_acceptance_of_the_same_message_stays_one_delivery(email):
    message = paid()
    go(email)
    Delivery.objects.update(status="delivered")
    OutboxMessage.objects.filter(pk=message.pk).update(state="pending")
    assert go(email) == 1
    assert Delivery.objects.get().status == "delivered"


def test_a_message_older_than_the_retention_is_sent_and_leaves_no_delivery(email, settings):
    settings.OUTBOX_RETENTION_DAYS = 1
    message = paid()
    message.pk = aged(message.pk, 40)
    assert go(email) == 1
    assert state_of(message) == "sent"
    assert Delivery.objects.exists() is (connection.vendor == "mysql")  # where the next day takes it


def test_memory_drops_a_second_mail_with_a_known_key_if_told_to(email, settings):
    email.channel.keys_last = 60.0
    for _ in range(2):
        assert email.channel.send(_mail(), "k").ok
    assert len(Memory.sent) == 1


def test_the_console_shows_the_mail(settings, capsys):
    settings.EMAIL_CHANNEL = "console"
    assert channels.configured().send(_mail(), "k").ok
    assert "To: ada@example.com" in capsys.readouterr().out


def test_a_payload_that_is_no_mail_is_refused_before_it_is_written(email):
    for payload in (None, [], {}, {"to": "x"}, _payload(to="a@b.cd,e@f.gh"), _payload(subject="x\nBcc: e@f.gh")):
        with pytest.raises(ValueError, match=r"."):
            email.check(payload)
    email.check(_payload())


def test_a_stored_payload_that_is_no_mail_is_a_letter_not_a_crash(email):
    message = paid()
    OutboxMessage.objects.update(payload='{"to": "a@b.cd"}')
    assert go(email) == 0
    assert state_of(message) == "dead_lettered"
    assert "not a mail" in DeadLetter.objects.get().error


def test_an_answer_that_was_lost_is_uncertain_and_sent_again_by_policy(email, settings):
    with Sink() as sink:
        settings.EMAIL_CHANNEL, settings.EMAIL_SERVER = "smtp", MailServer("127.0.0.1", sink.port)
        registry.installed.clear()
        handler = registry.handlers()["email"]
        sink.script.append("dot:drop")
        message = paid()
        assert go(handler) == 0
        row = OutboxMessage.objects.get(pk=message.pk)
        assert (row.state, row.times_uncertain) == ("uncertain", 1)
        assert sink.counts().total() == 1


def test_no_address_reaches_the_log(email, caplog):
    Memory.script.append(Outcome("permanent", channels.error_line("550 ada@example.com: no such <user@x.yz>")))
    paid()
    go(email)
    assert "ada@" not in caplog.text
    assert "@" not in DeadLetter.objects.get().error


def test_rate_and_policy_come_from_the_settings(email, settings):
    settings.EMAIL_RATE_PER_SECOND, settings.EMAIL_UNCERTAIN = 12.5, "hold"
    assert (email.rate(), email.when_uncertain()) == (12.5, "hold")


@pytest.mark.parametrize(
    ("changes", "ident"),
    [
        ({"EMAIL_FROM": "nobody"}, "E041"), ({"EMAIL_FROM": "A\n<a@b.cd>"}, "E041"),
        ({"EMAIL_CHANNEL": "anymail", "EMAIL_ESP": "nosuch"}, "E042"), ({"EMAIL_WEBHOOK_SECRETS": {"nosuch": ["x"]}}, "E043"),
        ({"EMAIL_TIMEOUT_SECONDS": 200}, "E045"),
    ],
)  # fmt: skip
def test_a_mail_that_could_never_leave_is_found_at_the_start(settings, changes, ident):
    assert not [found for found in run_checks() if found.id and found.id.startswith("spillway.E04")]
    for name, value in changes.items():
        setattr(settings, name, value)
    assert f"spillway.{ident}" in {found.id for found in run_checks()}


def test_channels_that_pretend_are_refused_in_production(settings):
    settings.EMAIL_CHANNEL, settings.DEMO = "memory", False
    assert "spillway.E040" in {found.id for found in run_checks(include_deployment_checks=True)}


def _payload(**changes):
    return {"to": "ada@example.com", "from": "shop@example.com", "subject": "s", "text": "t", "html": "h", "headers": {},
            **changes}  # fmt: skip


def _mail():
    from tests.notifications.mail.test_recipients import mail

    return mail()
