"""The console in a real browser: the policy holds, the refresh disturbs nobody, the keyboard suffices."""

import re
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, override_settings
from pytest_django.live_server_helper import LiveServer

from config.admin import home
from config.database.clock import database_now
from outbox.bookkeeping.models import Watermark
from outbox.groups.models import FailureGroup
from outbox.models import ChannelState, WorkerProcess
from tests.config.admin.conftest import lever_of, list_of, page_of
from tests.services.prerequisites import browser

sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
CHROMIUM = browser()
pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium"),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="the pages are the same: once is enough"),
]
SOON = 5000  # milliseconds


@pytest.fixture(scope="module")
def chromium():
    # Playwright's loop lives in this thread, beside the rows that the tests write; they take turns.
    with pytest.MonkeyPatch.context() as patch, sync_api.sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def live_server():
    """Without TLS; the middleware reads the setting once, when the server starts."""
    with override_settings(SECURE_SSL_REDIRECT=False, SESSION_COOKIE_SECURE=False, CSRF_COOKIE_SECURE=False):
        server = LiveServer("localhost")
        yield server
        server.stop()


@pytest.fixture
def page(chromium, live_server, monkeypatch):
    """Logged in; anything on the browser's console that sounds like trouble fails the test."""
    monkeypatch.setattr(home, "REFRESH_SECONDS", 0.2)
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    context = chromium.new_context(base_url=live_server.url)
    session = client.cookies[settings.SESSION_COOKIE_NAME].value
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session, "url": live_server.url}])
    page = context.new_page()
    page.set_default_timeout(SOON)
    complaints = []
    page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert complaints == []


def group(title):
    now = database_now()
    return FailureGroup.objects.create(
        fingerprint=title[:32], source="transfer-requests", step="decode", reason="r", title=title,
        open_count=3, first_seen=now - timedelta(minutes=9), last_seen=now,
    )  # fmt: skip


def test_home_renews_itself_and_leaves_the_focus_alone(page, db):
    first = group("Missing field")
    page.goto("/admin/")
    page.focus(".sw-line a")
    focused = page.evaluate("document.activeElement.textContent")
    FailureGroup.objects.filter(pk=first.pk).update(open_count=4321)
    page.wait_for_selector(".sw-much >> text=4,321")
    assert page.evaluate("document.activeElement.textContent") == focused != ""


def test_the_list_under_the_pointer_keeps_its_order(page, db):
    group("Missing field")
    page.goto("/admin/")
    page.hover(".sw-needs li")
    Watermark.objects.create(
        group="buffer-ingest", topic="transfer-requests", partition=1, next_offset=1, end_offset=9,
        updated_at=database_now(), alarm="The topic was created again.",
    )  # fmt: skip
    page.wait_for_selector("h1 >> text=2 things need you")
    assert page.locator(".sw-needs li").count() == 1
    page.mouse.move(0, 0)
    page.wait_for_selector(".sw-needs >> text=is stopped")
    assert "is stopped" in page.locator(".sw-needs li").first.inner_text()


def test_refreshing_can_be_stopped(page, db):
    page.goto("/admin/")
    page.click("text=Stop refreshing")
    page.wait_for_selector("text=not refreshed")
    group("Missing field")
    page.wait_for_timeout(800)
    assert page.inner_text("h1") == "Nothing needs you"
    page.click("text=Refresh again")
    page.wait_for_selector("h1 >> text=1 thing needs you")


BELOW = """() => [...document.querySelectorAll(".sw-states li, .sw-needs .sw-bad, .sw-needs .sw-bad a")].filter((line) =>
  line.getBoundingClientRect().bottom > innerHeight).map((line) => line.textContent.trim().replaceAll(/\\s+/g, " "))"""


