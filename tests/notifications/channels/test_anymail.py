"""Providers with an API, against a real HTTP server: every way a request can end, and keys."""

import socket
import uuid
from types import SimpleNamespace

import pytest
from anymail.exceptions import AnymailError
from anymail.message import AnymailStatus

from notifications.channels.anymail import Anymail, _without_answer, accepted, causes, outcome_of, retry_after
from notifications.email_handler import EmailHandler
from tests.notifications.mail.test_recipients import mail
from tests.notifications.provider import Provider

KEY = str(uuid.uuid4())
MAIL = mail(headers={"Message-ID": "<1@example.com>", "Date": "Fri, 20 Nov 2026 12:00:00 +0000", "X-Ref": "7"})


@pytest.fixture
def provider():
    with Provider() as found:
        yield found


@pytest.fixture
def use(provider, settings):
    """A channel through one of the provider's faces."""
    settings.EMAIL_CHANNEL = "anymail"
    settings.EMAIL_TIMEOUT_SECONDS = 0.9

    def make(esp: str = "resend") -> Anymail:
        settings.EMAIL_ESP = esp
        settings.ANYMAIL = {
            "RESEND_API_KEY": "k", "RESEND_API_URL": provider.url, "BREVO_API_KEY": "k", "BREVO_API_URL": provider.url,
            "POSTMARK_SERVER_TOKEN": "k", "POSTMARK_API_URL": provider.url,
        }  # fmt: skip
        return Anymail()

    return make


@pytest.mark.parametrize("esp", ["resend", "brevo"])
def test_a_mail_arrives_with_its_key_and_our_id(use, provider, esp):
    outcome = use(esp).send(MAIL, KEY)
    assert (outcome.kind, outcome.receipt) == ("sent", "mail-1")
    assert provider.accepted[0]["message_id"] == KEY
    [request] = provider.requests
    assert request["key"] == KEY
    assert '"X-Ref"' in request["raw"].decode()
    assert "Fri, 20 Nov" not in request["raw"].decode()  # a provider writes its own


@pytest.mark.parametrize(("given", "parts"), [({"html": ""}, {"text", "html"}), ({"text": " "}, {"html"})])
def test_no_part_of_a_mail_is_blank(use, provider, given, parts):
    assert use("resend").send(mail(**given), KEY).kind == "sent"
    body = provider.requests[0]["body"]
    assert {name for name in ("text", "html") if name in body} == parts
    assert all(body[name].strip() for name in parts)


def test_every_try_is_the_same_request(use, provider):
    channel = use()
    for _ in range(3):
        channel.send(MAIL, KEY)
    assert len({request["raw"] for request in provider.requests}) == 1
    assert {request["key"] for request in provider.requests} == {KEY}


def test_a_key_belongs_to_one_mail_also_on_a_kept_connection(use, provider):
    channel = use()
    channel.send(MAIL, "one")
    channel.send(MAIL, "two")
    assert [request["key"] for request in provider.requests] == ["one", "two"]


@pytest.mark.parametrize("esp", ["postmark"])
def test_a_provider_without_keys_gets_metadata_only(use, provider, esp):
    provider.script.append('json:422:{"ErrorCode": 406, "Message": "inactive ada@example.com"}')
    channel = use(esp)
    outcome = channel.send(MAIL, KEY)
    assert outcome.kind == "permanent"
    assert "ada@" not in outcome.error
    assert channel.keys_last == 0
    assert provider.requests[0]["body"]["Metadata"] == {"message_id": KEY}
    assert provider.requests[0]["key"] == ""


@pytest.mark.parametrize(
    ("script", "kind", "accepted"),
    [
        ("429:7", "throttled", 0), ("429", "throttled", 0), ("500", "unreachable", 0), ("502", "unreachable", 0),
        ("503", "unreachable", 0), ("302", "unreachable", 0), ("401", "auth", 0), ("403", "auth", 0), ("402", "auth", 0), ("400", "permanent", 0),
        ("422", "permanent", 0), ("413", "permanent", 0), ("408", "transient", 0), ("409", "permanent", 0),
        ('json:409:{"name": "concurrent_idempotent_requests"}', "transient", 0), ("json:200:[]", "ambiguous", 0),
        ("drop_before", "ambiguous", 0), ("drop_after", "ambiguous", 1), ("hang_before:5", "ambiguous", 0),
        ("hang_after:5", "ambiguous", 1), ("slow:0.1", "sent", 1),
    ],
)  # fmt: skip
def test_every_way_it_can_end_has_its_class(use, provider, script, kind, accepted):
    provider.script.append(script)
    channel = use()
    outcome = channel.send(MAIL, KEY)
    assert outcome.kind == kind, outcome
    assert outcome.retry_after == (7 if script == "429:7" else 0)
    assert "@" not in outcome.error
    assert len(provider.accepted) == accepted
    assert channel.send(MAIL, "next").kind == "sent"


