"""A browser that is signed in, and three looks at a page."""

from __future__ import annotations

from typing import Any

from tests.screenshots.others import PASSWORD
from tests.screenshots.pages import Shown

WIDE, NARROW, HIGH = 1440, 390, 900
LOOKS = {"light": ("light", WIDE), "dark": ("dark", WIDE), "narrow": ("light", NARROW)}


def sign_in(browser: Any, base: str, who: str) -> Any:
    """A context of this person; of nobody when the name is empty."""
    context = browser.new_context(base_url=base, viewport={"width": WIDE, "height": HIGH})
    if who:
        page = context.new_page()
        page.goto("/admin/login/")
        page.fill("#id_username", who)
        page.fill("#id_password", PASSWORD)
        page.click("input[type=submit]")
        page.wait_for_selector("#user-tools")
        page.close()
    return context


def look(page: Any, name: str) -> None:
    """Show the page in one of the three looks, without a reload."""
    scheme, width = LOOKS[name]
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": HIGH})


def show(page: Any, url: str, shown: Shown) -> None:
    """Open a page, and do there what belongs to it."""
    answer = page.goto(url)
    assert answer.status == shown.status, f"{url}: {answer.status}"
    if shown.do:
        shown.do(page)


def width_of(page: Any) -> int:
    """Pixels of the page, with what sticks out."""
    return int(page.evaluate("document.documentElement.scrollWidth"))


def first_row_of(page: Any) -> int:
    """Pixels above the first row of a list; 0 on other pages."""
    rows = page.locator("#result_list tbody tr")
    return int(rows.first.bounding_box()["y"]) if rows.count() else 0
