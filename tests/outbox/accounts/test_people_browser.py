"""In Chromium, from the empty list of accounts to a letter that a new person has requeued: the clicks are counted."""

import re

import pytest
from django.contrib.auth.models import User

from notifications.channels.local import Memory
from outbox.letters.models import DeadLetter
from tests.config.admin.test_browser import CHROMIUM, SOON, chromium, live_server, page
from tests.outbox.replay_batches.conftest import scripted
from tests.outbox.replay_batches.scripted_flow import letters

__all__ = ["chromium", "live_server", "page", "scripted"]
pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium"),
]
MOST_CLICKS = 6
PATIENCE = 6 * SOON  # clicks are counted, not seconds


class Hand:
    """Clicks in any tab, counted."""

    def __init__(self) -> None:
        self.clicks = 0

    def click(self, tab, what):
        self.clicks += 1
        tab.click(what)


@pytest.mark.usefixtures("scripted")
def test_a_new_support_person_requeues_within_six_clicks(page, chromium, live_server, settings, scripted):
    settings.EMAIL_CHANNEL = "memory"
    Memory.clear()
    letters(1)
    hand = Hand()
    page.set_default_timeout(PATIENCE)

    page.goto("/admin/auth/user/")
    hand.click(page, "a:has-text('Add user')")
    page.fill("#id_email", "ann@example.com")
    hand.click(page, "input[name=_save]")
    page.wait_for_selector("text=was sent to ann@example.com")
    assert User.objects.get(email="ann@example.com").groups.get().name == "Support"
    ((_, mail),) = Memory.sent

    page.goto("about:blank")
    context = chromium.new_context(base_url=live_server.url)
    tab = context.new_page()
    tab.set_default_timeout(PATIENCE)
    tab.goto(re.search(r"https?://\S+(/admin/auth/user/welcome/[\w/-]+)", mail.text)[1])
    tab.fill("#id_new_password1", "gre4t-secret-of-ann")
    tab.fill("#id_new_password2", "gre4t-secret-of-ann")
    hand.click(tab, "button:has-text('Set password')")
    tab.wait_for_selector("#user-tools")
    tab.fill("#sw-find", "K0")
    tab.press("#sw-find", "Enter")  # the only hit is opened
    hand.click(tab, ".sw-levers >> text=Requeue")
    tab.fill("#id_reason", "the producer has mended it")
    hand.click(tab, "button.sw-first")
    tab.wait_for_selector("text=Requeued")
    context.close()

    assert hand.clicks <= MOST_CLICKS
    assert DeadLetter.objects.get().status != "open"
    assert scripted.taken == ["K0"]
