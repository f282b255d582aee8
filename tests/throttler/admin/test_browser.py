"""A customer's pages in a real browser: the policy holds, nothing sticks out, words do not lie on each other."""

import pytest

from tests.config.admin import test_browser as browser
from tests.config.admin.test_browser import chromium, live_server, page
from tests.throttler.admin.conftest import LIST, PAGE, add_customer, add_lane, lever, store, stored
from throttler.models import Lane

__all__ = ["chromium", "live_server", "page"]
pytestmark = browser.pytestmark
LONG = "customer-" + "x" * 180
URLS = [
    LIST, f"{LIST}?show=all", f"{LIST}add/", PAGE, f"{LIST}{LONG}/change/", lever("rate", more="&rates=5/s"), lever("life"), lever("purge"),
    f"{LIST}messages/?customer=harbour-foods", f"{LIST}message/?customer=harbour-foods&partition=5&offset=2001",
]  # fmt: skip
OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll(".sw-times text")].map((text) => text.getBoundingClientRect());
  return boxes.some((one, at) => boxes.some((other, index) => index > at
    && one.left < other.right && other.left < one.right && one.top < other.bottom && other.top < one.bottom));
}"""


@pytest.fixture
def pages(waiting):
    add_customer(LONG), add_lane(LONG, 7, partition=9)
    Lane.objects.update(drained=2_000)
    store(*[stored(2_001 + number) for number in range(60)])


@pytest.mark.parametrize("width", [390, 768, 1024, 1440])
def test_nothing_sticks_out_and_no_times_overlap(page, pages, width):
    page.set_viewport_size({"width": width, "height": 900})
    for url in URLS:
        page.goto(url)
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, url
        assert not page.evaluate(OVERLAPS), url


def test_a_rate_by_keyboard_alone(page, pages):
    page.goto(lever("rate"))
    page.keyboard.press("Control+A")
    page.keyboard.type("20/s")  # the rate has the focus
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("contract 4471")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Changed the rate of harbour-foods")
