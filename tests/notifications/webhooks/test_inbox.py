"""What providers tell: each verdict, and no effect that it must not have."""

import json
import time
from unittest.mock import Mock

import pytest
from django.db import OperationalError, ProgrammingError
from django.test import Client

from config.database.clock import database_now
from config.database.retry import Remedy
from config.telemetry import metrics
from notifications.models import Delivery, Suppression, WebhookEvent
from notifications.webhooks import views
from notifications.webhooks.inbox import store
from notifications.webhooks.providers import Event
from tests.exported import exported
from tests.notifications import signing
from tests.notifications.signing import event, generic, post, status, tell
from tests.refusing import refusing

# -- who may speak -----------------------------------------------------------------------------------------
GENUINE = {
    "generic": lambda message, **more: generic(event("delivered", message), **more),
    "resend": lambda message, **more: signing.resend("email.delivered", message, **more),
    "mailgun": lambda message, **more: signing.mailgun("delivered", message, **more),
    "postmark": lambda message, **more: signing.postmark("Delivery", message, **more),
}
TIMED = ["generic", "resend", "mailgun"]


@pytest.mark.parametrize("esp", GENUINE)
@pytest.mark.parametrize("number", [0, 1])
def test_a_genuine_event_is_applied_with_the_new_secret_and_the_old(sent, esp, number):
    answer = post(GENUINE[esp](sent.pk, secret=signing.SECRETS[esp][number]), esp)
    assert (answer.status_code, status()) == (204, "delivered")
    assert WebhookEvent.objects.get().verdict == "applied"


@pytest.mark.parametrize("esp", GENUINE)
def test_a_forged_event_leaves_nothing(sent, esp):
    counted = exported(metrics.WEBHOOKS, verdict="forged").get((esp, "forged"), 0)
    other = "whsec_" + "eHh4" * 8 if esp == "resend" else "somebody-else"
    for signed in (GENUINE[esp](sent.pk, secret=other), (GENUINE[esp](sent.pk)[0], {})):
        if esp == "mailgun" and signed[1] == {}:
            signed = (signed[0].replace(b'"signature": "', b'"signature": "0'), {})
        answer = post(signed, esp)
        assert (answer.status_code, answer.content) == (401, b"forged\n")
    assert (status(), WebhookEvent.objects.count()) == ("accepted", 0)
    assert exported(metrics.WEBHOOKS)[esp, "forged"] == counted + 2


@pytest.mark.parametrize(("esp", "unnamed"), [("resend", {"name": ""}), ("mailgun", {"token": ""})])
def test_a_signed_event_without_what_tells_it_from_its_repeats_is_forged(sent, esp, unnamed):
    assert post(GENUINE[esp](sent.pk, **unnamed), esp).status_code == 401
    assert not WebhookEvent.objects.exists()


@pytest.mark.parametrize("others", [[], signing.SECRETS["resend"][:1]], ids=["alone", "beside a good one"])
@pytest.mark.parametrize("secret", ["whsec_", "whsec_not base64", "whsec_!" + "a" * 43 + "=", "whsec_YQ=="])
def test_a_mistyped_secret_is_no_empty_key(sent, settings, secret, others):
    """Base64 that is none once decoded to nothing, and whoever signed with nothing was let in."""
    settings.EMAIL_WEBHOOK_SECRETS = {"resend": [*others, secret]}
    signed = GENUINE["resend"](sent.pk, secret="whsec_YQ==" if secret.endswith("==") else "whsec_")
    assert post(signed, "resend").status_code == 503
    assert (status(), WebhookEvent.objects.count()) == ("accepted", 0)


def test_without_a_database_the_provider_is_told_to_come_again(sent, monkeypatch):
    storing = Mock(side_effect=OperationalError("the connection is closed"))
    monkeypatch.setattr(views, "store", storing)
    monkeypatch.setattr(views, "remedy_for", lambda _: Remedy.WAIT)
    answer = post(generic(event("delivered", sent.pk)))
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    storing.side_effect = ProgrammingError("there is no such column")
    monkeypatch.setattr(views, "remedy_for", lambda _: Remedy.BUG)
    with pytest.raises(ProgrammingError):
        post(generic(event("delivered", sent.pk)))


@pytest.mark.parametrize("esp", ["generic", "resend"])
def test_one_changed_bit_is_forged(sent, esp):
    body, headers = GENUINE[esp](sent.pk)
    for place in range(0, len(body), 7):
        changed = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        assert post((changed, headers), esp).status_code == 401
    again = json.dumps(json.loads(body), separators=(",", ":")).encode()
    assert post((again, headers), esp).status_code == 401
    assert not WebhookEvent.objects.exists()


@pytest.mark.parametrize(
    ("esp", "shift", "code"),
    [
        *[(esp, shift, code) for esp in TIMED for shift, code in [(50, 204), (75, 401), (-(10**12), 401), (10**14, 401)]],
        *[(esp, shift, code) for esp in ("generic", "resend") for shift, code in [(-290, 204), (-310, 401)]],
        # Mailgun tries again for eight hours, and signs each try with the time of the first.
        *[("mailgun", -60 * minutes, 204) for minutes in (6, 11, 65, 486)], ("mailgun", -9 * 3600 - 10, 401),
    ],
)  # fmt: skip
def test_what_was_signed_at_another_time_is_stale(sent, esp, shift, code):
    answer = post(GENUINE[esp](sent.pk, at=time.time() + shift), esp)
    assert answer.status_code == code
    if code == 401:
        assert (status(), WebhookEvent.objects.count()) == ("accepted", 0)


