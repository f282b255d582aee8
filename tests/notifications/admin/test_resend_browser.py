"""Somebody calls with the number in a mail: in a real browser, three clicks until it is sent again, each counted."""

from __future__ import annotations

import pytest

from config.database.clock import database_now
from notifications.mail.content import short
from notifications.orders import changes
from outbox.models import OutboxMessage, Resend
from tests.config.admin.test_browser import CHROMIUM, chromium, live_server, page

__all__ = ["chromium", "live_server", "page"]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium"),
]
CLICKS = (
    "() => { addEventListener('click', () => sessionStorage.clicks = Number(sessionStorage.clicks || 0) + 1, true) }"
)


@pytest.fixture(autouse=True)
def _plain_http(settings):
    settings.SECURE_SSL_REDIRECT = False


def test_an_order_by_the_number_in_its_mail_is_sent_again_in_three_clicks(page, order):
    changes.change(order.pk, "pay")
    OutboxMessage.objects.update(state="sent", sent_at=database_now())
    page.set_default_timeout(30_000)  # servers and pages are cold
    page.add_init_script(f"({CLICKS})()")
    page.goto("/admin/")
    page.keyboard.press("/")
    page.keyboard.type(short(order.pk))
    page.keyboard.press("Enter")  # no click: the search leads to the only hit
    page.wait_for_selector("h1")
    page.locator("a[href*='lever/resend']").first.click()
    page.wait_for_selector("text=To another address")
    page.fill("#id_reason", "she never got it")
    page.click("button:has-text('Resend')")
    page.wait_for_selector("text=Sent again 1 message.")
    assert int(page.evaluate("sessionStorage.clicks")) <= 3
    (mail,) = OutboxMessage.objects.filter(state="sent")
    assert Resend.objects.get().resent_from == mail.pk
