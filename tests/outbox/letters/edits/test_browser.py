"""The page that edits a copy in a real browser: four clicks from home, policy, width, keyboard and axe."""

import os
from pathlib import Path

import pytest

from outbox.letters.models import DeadLetter, PayloadRevision
from tests.buffer.ledger.conftest import RECEIVED, quantities, record, stocks, write
from tests.config.admin.test_browser import CHROMIUM, chromium, live_server, page, pytestmark

__all__ = ["CHROMIUM", "chromium", "live_server", "page", "pytestmark"]
PICTURES = os.environ.get("PICTURES", "")
REASON = "The supplier confirmed 12"


@pytest.fixture
def letter(transactional_db):
    stocks(A=0, B=0)
    lines = [{"stockId": "A", "quantity": 24}, {"stockId": "B"}]
    write(record((RECEIVED, {"purchaseOrderId": "PO-55817", "items": lines})))
    return DeadLetter.objects.get()


def look(page, name):
    """At three widths nothing sticks out; a picture where somebody asks for one."""
    for width in (1440, 800, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} at {width}"
        if PICTURES:
            page.screenshot(path=str(Path(PICTURES) / f"{name}-{width}.png"), full_page=True)
    page.set_viewport_size({"width": 1440, "height": 900})
    if PICTURES:
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=str(Path(PICTURES) / f"{name}-dark.png"), full_page=True)
        page.emulate_media(color_scheme="light")


class Clicks:
    """Counts what a person presses."""

    def __init__(self, page):
        self.page, self.number = page, 0

    def __call__(self, selector):
        self.page.click(selector)
        self.number += 1


def test_a_letter_is_edited_from_home_in_four_clicks(page, letter):
    click = Clicks(page)
    page.goto("/admin/")
    page.fill("#sw-find", letter.position)
    page.press("#sw-find", "Enter")
    page.wait_for_selector("text=If you requeue it now")
    look(page, "letter")
    click("a:has-text('Edit and requeue…')")
    page.wait_for_selector("#id_reason")
    look(page, "reveal")
    page.fill("#id_reason", "The supplier called")
    click("button:has-text('Show it and edit a copy')")
    page.wait_for_selector("text=Line 5, items[1].quantity")
    look(page, "edit")
    text = page.input_value("#id_text")
    page.fill("#id_text", text.replace('"stockId": "B"', '"stockId": "B", "quantity": "twelve"'))
    page.click("button:has-text('Check and preview')")
    page.wait_for_selector("text=1 thing is wrong and the reason is missing")
    look(page, "wrong")
    page.fill("#id_text", page.input_value("#id_text").replace('"twelve"', "12"))
    page.fill("#id_why", REASON)
    click("button:has-text('Check and preview')")
    page.wait_for_selector("text=stock A: +24, stock B: +12")
    look(page, "checked")
    click("button:has-text('Requeue the copy')")
    page.wait_for_selector("text=The copy had its effect")
    look(page, "done")
    assert click.number <= 4
    assert quantities() == {"A": 24, "B": 12}
    assert PayloadRevision.objects.get().reason == REASON


def test_the_keyboard_suffices(page, letter):
    page.goto(f"/admin/outbox/deadletter/{letter.pk}/edit/")
    page.keyboard.type("The supplier called")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#id_text")
    page.focus("#id_text")
    page.fill("#id_text", page.input_value("#id_text").replace('"stockId": "B"', '"stockId": "B", "quantity": 12'))
    page.focus("#id_why")
    page.keyboard.type(REASON)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("button:has-text('Requeue the copy')")
    page.focus("#id_why")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=The copy had its effect")