def test_what_cannot_wait_and_the_state_of_the_flows_is_seen_without_scrolling(page, db):
    """With fifteen groups, and four causes."""
    now = database_now()
    for number in range(15):
        group(f"{number} is the number of a cause that has a long name, as most of them have it")
    for place, (topic, partition) in enumerate([("transfer-requests", 1), ("PAYMENT_SUCCESS", 0)]):
        Watermark.objects.create(
            group=("buffer-ingest", "buffer-track")[place], topic=topic, partition=partition, next_offset=1, end_offset=9,
            updated_at=now, alarm="the topic was deleted and created again (its id changed): check what is in it, then "
            "start with --accept-reset to read it from the beginning",
        )  # fmt: skip
    long_ago = now - timedelta(minutes=9)
    ChannelState.objects.update_or_create(
        name="email",
        defaults={"paused": True, "paused_at": long_ago, "pause_reason": "550 5.7.1 denied", "updated_at": now},
    )
    WorkerProcess.objects.create(
        run=uuid4(), command="run_throttler", host="app-1", place="elsewhere", pid=7, mark="1", version="1", since=long_ago,
        kept_since=long_ago, seen_at=long_ago, holds="notifications-in 0–11",
    )  # fmt: skip
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto("/admin/")
    assert page.locator(".sw-states li").count() == 5
    assert page.locator(".sw-needs > .sw-bad").count() == 4
    assert page.evaluate(BELOW) == []


def test_slash_goes_to_the_search_field(page, rows):
    page.goto("/admin/")
    page.keyboard.press("/")
    page.keyboard.type("C1")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{page_of(rows.waiting)}")


def test_a_lever_by_keyboard_alone(page, rows):
    page.goto(lever_of(type(rows.bucket), "hold", rows.bucket))
    page.keyboard.type("stocktake until noon")  # the reason has the focus
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Held 1 warehouse.")


def test_a_time_says_what_the_clock_of_the_reader_showed(page, rows):
    """The page says UTC; who points at it reads the own time in the title, once."""
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    page.goto(page_of(rows.late))
    time = page.locator("time").first
    utc = time.get_attribute("title")
    time.hover()
    time.hover()
    said = time.get_attribute("title")
    assert utc.endswith("UTC")
    own = (datetime.fromisoformat(utc.removesuffix(" UTC")) + timedelta(hours=9)).strftime("%H:%M:%S")
    assert said.startswith(f"{utc} · ")
    assert f"{own} GMT+9 where you are" in said
    assert said.count("·") == 1


def test_on_a_phone_the_forecast_stands_above_the_error(page, rows):
    page.goto(page_of(rows.late))
    forecast, error = (
        page.locator(f"section:has(> header h2:text-is('{words}'))") for words in ("If you requeue it now", "Error")
    )
    for width, above in ((390, True), (1440, False)):
        page.set_viewport_size({"width": width, "height": 900})
        assert (forecast.bounding_box()["y"] < error.bounding_box()["y"]) is above


def test_on_a_phone_a_group_is_its_state_number_cause_flow_age_and_owner(page, rows):
    """As drawn; when it began and how it went stand on its page. In words for who does not see the lines."""
    page.goto(list_of(FailureGroup))
    extra = page.locator("#result_list td:is(.field-last_day, .field-first)")
    assert extra.first.is_visible()
    page.set_viewport_size({"width": 390, "height": 900})
    assert not any(cell.is_visible() for cell in extra.all())
    state, number, cause, owner = (
        page.locator(f"#result_list .field-{name}").first for name in ("state_shown", "count_open", "cause", "owner")
    )
    assert re.fullmatch(r"1 letter|[\d,]+ letters", number.inner_text())
    tops = [cell.bounding_box()["y"] for cell in (state, cause, owner)]
    assert tops == sorted(tops)
    assert number.bounding_box()["y"] < cause.bounding_box()["y"]
    assert owner.evaluate("cell => getComputedStyle(cell, '::before').content") == '"Owner"'


@pytest.mark.parametrize("width", [390, 768, 1024, 1440])
def test_nothing_sticks_out(page, rows, width):
    page.set_viewport_size({"width": width, "height": 900})
    for url in ("/admin/", list_of(type(rows.late)), page_of(rows.late), page_of(rows.sent), page_of(rows.bucket)):
        page.goto(url)
        over = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert over <= 0, url
