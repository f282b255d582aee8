"""A stranger's text turns nothing on a page around it: direction controls are written out, what is read from the right is isolated."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from config.admin.html import UNUSUAL, in_reading_order
from config.database.clock import database_now
from outbox.groups.models import FailureGroup
from outbox.letters.burial import bury
from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import list_of, page_of
from tests.outbox.test_outbox import letter
from throttler.models import Customer

TURNING = "\u202eA1\u2066\x1b"
HEBREW = "אבג 12 דה"


class Texts(HTMLParser):
    """The texts of a page that stand outside of <bdi> and of fields."""

    def __init__(self) -> None:
        super().__init__()
        self.outside: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.open += [tag] * (tag in ("bdi", "textarea", "title"))

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data):
        if not self.open:
            self.outside.append(data)


def unusual_in(html: str) -> list[str]:
    texts = Texts()
    texts.feed(html)
    return [text for text in texts.outside if UNUSUAL.search(text)]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>a b</p>", "<p>a b</p>"),
        ("<p>of \u202eb are</p>", r"<p>of <bdi>\u202e</bdi>b are</p>"),
        (f"<p>of {HEBREW}, 5 wait</p>", f"<p>of <bdi>{HEBREW}</bdi>, 5 wait</p>"),
        ('<a title="\u202e">x\x9b</a>', r'<a title="' "\u202e" r'">x<bdi>\x9b</bdi></a>'),
        ("<textarea>\u202e</textarea>", "<textarea>\u202e</textarea>"),
        ("<title>\u202e</title>\u2067", r"<title>\u202e</title><bdi>\u2067</bdi>"),
        (
            '<svg><text class="x">\u202eא<tspan>א</tspan></text></svg>',
            '<svg><text class="x">\\u202eא<tspan>א</tspan></text></svg>',
        ),
        ("tab\tand\nline, naïve 東京 \U0001f600", "tab\tand\nline, naïve 東京 \U0001f600"),
    ],
)
def test_a_text_keeps_its_place(html, expected):
    assert in_reading_order(html) == expected


@pytest.mark.django_db
def test_no_page_is_turned_around_by_data(boss):
    now = database_now()
    key = TURNING + HEBREW
    bury([letter(business_key=key, error=f"the server said {TURNING}", value=TURNING.encode())], "g", now)
    Customer.objects.create(customer_id="\u202e" + HEBREW, rates="1/s", held=True, created_at=now, updated_at=now)
    found, group = DeadLetter.objects.get(), FailureGroup.objects.get()
    urls = ["/admin/", list_of(DeadLetter), list_of(FailureGroup), page_of(found), page_of(group), list_of(Customer)]
    for url in urls:
        html = boss.get(url).content.decode()
        assert unusual_in(html) == [], url
    assert r"<bdi>\u202e</bdi>" in boss.get(list_of(DeadLetter)).content.decode()
    assert f"<bdi>{HEBREW}</bdi>" in boss.get(list_of(Customer) + "?show=all").content.decode()
