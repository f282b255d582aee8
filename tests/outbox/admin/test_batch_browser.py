"""The page of a replay batch in a real browser: policy, width, and a refresh that disturbs nobody."""

import os
from pathlib import Path

import pytest
from django.urls import reverse

from outbox.replay_batches import requests
from outbox.replay_batches.models import ReplayBatch
from tests.config.admin.test_browser import CHROMIUM, chromium, live_server, page, pytestmark
from tests.outbox.replay_batches.conftest import scripted
from tests.outbox.replay_batches.scripted_flow import (
    ANNA,
    REASON,
    confirmed,
    draft,
    letters,
    previewed,
    run_until,
    step,
)
from tests.outbox.replay_batches.test_resend import carried_out, sent
from tests.outbox.scripted import promise

__all__ = ["CHROMIUM", "chromium", "live_server", "page", "pytestmark", "scripted"]
PICTURES = os.environ.get("PICTURES", "")


@pytest.fixture(autouse=True)
def _plain_http(settings):
    settings.SECURE_SSL_REDIRECT = False


def url_of(batch):
    return reverse("admin:outbox_replaybatch_change", args=[batch.pk])


def look(page, name):
    """At three widths nothing sticks out; a picture where somebody asks for one."""
    for width in (1440, 800, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} at {width}"
        if PICTURES:
            page.screenshot(path=str(Path(PICTURES) / f"{name}-{width}.png"), full_page=True)
    page.set_viewport_size({"width": 1440, "height": 900})


@pytest.mark.usefixtures("scripted")
def test_from_the_draft_to_the_end_nothing_sticks_out_or_breaks_the_policy(page, scripted):
    letters(300, "slow")
    scripted.ineligible.update({f"K{n}": "The order was cancelled since." for n in range(7)})
    batch = draft()
    page.goto(url_of(batch))
    look(page, "counting")
    run_until(batch, "previewed")
    page.wait_for_selector("text=look before you start")  # the refresh brings it
    page.goto(url_of(batch))
    look(page, "preview")
    page.fill("#id_reason", REASON)
    page.click("button:has-text('Requeue 293 letters')")
    page.wait_for_selector("text=Nothing has left yet")
    look(page, "hold")
    page.click("button:has-text('Undo')")
    page.wait_for_selector("text=Undone")
    requests.confirm(batch.pk, ANNA, REASON, canary=0, rate=10_000)
    requests.start_now(batch.pk, ANNA)
    step(4)
    page.goto(url_of(batch))
    look(page, "running")
    page.click("button:has-text('Pause')")
    page.wait_for_selector("text=Paused. The chunk in hand was finished.")
    look(page, "paused")
    ReplayBatch.objects.update(state="stopped", note="Stopped by its rule: 6 of the last 100 failed (limit 5 %).")
    page.goto(url_of(batch))
    look(page, "stopped")
    page.goto(reverse("admin:outbox_replaybatch_changelist"))
    look(page, "list")


@pytest.mark.usefixtures("scripted")
def test_a_refresh_leaves_what_is_typed(page):
    letters(100)
    batch = confirmed()
    step(2)
    requests.pause(batch.pk, ANNA)
    requests.resume(batch.pk, ANNA)
    page.goto(url_of(batch))
    page.fill("#id_rate", "12")
    step(1)
    page.wait_for_selector("h1:has-text('40 %')")
    assert page.input_value("#id_rate") == "12"
    page.click("button:has-text('Change')")
    page.wait_for_selector("text=The rate is 12 letters a second.")


@pytest.mark.usefixtures("scripted")
def test_a_preview_is_confirmed_by_keyboard_alone(page):
    letters(3)
    batch = previewed()
    page.goto(url_of(batch))
    page.focus("#id_reason")
    page.keyboard.type("mended")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=3 letters wait for the end of the hold")
    batch.refresh_from_db()
    assert batch.state == "holding"


def test_messages_from_the_list_to_the_end_in_three_widths(page, memory, go):
    sent(30, memory, go)
    promise("order:late")
    page.goto(f"{reverse('admin:outbox_outboxmessage_changelist')}?when=day")
    look(page, "messages")
    page.click("text=Resend all of these")
    page.wait_for_selector("text=The messages are counted first")
    page.select_option("#id_channel", "memory")
    look(page, "resend-ask")
    page.click("text=Count and preview")
    page.wait_for_selector("text=Counting the messages")
    batch = ReplayBatch.objects.get()
    run_until(batch, "previewed")
    page.goto(url_of(batch))
    look(page, "resend-preview")
    page.fill("#id_reason", REASON)
    page.fill("#id_rate", "10000")
    page.click("button:has-text('Resend 30 messages')")
    page.click("text=Start now")
    page.wait_for_selector("text=The hold is over")
    step(3)
    page.goto(url_of(batch))
    look(page, "resend-running")
    carried_out(batch, memory, go)
    page.goto(url_of(batch))
    page.wait_for_selector("h1:has-text('Resent 30 of 30 messages')")
    look(page, "resend-done")
