"""Every payload of the corpus, whole and with each of its fields spoilt: a verified event is never lost."""

import copy
import itertools
import json
import time
import uuid

import pytest

from config.database.clock import database_now
from notifications.models import Delivery, Suppression, WebhookEvent
from notifications.webhooks import signatures
from notifications.webhooks.inbox import store
from notifications.webhooks.providers import PROVIDERS
from tests.notifications import signing
from tests.notifications.post import go, paid
from tests.notifications.webhooks.payloads import ADA, MESSAGE, PAYLOADS

TOPIC = "arn:aws:sns:eu-west-1:1:mails"
SAMPLES = [
    pytest.param(esp, sample, id=f"{esp} {sample.name}") for esp, samples in PAYLOADS.items() for sample in samples
]
SPOILT = (
    None,
    [],
    {},
    "",
    "x",
    5,
    -1.5,
    True,
    [None, 5],
    {"x": None},
    "\x00\ud83d",
    10**30,
    "9999-12-31T23:59:59-12:00",
)
ABSENT = object()
NEEDED = {"generic": {("id",), ("event",)}}  # our own format may insist


def around(esp, body):
    """The request's JSON that brings this payload."""
    if esp == "amazon_ses":
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        return {
            "Type": "Notification", "MessageId": str(uuid.uuid4()), "TopicArn": TOPIC, "Message": json.dumps(body), "Timestamp": stamp,
            "SignatureVersion": "1", "Signature": "x", "Subject": None,
            "SigningCertURL": f"https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-{'0' * 32}.pem",
        }  # fmt: skip
    if esp == "mailgun":
        return {**json.loads(signing.mailgun("", "")[0]), "event-data": None, **body}
    return [body] if esp == "sendgrid" else body


def read(esp, body):
    return PROVIDERS[esp].read(json.dumps(around(esp, body)).encode(), {"svix-id": str(uuid.uuid4())})


def places(value, path=()):
    """The path of every field and element below."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inner:
        yield (*path, key)
        yield from places(below, (*path, key))


def spoilt(body, path, value):
    """A copy with another value at this path, or without it."""
    changed = copy.deepcopy(body)
    *way, last = path
    place = changed
    for step in way:
        place = place[step]
    if value is ABSENT:
        del place[last]
    else:
        place[last] = value
    return changed


def spoilt_copies(esp, body):
    for path, value in itertools.product(places(body), (*SPOILT, ABSENT)):
        if path not in NEEDED.get(esp, ()):
            yield spoilt(body, path, value)


@pytest.mark.parametrize(("esp", "sample"), SAMPLES)
def test_a_payload_is_read_as_what_it_says(esp, sample):
    [event] = read(esp, sample.body)
    assert event.kind == sample.kind
    if sample.kind != "other":
        assert (str(event.message_id), event.recipient) == (MESSAGE, ADA)
        assert event.provider_message_id
        assert event.occurred_at.year == 2026


@pytest.mark.parametrize(("esp", "sample"), SAMPLES)
def test_whatever_a_field_holds_the_event_is_read(esp, sample):
    for body in spoilt_copies(esp, sample.body):
        [event] = read(esp, body)
        assert event.dedup_id, body
        json.loads(event.raw)


@pytest.mark.parametrize("esp", PAYLOADS)
def test_whatever_a_field_holds_the_event_is_stored(db, esp):
    """In every database: of each kind a share of the copies."""
    samples = {sample.kind: sample.body for sample in PAYLOADS[esp]}
    bodies = [body for whole in samples.values() for body in [whole, *list(spoilt_copies(esp, whole))[::13]]]
    events = [event for body in bodies for event in read(esp, body)]
    now = database_now()
    for part in range(0, len(events), 500):
        store(events[part : part + 500], esp, {}, now)
    assert WebhookEvent.objects.count() == len({event.dedup_id for event in events})


@pytest.mark.parametrize("path", [(name,) for name in PAYLOADS["sendgrid"][3].body])
def test_a_spoilt_element_loses_none_of_the_others(path):
    good = [sample.body for sample in PAYLOADS["sendgrid"]]
    bad = [spoilt(good[3], path, value) for value in (*SPOILT, ABSENT)]
    odd = [None, 5, "text", [], [[]], {}]
    raw = json.dumps([one for three in itertools.zip_longest(good, bad, odd) for one in three]).encode()
    events = PROVIDERS["sendgrid"].read(raw, {})
    assert [event.kind for event in events[::3]][: len(good)] == [sample.kind for sample in PAYLOADS["sendgrid"]]
    known = {event.dedup_id for event in events[::3][: len(good)]}
    assert known == {event.dedup_id for body in good for event in read("sendgrid", body)}


def test_elements_that_name_nothing_are_told_apart():
    raw = json.dumps([{"event": "processed", "message_id": name, "sg_message_id": None} for name in "ab"]).encode()
    assert len({event.dedup_id for event in PROVIDERS["sendgrid"].read(raw, {})}) == 2
    alike = [json.dumps({"RecordType": "Bounce", "Metadata": {"message_id": name}}).encode() for name in "ab"]
    assert len({event.dedup_id for raw in alike for event in PROVIDERS["postmark"].read(raw, {})}) == 2


@pytest.mark.parametrize("esp", PAYLOADS)
@pytest.mark.parametrize(
    "text",
    [rb'"cut \ud83d"', b'"caf\xe9"', b'"a\x01b"', b"NaN", b"1e999", b'"\\u0000"', b'"\xf0\x9f\x98\x80"', b"1" * 400],
)
def test_a_text_that_was_cut_or_is_no_utf8_costs_a_character(db, esp, text):
    """A server's reply is cut to a length by whoever passes it on."""
    for place in ("mail-x", "detail"):
        body = {**PAYLOADS[esp][1].body, place: "HERE"}
        raw = json.dumps(around(esp, body)).encode()
        raw = raw.replace(rb"\"HERE\"", text.replace(b"\\", b"\\\\").replace(b'"', rb"\"")).replace(b'"HERE"', text)
        [event] = events = PROVIDERS[esp].read(raw, {"svix-id": place})
        assert (event.kind, str(event.message_id)) == (PAYLOADS[esp][1].kind, MESSAGE)
        assert len(store(events, esp, {}, database_now())) == 1
        WebhookEvent.objects.all().delete()


