"""In Chromium: to the provider and back, out here and there although no form may leave; and what axe says of each page."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import override_settings
from pytest_django.live_server_helper import LiveServer

from outbox.audit_log.models import OperatorAction
from outbox.sign_in.models import SignIn
from tests.config.admin.test_browser import CHROMIUM, SOON, chromium
from tests.outbox.sign_in.conftest import later

__all__ = ["chromium"]
axe_playwright = pytest.importorskip(
    "axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python"
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium"),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="the pages are the same: once is enough"),
]
LOOKS = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "narrow": {"color_scheme": "light", "viewport": {"width": 390, "height": 800}},
}


@pytest.fixture
def live_server(provider):
    """Made when the provider is known: a server keeps its middleware."""
    Group.objects.get_or_create(name="Support")  # a transaction test before this one has emptied the table
    with override_settings(SESSION_COOKIE_SECURE=False, CSRF_COOKIE_SECURE=False):
        server = LiveServer("localhost")
        yield server
        server.stop()


@pytest.fixture(params=LOOKS.values(), ids=LOOKS)
def page(request, chromium, live_server):
    context = chromium.new_context(base_url=live_server.url, **request.param)
    page = context.new_page()
    page.set_default_timeout(3 * SOON)
    complaints = []
    page.on("console", lambda message: "Content Security Policy" in message.text and complaints.append(message.text))
    yield page
    context.close()
    assert complaints == []


def found_by_axe(page):
    return [violation["id"] for violation in axe_playwright.Axe().run(page).response["violations"]]


def test_a_day_at_the_console(page, provider, live_server, settings):
    settings.PASSWORD_LOGIN = False
    page.goto("/admin/")
    assert page.locator("input[name=password]").count() == 0
    assert found_by_axe(page) == []
    page.click("text=Break-glass account")
    assert page.locator("input[name=password]").count() == 1
    assert found_by_axe(page) == []
    page.click("text=Log in with 127.0.0.1")
    page.wait_for_selector("#user-tools >> text=Anna Schmidt")
    assert page.url == f"{live_server.url}/admin/"
    assert SignIn.objects.count() == 1

    page.click("button:has-text('Log out')")
    page.wait_for_selector("text=Logged out at the provider")
    assert page.url.startswith(f"{provider.issuer}/out?id_token_hint=")
    assert SignIn.objects.count() == 0

    provider.userinfo["groups"] = ["marketing"]
    page.goto("/admin/")
    page.click("text=Log in with 127.0.0.1")
    page.wait_for_selector("text=none of the groups has a role here")
    assert found_by_axe(page) == []
    provider.fails["/token"] = 500
    page.click("text=Log in as somebody else")
    page.wait_for_selector("h1:has-text('does not answer')")
    assert found_by_axe(page) == []


def test_home_that_renews_itself_says_that_its_reader_is_out(page, provider, monkeypatch):
    monkeypatch.setattr("config.admin.home.REFRESH_SECONDS", 0.3)
    page.goto("/oidc/authenticate/")
    page.wait_for_selector("#user-tools >> text=Anna Schmidt")
    provider.userinfo["groups"] = ["marketing"]
    later(601)
    page.wait_for_selector("text=Signed out. Load the page again.")
    assert OperatorAction.objects.latest("pk").verb == "refuse_sign_in"
    assert not User.objects.get().is_staff
