"""What a request holds and no column takes is left out or refused: the answer is never 500."""

from __future__ import annotations

import re
from itertools import cycle

import pytest
from django.contrib.admin import site

from config.database.clock import database_now
from outbox.audit_log.models import OperatorAction
from outbox.letters.burial import bury
from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import list_of
from tests.outbox.test_outbox import letter

pytestmark = pytest.mark.django_db
BAD = ["", "x", "\0", "9" * 30, "-1", "²", "2026-13-45", "1,2", "%", "\xed\xa0\x80", "[]", "a" * 5000]
REASON = "The customer\0 called, ticket 4471"


@pytest.mark.parametrize("group", ["", "x", "9" * 30, "9" * 5000, "²", "\0"])
def test_a_group_that_is_none_shows_the_list(boss, group):
    assert boss.get(list_of(DeadLetter), {"group__id__exact": group}, follow=True).status_code == 200


def test_a_nul_in_a_reason_is_left_out_and_the_deed_is_done(boss):
    bury([letter()], "g", database_now())
    row = DeadLetter.objects.get()
    answer = boss.post(f"{list_of(DeadLetter)}lever/resolve/", {"id": row.pk, "reason": REASON})
    assert answer.status_code == 302
    row.refresh_from_db()
    assert row.status == "resolved"
    assert OperatorAction.objects.latest("pk").reason == REASON.replace("\0", "")


@pytest.mark.parametrize(
    ("page", "query"),
    [
        ("user/", {"last_login__year": "9" * 30}), ("user/add/", {"_to_field": ""}), ("group/add/", {"_to_field": "\0"}),
        ("user/", {"username": "a\0b"}), ("user/", {"groups__id__exact": "x"}),
    ],
)  # fmt: skip
def test_what_djangos_own_pages_cannot_read_is_refused(boss, page, query):
    assert boss.get(f"/admin/auth/{page}", query, follow=True).status_code in (200, 400)


@pytest.mark.parametrize("model", site._registry, ids=lambda model: model._meta.label_lower)
def test_no_list_breaks_whatever_its_address_holds(boss, model):
    """Each parameter that the page offers, those of Django's lists, and those of fields, with two of the bad values: by turns all
    of them. (Each with each takes minutes, and found nothing more.)"""
    address = list_of(model)
    page = boss.get(address)
    if page.status_code != 200:
        pytest.skip("nobody may open this list")
    offered = set(re.findall(r"[?&;]([a-z_]+)=", page.content.decode()))
    fields = {field.name for field in model._meta.fields[:4]}
    names = sorted(offered | fields | {"q", "p", "o", "e", "all", "_facets", "_popup", "_to_field"})
    for name, value in zip(names * 2, cycle(BAD), strict=False):
        answer = boss.get(address, {name: value}, follow=True)
        assert answer.status_code < 500, (name, value)
