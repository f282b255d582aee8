"""Every page of the admin in Chromium, in three looks: nothing axe-core finds, no policy broken, nothing sticks out."""

from __future__ import annotations

from datetime import timedelta
from importlib.resources import files

import pytest
from django.contrib.admin import site
from django.core.management import call_command
from django.db import connection
from django.template.loader import render_to_string
from django.test import override_settings
from django.urls import resolve
from pytest_django.live_server_helper import LiveServer

from outbox.channels import handlers as registry
from tests.config.admin.test_browser import CHROMIUM, SOON
from tests.screenshots.camera import LOOKS, NARROW, first_row_of, look, show, sign_in, width_of
from tests.screenshots.others import fill_all
from tests.screenshots.pages import PAGES
from tests.tree import ROOT

sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
pytest.importorskip("axe_playwright_python", reason="pip install axe-playwright-python")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium"),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="the pages are the same: once is enough"),
]
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
COLOURS = ["color-contrast", "link-in-text-block"]  # most of axe's time
# By colour alone the dark look differs from the light one; the narrow one lies differently, in the same colours.
COLOURED, LYING = {"light", "dark"}, {"light", "narrow"}
RULES = {"runOnly": {"type": "tag", "values": TAGS}, "rules": {rule: {"enabled": False} for rule in COLOURS}}
ROWS = 6  # of a list: the others would be read for nothing
HIGHEST = 400  # pixels above the first row of a list on a phone
FOUND = """async (rules) => {
  const { violations } = await axe.run(document, { ...rules, resultTypes: ["violations"], preload: false });
  return violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target} ${node.failureSummary}`));
}"""
# Text of a colour and a size on a background: what has passed on one page is not measured on the next.
FOUND_IN_COLOUR = """async ([rules, passed]) => {
  const styles = new Map(), nothing = "rgba(0, 0, 0, 0)", known = new Set(passed);
  const style = (at) => styles.get(at) ?? styles.set(at, getComputedStyle(at)).get(at);
  const letters = ({ color, fontSize, fontWeight, textShadow, textDecorationLine, borderBottom }) =>
    [color, fontSize, fontWeight, textShadow, textDecorationLine, borderBottom];
  const kind = (element) => {
    const seen = [element.localName === "a", ...letters(style(element)), ...letters(style(element.parentElement))];
    for (let at = element; at; at = at.parentElement) {
      const { backgroundColor, backgroundImage, opacity, filter } = style(at);
      if (backgroundColor !== nothing || backgroundImage !== "none" || opacity !== "1" || filter !== "none")
        seen.push(backgroundColor, backgroundImage, opacity, filter);
    }
    return seen.join();
  };
  const written = (element) => element.getClientRects().length && (element.matches("a, input, select, textarea") ||
    [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim()));
  const fresh = [...document.body.querySelectorAll("*")].filter((element) => written(element) && !known.has(kind(element)));
  if (!fresh.length) return [[], []];
  const asked = { runOnly: { type: "rule", values: rules }, resultTypes: ["violations", "passes"], elementRef: true, preload: false };
  const { violations, passes } = await axe.run({ include: fresh }, asked);
  return [
    violations.flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target} ${node.failureSummary}`)),
    passes.filter(({ id }) => id === "color-contrast").flatMap(({ nodes }) => nodes.map(({ element }) => kind(element))),
  ];
}"""
PLAIN = {"SECURE_SSL_REDIRECT": False, "SESSION_COOKIE_SECURE": False, "CSRF_COOKIE_SECURE": False}
MAIL = {"EMAIL_CHANNEL": "memory"}


@pytest.fixture(autouse=True)
def _django_db_marker():
    """Instead of pytest-django's: no transaction around a test, which would lock out the server. The mark alone has the
    database made."""


@pytest.fixture(scope="module")
def served(django_db_setup, django_db_blocker):
    """One bad morning and its server: the address, and where every page is. The rows are made once: no test here changes
    what another one sees."""
    with django_db_blocker.unblock(), override_settings(**PLAIN, **MAIL), pytest.MonkeyPatch.context() as patch:
        for admin_page in site._registry.values():
            patch.setattr(admin_page, "list_per_page", ROWS)
        registry.installed.clear()
        server = LiveServer("localhost")
        try:
            fill_all()
            yield server.url, {name: shown.find() for name, shown in PAGES.items()}
        finally:  # what stays would fail whatever runs behind this
            server.stop()
            registry.installed.clear()
            call_command("flush", verbosity=0, interactive=False)


@pytest.fixture(scope="module")
def visitors(served):
    """`{who: a tab where this person is signed in}`, of everybody who looks at pages."""
    with pytest.MonkeyPatch.context() as patch, sync_api.sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # the browser's loop runs in this thread
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield {who: sign_in(browser, served[0], who).new_page() for who in {shown.who for shown in PAGES.values()}}
        browser.close()


@pytest.fixture(scope="module")
def axe():
    """The source of axe-core."""
    return files("axe_playwright_python").joinpath("axe.min.js").read_text()