@pytest.mark.parametrize("esp", GENUINE)
def test_the_same_request_again_changes_nothing(sent, esp):
    signed = GENUINE[esp](sent.pk)
    post(signed, esp)
    before = WebhookEvent.objects.values().get()
    assert [post(signed, esp).status_code for _ in range(2)] == [204, 204]
    assert WebhookEvent.objects.values().get() == before


def test_of_events_that_come_again_only_the_new_are_handed_on(db):
    one, two = (Event("opened", name, "{}") for name in "12")
    now = database_now()
    assert len(store([one, one], "generic", {}, now)) == 1
    [new] = store([one, two], "generic", {}, now)
    assert WebhookEvent.objects.get(pk=new).dedup_id == "2"
    assert len(store([one, two], "resend", {}, now)) == 2  # ids are the provider's


def test_a_mailgun_token_carries_one_body_only(sent):
    """Their signature does not cover the body: whoever has seen one could write another under it."""
    stamp = time.time() - 8 * 3600
    post(signing.mailgun("delivered", sent.pk, token="t", at=stamp), "mailgun")
    for kind in ("complained", "delivered"):
        assert post(signing.mailgun(kind, sent.pk, token="t", at=stamp), "mailgun").status_code == 204
    assert (status(), WebhookEvent.objects.count(), Suppression.objects.count()) == ("delivered", 1, 0)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", 400), (b"\xff", 400), (b"null", 400), (b"[[]]", 400), (b"{}", 400), (b'{"id": ""}', 400),
        (b'{"id": "", "event": "delivered"}', 400), (b'{"id": 5, "event": "delivered"}', 400), (b"[" * 100_000, 400),
        (b"[]", 204), (b'{"id": "x"}', 400), (b'{"id": "x", "event": 5}', 400), (b'[{"id": "x"}, {"id": null}]', 400),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_whole(sent, body, code):
    assert post(generic(body)).status_code == code
    assert (status(), WebhookEvent.objects.count()) == ("accepted", 0)


def test_more_events_than_one_request_may_hold_are_refused_whole(sent, monkeypatch):
    monkeypatch.setattr(views, "MOST_EVENTS", 2)
    many = [event("delivered", sent.pk) for _ in range(3)]
    assert [post(generic(many)).status_code, WebhookEvent.objects.count()] == [400, 0]
    assert [post(generic(many[:2])).status_code, WebhookEvent.objects.count()] == [204, 2]


def test_one_bad_event_loses_none_of_the_others_and_is_kept(sent):
    bad = [{"nonsense": 1}, None, 5, "text", [], {"id": "x" * 201, "event": "bounced"}]
    assert post(generic([bad[0], event("delivered", sent.pk), *bad[1:]])).status_code == 204
    assert status() == "delivered"
    kept = dict(WebhookEvent.objects.filter(kind="other").values_list("body", "detail"))
    assert {json.dumps(json.loads(body)) for body in kept} == {json.dumps(each) for each in bad}
    assert all(detail.startswith("cannot be read: ") for detail in kept.values())


def test_odd_requests_are_refused_before_they_are_read(sent, settings):
    signed = generic(event("delivered", sent.pk))
    assert post(signed, "nosuch").status_code == 404
    assert post(signed, content_type="application/x-www-form-urlencoded").status_code == 415
    assert Client().get("/webhooks/email/generic").status_code == 405
    settings.EMAIL_WEBHOOK_MAX_BYTES = 10
    assert post(signed).status_code == 413
    settings.EMAIL_WEBHOOK_SECRETS = {}
    assert post(signed).status_code == 403
    assert not WebhookEvent.objects.exists()


def test_hostile_text_is_stored_as_text(sent):
    hostile = "x\x00\u202e<script>\U0001f600" * 40
    tell(event("bounced", sent.pk, detail=hostile, provider_message_id=hostile * 9, surprise=hostile))
    assert status() == "bounced"
    assert json.loads(WebhookEvent.objects.get().body)["surprise"] == hostile
    assert "\x00" not in Delivery.objects.get().detail


def test_the_bytes_are_kept_as_they_came(sent):
    raw = json.dumps(event("delivered", sent.pk), indent=3).encode() + b" "
    other = b'{ "id":"z",\t"event":"opened" }'
    post(generic(b"[" + raw + b"," + other + b"]"))
    bodies = set(WebhookEvent.objects.values_list("body", flat=True))
    assert bodies == {raw.decode().strip(), other.decode()}
    kept = WebhookEvent.objects.first().headers
    assert set(kept) == {"x-spillway-timestamp", "x-spillway-signature"}


def test_a_password_is_never_kept(sent):
    post(signing.postmark("Delivery", sent.pk), "postmark")
    assert WebhookEvent.objects.get().headers == {}


@pytest.mark.django_db(transaction=True)
def test_an_event_that_the_database_refuses_is_escaped_and_spares_the_others():
    """A provider repeats a request until it is taken: one event would keep all others of it out."""
    events = [Event("other", f"e{number}", '{"n": "東京"}' if number == 3 else "{}") for number in range(7)]
    with refusing(WebhookEvent, "body", "東"):
        assert len(store(events, "sendgrid", {}, database_now())) == 7
    assert WebhookEvent.objects.get(dedup_id="e3").body == '{"n": "\\u6771\\u4eac"}'
    assert store(events, "sendgrid", {}, database_now()) == []


def test_a_body_with_a_nul_is_stored(db):
    store([Event("other", "e", "a\x00b")], "sendgrid", {}, database_now())
    assert WebhookEvent.objects.get().body == "a\ufffdb"