def test_an_answer_that_anymail_cannot_read_may_mean_it_is_out(use, provider):
    answer = '{"ErrorCode": 0, "Message": "OK", "MessageID": "x", "To": "", "SubmittedAt": ""}'
    provider.script.append(f"json:200:{answer}")
    assert use("postmark").send(MAIL, KEY).kind == "ambiguous"


def test_nobody_there_is_unreachable(use, settings):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    channel = use()
    for url in (f"http://127.0.0.1:{port}", "http://no-such-host.invalid"):
        settings.ANYMAIL = {"RESEND_API_KEY": "k", "RESEND_API_URL": url}
        assert channel.send(MAIL, KEY).kind == "unreachable"


def test_a_missing_key_pauses_instead_of_burying(use, settings):
    channel = use()
    settings.ANYMAIL = {}
    outcome = channel.send(MAIL, KEY)
    assert outcome.kind == "auth"
    assert "RESEND_API_KEY" in outcome.error


def test_a_provider_that_honours_keys_accepts_once(use, provider):
    provider.honours_keys = True
    provider.script.append("drop_after")
    channel = use()
    assert [channel.send(MAIL, KEY).kind for _ in range(3)] == ["ambiguous", "sent", "sent"]
    assert provider.counts() == {KEY: 1}
    assert channel.send(mail(subject="another"), KEY).kind == "permanent"  # 409: not what was accepted


@pytest.mark.parametrize(
    ("esp", "expires", "honours"),
    [("resend", 86_400, True), ("resend", 86_401, False), ("brevo", 86_400, False), ("brevo", 900, True),
     ("postmark", 1, False)],
)  # fmt: skip
def test_keys_are_relied_on_only_while_they_outlive_the_message(use, settings, esp, expires, honours):
    use(esp)
    settings.OUTBOX_EXPIRES_SECONDS = expires
    assert EmailHandler().honours_keys is honours


# -- Amazon, whose SDK is not installed here -------------------------------------------------------------
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (429, "TooManyRequestsException", "throttled"), (400, "LimitExceededException", "throttled"),
        (400, "MessageRejected", "permanent"), (400, "MailFromDomainNotVerifiedException", "auth"),
        (400, "SendingPausedException", "auth"), (500, "InternalFailure", "unreachable"), (403, "AccessDenied", "auth"),
    ],
)  # fmt: skip
def test_amazons_errors_have_their_class(status, code, kind):
    response = {
        "Error": {"Code": code},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {"retry-after": "3"}},
    }
    outcome = outcome_of(response, "amazon_ses")
    assert outcome.kind == kind
    assert outcome.retry_after == (3 if kind == "throttled" else 0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("EndpointConnectionError", "unreachable"), ("ConnectTimeoutError", "unreachable"), ("NoCredentialsError", "auth"),
     ("ReadTimeoutError", "ambiguous"), ("ConnectionClosedError", "ambiguous")],
)  # fmt: skip
def test_amazons_silence_has_its_class(name, kind):
    error = AnymailError("text")
    error.__cause__ = type(name, (Exception,), {})("text")
    assert _without_answer(error).kind == kind


def test_amazons_own_retries_are_off(use, settings):
    channel = use("amazon_ses")
    settings.ANYMAIL = {"AMAZON_SES_CLIENT_PARAMS": {"region_name": "eu-west-1"}}
    params = channel._options()["client_params"]
    assert params["region_name"] == "eu-west-1"
    assert params["config"]["retries"] == {"total_max_attempts": 1}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("12", 12), ("-5", 0), ("", 0), ("soon", 0), ("Fri, 20 Nov 2020 12:00:00 GMT", 0), ("nan", 0), ("inf", 0)],
)
def test_retry_after_is_read_as_told(text, seconds):
    assert retry_after(SimpleNamespace(headers={"retry-after": text})) == seconds


def test_a_date_is_a_time_to_wait():
    answer = SimpleNamespace(headers={"retry-after": "Fri, 20 Nov 2099 12:00:00 GMT"})
    assert retry_after(answer) > 1e6


def test_a_ring_of_causes_ends():
    error = ValueError()
    error.args = (error,)
    assert list(causes(error)) == [error]


def test_silence_about_the_recipient_is_no_acceptance():
    told = AnymailStatus()
    told.status = {"unknown"}
    assert accepted(told, "resend").kind == "ambiguous"