@pytest.fixture(scope="module")
def passed():
    """`{look: kinds of text}` that axe has found to be readable."""
    return {seen: set() for seen in COLOURED}


def kind_of(url_name: str) -> str:
    """`lever` of `outbox_deadletter_lever`: pages of a kind have one template."""
    return url_name.rpartition("_")[2] if url_name.count("_") > 1 else url_name


def named_in(patterns) -> set[str]:
    found: set[str] = set()
    for one in patterns:
        found |= named_in(one.url_patterns) if hasattr(one, "url_patterns") else {one.name or ""}
    return found - {""}


NO_PAGES = {
    "logout", "reveal", "deed", "link", "csv", "save",  # answer a POST
    "autocomplete", "jsi18n", "site",  # no page: not found, a script, the redirect of view_on_site
    "body",  # the mail in its frame, seen in the page of a message
}  # fmt: skip


def test_every_kind_of_page_is_opened(served):
    """A page that somebody adds is read by axe, too; forms that nobody may open are not asked for."""
    opened = {resolve(url.partition("?")[0]).url_name for name, url in served[1].items() if PAGES[name].status != 404}
    missing = {kind_of(name) for name in named_in(site.urls[0])} - {kind_of(name) for name in opened} - NO_PAGES
    assert missing == set()


REFUSALS = [path.name for path in sorted((ROOT / "templates").glob("*.html"))]


@pytest.mark.parametrize("template", REFUSALS)
def test_a_refusal_can_be_read_by_everybody(served, visitors, axe, template):
    """Most of these no address brings about: each is shown as if the server had answered with it."""
    page, url = visitors[""], f"{served[0]}/refused/"
    html = render_to_string(template, {"cooloff_timedelta": timedelta(minutes=15)})
    page.route(url, lambda route: route.fulfill(body=html, content_type="text/html"))
    violations = []
    for seen in LOOKS:
        look(page, seen)
        page.goto(url)  # anew: the links of Django's plain style fade from colour to colour
        page.evaluate(axe)
        violations += page.evaluate(FOUND, {"runOnly": {"type": "tag", "values": TAGS}})
    assert violations == []
    assert width_of(page) <= NARROW, "it sticks out"
    page.unroute(url)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_by_everybody(served, visitors, axe, passed, name):
    page, complaints = visitors[PAGES[name].who], []
    page.set_default_timeout(SOON)
    listeners = {
        "console": lambda message: message.type == "error" and complaints.append(message.text),
        "pageerror": lambda error: complaints.append(str(error)),
    }
    for event, listener in listeners.items():
        page.on(event, listener)
    try:
        look(page, "light")
        show(page, served[1][name], PAGES[name])
        page.evaluate(axe)  # by the debugger's protocol, which no policy of the page forbids
        for seen in LOOKS:
            look(page, seen)
            violations = page.evaluate(FOUND, RULES) if seen in LYING else []
            if seen in COLOURED:
                unreadable, readable = page.evaluate(FOUND_IN_COLOUR, [COLOURS, list(passed[seen])])
                violations += unreadable
                passed[seen].update(readable)
            complaints += [f"{seen}: {violation}" for violation in violations]
        assert width_of(page) <= NARROW, "it sticks out"
        assert first_row_of(page) < HIGHEST, "the first row is what a list was opened for"
    finally:
        for event, listener in listeners.items():
            page.remove_listener(event, listener)
    # An answer that refuses is what some pages are about.
    assert [text for text in complaints if "the server responded with a status of 4" not in text] == []


OVERLAPS = """() => [...document.querySelectorAll(".sw-drawing .sw-healthy, .sw-drawing .sw-trouble")].flatMap((stage) => {
  const line = stage.querySelector("polyline")?.getBoundingClientRect();
  const words = [...stage.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
  const box = stage.querySelector("rect").getBoundingClientRect();
  const wide = words.filter(([_text, place]) => place.right > box.right);
  const below = line ? words.filter(([_text, place]) => place.right > line.left && place.left < line.right &&
    place.bottom - 3 > line.top && place.top + 3 < line.bottom) : [];
  return [...wide, ...below].map(([text]) => `${stage.getAttribute("aria-label")}: ${text}`);
})"""
CUT = """() => [...document.querySelectorAll(".sw-needs > li > div:not(.sw-what)")].filter((cell) =>
  cell.scrollWidth > cell.clientWidth || cell.getBoundingClientRect().height > 44).map((cell) => cell.textContent.trim())"""


@pytest.mark.parametrize("width", [1280, 1440])
def test_home_fits_a_laptop(served, visitors, width):
    """What needs you, its number, age and button stand on one line each; the lines of the flows are drawn, beside the words."""
    page = visitors["ito"]
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(served[1]["home"])
    assert page.evaluate(CUT) == []
    assert page.evaluate(OVERLAPS) == []
    lines = page.locator(".sw-drawing .sw-healthy polyline")
    assert lines.count()
    assert lines.first.is_visible()
    assert width_of(page) <= width