# -- what they do ------------------------------------------------------------------------------------------
@pytest.fixture
def sent(email, settings, monkeypatch):
    """A mail that was delivered an hour before the providers' news."""
    settings.EMAIL_WEBHOOK_SECRETS = {**signing.SECRETS, "amazon_ses": [TOPIC]}
    monkeypatch.setattr(signatures, "_check", lambda *_: None)
    message = paid()
    go(email)
    Delivery.objects.update(status="delivered", status_at="2026-11-20T11:00:00Z")
    return message


def tell(esp, sample, message):
    """Post it about this message, signed; the delivery's status, and why the address is suppressed, if it is."""
    body = json.loads(json.dumps(sample.body).replace(MESSAGE, str(message.pk)))
    raw, headers = json.dumps(around(esp, body)).encode(), {}
    if esp == "postmark":
        headers = signing.postmark("", "")[1]
    elif esp == "generic":
        raw, headers = signing.generic(raw)
    answer = signing.post((raw, headers), esp)
    assert answer.status_code == 204, answer.content
    return Delivery.objects.get().status, Suppression.objects.values_list("reason", flat=True).first()


ENDS = {
    "accepted": ("delivered", None), "deferred": ("delivered", None), "delivered": ("delivered", None),
    "other": ("delivered", None), "rejected": ("rejected", None), "bounced": ("bounced", "hard_bounce"),
    "complained": ("complained", "complaint"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("esp", "sample"), [each for each in SAMPLES if each.values[0] in ("mailgun", "postmark", "amazon_ses")]
)
def test_only_what_is_known_not_to_have_arrived_takes_a_delivery_back(sent, esp, sample):
    assert tell(esp, sample, sent) == ENDS[sample.kind]
    assert WebhookEvent.objects.count() == 1


@pytest.mark.parametrize("kind", ["SubscriptionConfirmation", "UnsubscribeConfirmation", "Notification"])
def test_what_sns_says_about_itself_is_accepted(sent, monkeypatch, kind):
    fetched = []
    monkeypatch.setattr(signatures, "fetch", fetched.append)
    url = "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=t"
    more = {
        "Type": kind,
        "Message": "Successfully validated SNS topic for Amazon SES event publishing.",
        "SubscribeURL": url,
        "Token": "t",
    }
    raw = json.dumps({**around("amazon_ses", {}), **more}).encode()
    assert signing.post((raw, {}), "amazon_ses", content_type="text/plain; charset=UTF-8").status_code == 204
    assert fetched == ([url] if kind == "SubscriptionConfirmation" else [])
    assert list(WebhookEvent.objects.values_list("verdict", flat=True)) == (
        ["ignored"] if kind == "Notification" else []
    )


def test_a_subscription_that_cannot_be_confirmed_now_is_asked_for_again(sent, monkeypatch):
    def away(_):
        raise TimeoutError

    monkeypatch.setattr(signatures, "fetch", away)
    more = {
        "Type": "SubscriptionConfirmation",
        "SubscribeURL": "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription&Token=t",
    }
    raw = json.dumps({**around("amazon_ses", {}), **more}).encode()
    assert signing.post((raw, {}), "amazon_ses").status_code == 503
