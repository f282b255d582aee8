"""The admin's pages about mail: what they show to whom, and the levers on addresses."""

import pytest

from notifications.models import Delivery, Suppression, WebhookEvent
from notifications.tasks import apply_webhooks
from outbox.audit_log.models import OperatorAction
from tests.config.admin.conftest import client_with, lever_of, list_of, page_of, reveal
from tests.logged import lines
from tests.notifications import signing
from tests.notifications.post import email, go, paid  # noqa: F401 (a fixture)
from tests.notifications.signing import event, tell

REASON = "asked on the telephone"


@pytest.fixture(autouse=True)
def _secrets(settings):
    settings.EMAIL_WEBHOOK_SECRETS = signing.SECRETS


@pytest.fixture
def delivery(email):  # noqa: F811
    message = paid()
    go(email)
    tell(event("bounced", message.pk, detail="550 no such user", recipient="ada@example.com"))
    return Delivery.objects.get()


def rows():
    return [Delivery.objects.get(), WebhookEvent.objects.get(), Suppression.objects.get()]


def test_pages_show_what_became_of_a_mail(boss, delivery):
    for row in rows():
        assert boss.get(list_of(type(row))).status_code == 200
        assert "ada@" not in boss.get(page_of(row)).content.decode()
        reveal(boss, row)
        html = boss.get(page_of(row)).content.decode()
        assert "ada@example.com" in html
    assert "The address is suppressed" in boss.get(page_of(delivery)).content.decode()
    assert "no such user" in boss.get(page_of(WebhookEvent.objects.get())).content.decode()


def test_addresses_need_the_right_to_see_payloads(delivery):
    reader = client_with("view_delivery", "view_webhookevent", "view_suppression")
    for row in rows():
        for url in (page_of(row), list_of(type(row))):
            html = reader.get(url).content.decode()
            assert "ada@" not in html
            assert "no such user" not in html


@pytest.mark.parametrize("key", ["message", "provider", "address"])
def test_rows_are_found_by_exact_keys(boss, delivery, key):
    text = {"message": delivery.pk, "provider": f"memory-{delivery.pk}", "address": "ADA@example.com"}[key]
    html = boss.get("/admin/find/", {"q": str(text)}, follow=True).content.decode()
    assert {"message": "bounced", "provider": "Delivery", "address": "Bounced for good"}[key].lower() in html.lower()


def test_lifting_needs_a_right_and_a_reason_and_is_written_down(boss, delivery):
    row = Suppression.objects.get()
    reader = client_with("view_suppression")
    url = lever_of(Suppression, "lift", row)
    assert reader.post(url, {"id": row.pk, "reason": REASON}).status_code == 403
    boss.post(url, {"id": row.pk, "reason": ""})
    assert Suppression.objects.exists()
    boss.post(url, {"id": row.pk, "reason": REASON})
    assert not Suppression.objects.exists()
    assert OperatorAction.objects.exclude(verb="refused").get().reason == REASON


def test_the_trail_of_a_lift_shows_the_providers_words_to_nobody(boss, delivery):
    row = Suppression.objects.get()
    boss.post(lever_of(Suppression, "lift", row), {"id": row.pk, "reason": "ada@example.com asked by telephone"})
    action = OperatorAction.objects.get()
    assert "ada@" not in str(action.detail)
    reader = client_with("view_operatoraction", "view_payload")
    for url in (page_of(action), list_of(OperatorAction), "/admin/"):
        html = reader.get(url).content.decode()
        assert "ada@" not in html
        assert "no such user" not in html
        assert "asked by telephone" in html


def test_a_recipient_is_suppressed_from_its_delivery(boss, delivery):
    Suppression.objects.all().delete()
    boss.post(lever_of(Delivery, "suppress", delivery), {"id": delivery.pk, "reason": REASON})
    assert Suppression.objects.get().reason == "manual"
    html = boss.get(page_of(delivery)).content.decode()
    assert "suppressed already" in html


def test_an_address_is_entered_by_hand(boss, db, caplog, django_capture_on_commit_callbacks):
    url = f"{list_of(Suppression)}add/"
    assert "Not an address" in boss.post(url, {"address": "a@b.cd,e@f.gh", "note": REASON}).content.decode()
    assert "required" in boss.post(url, {"address": "a@b.cd", "note": ""}).content.decode()
    with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
        for _ in range(2):
            boss.post(url, {"address": "A@b.cd", "note": REASON})
    assert [line["addresses"] for line in lines(caplog) if line["event"] == "addresses_suppressed"] == [1]
    row = Suppression.objects.get()
    assert (row.reason, row.note) == ("manual", REASON)
    assert OperatorAction.objects.get().verb == "suppress"
    assert client_with("view_suppression").post(url, {"address": "e@f.gh", "note": REASON}).status_code == 403


def test_the_job_says_what_it_did(delivery):
    WebhookEvent.objects.update(applied_at=None, verdict="new")
    assert apply_webhooks() == "1 no_news"
    assert apply_webhooks() == "nothing"
