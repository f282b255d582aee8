"""Many letters with one wrong field in a real browser: corrected and resolved in six clicks from the page of their group."""

import os

import pytest
from django.urls import reverse

from outbox.groups.models import FailureGroup
from outbox.letters.models import DeadLetter, PayloadRevision
from outbox.replay_batches.models import ReplayBatch
from tests.buffer.ledger.conftest import quantities, stocks
from tests.config.admin.test_browser import CHROMIUM, chromium, live_server, page, pytestmark
from tests.outbox.admin.test_batch_browser import _plain_http
from tests.outbox.letters.edits.test_browser import Clicks, look
from tests.outbox.replay_batches.scripted_flow import run_until
from tests.outbox.replay_batches.test_edit import receipts

__all__ = ["CHROMIUM", "_plain_http", "chromium", "live_server", "page", "pytestmark"]
LETTERS = int(os.environ.get("EDITED_LETTERS", "1200"))


@pytest.fixture
def group(transactional_db):
    stocks(A=0)
    receipts(LETTERS)
    return FailureGroup.objects.get()


def test_a_field_that_is_wrong_in_many_letters_is_corrected_in_six_clicks(page, group):
    click = Clicks(page)
    page.goto(reverse("admin:outbox_failuregroup_change", args=[group.pk]))
    look(page, "group")
    click(f"a:has-text('Edit all {LETTERS:,}')")
    page.wait_for_selector("#id_path")
    assert page.query_selector(".sw-wrong") is None
    assert not page.is_visible("#id_old")
    look(page, "change")
    page.fill("#id_path", "$.items[0].quantity")
    page.fill("#id_new", "3")
    click("text=as JSON")
    click("text=where its value has another type now")
    click("button:has-text('Count and preview')")
    page.wait_for_selector("text=Counting the letters")
    batch = run_until(ReplayBatch.objects.get(), "previewed")
    page.wait_for_selector("text=look before you start")
    page.goto(reverse("admin:outbox_replaybatch_change", args=[batch.pk]))
    look(page, "edit-preview")
    page.fill("#id_reason", "The supplier confirmed three")
    if LETTERS > 1000:
        page.fill("#id_typed", str(LETTERS))
    click(f"button:has-text('Edit {LETTERS:,} letters')")
    page.wait_for_selector("text=Nothing has left yet")
    click("button:has-text('Start now')")
    page.wait_for_selector("text=The hold is over")
    run_until(batch, "done", most=2000)
    page.wait_for_selector(f"text=Edited and requeued {LETTERS:,} of {LETTERS:,} letters")
    look(page, "edit-done")
    assert click.number <= 6
    assert quantities() == {"A": 3 * LETTERS}
    assert PayloadRevision.objects.count() == DeadLetter.objects.filter(status="resolved").count() == LETTERS


def test_the_form_shows_the_fields_that_its_verb_needs(page, group):
    page.goto(f"{reverse('admin:outbox_replaybatch_draft')}?verb=edit&group={group.pk}")
    shown = {
        "Replace one value by another": {"#id_old", "#id_new", "[name=as]"},
        "Replace a part of its text": {"#id_old", "#id_new"},
        "Remove the field": set(),
    }
    for words, fields in shown.items():
        page.click(f"text={words}")
        assert {name for name in ("#id_old", "#id_new", "[name=as]") if page.is_visible(name)} == fields
