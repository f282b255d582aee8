"""Hidden columns: no list can be filtered or sorted by one, so nobody reads it by guessing."""

from __future__ import annotations

import re

import pytest
from django.contrib import admin
from django.urls import reverse

from config.admin.pages import ReadOnlyAdmin
from tests.outbox.audit_log.test_reveal import SECRET, client_of, letter, planted

__all__ = ["letter", "planted"]
pytestmark = pytest.mark.django_db
LINK = re.compile(r'href="([^"]*)"')
LISTS = [page for page in admin.site._registry.values() if isinstance(page, ReadOnlyAdmin)]
ACROSS = ("group__title__startswith", "batch__reason__startswith", "o", "ot", "_popup")


def answers(client, url: str, lookup: str, guess: str) -> tuple[int, list[str]]:
    """Rows, their order and the pages that follow are links; times would differ by a second."""
    answer = client.get(f"{url}?{lookup}={guess}")
    return answer.status_code, [link.replace(guess, "X") for link in LINK.findall(answer.content.decode())]


def test_every_list_of_ours_is_one_of_these():
    """Django's own page class filters and sorts by any column; accounts and roles have no hidden one."""
    others = {page.opts.label_lower for page in admin.site._registry.values()} - {one.opts.label_lower for one in LISTS}
    assert others == {"auth.user", "auth.group"}


@pytest.mark.parametrize("page", LISTS, ids=lambda page: page.opts.model_name)
def test_a_guess_at_a_column_changes_nothing_that_can_be_seen(planted, page):
    """Neither rows, nor order, nor count: whether it is right or wrong, the same answer comes. Generated from the columns."""
    client = client_of("superuser")
    url = reverse(f"admin:{page.opts.app_label}_{page.opts.model_name}_changelist")
    declared = {*page.links, *(found.parameter_name for found in page.list_filter)}
    names = {field.name for field in page.opts.concrete_fields} - declared
    for lookup in [*(f"{name}__startswith" for name in sorted(names)), *ACROSS]:
        assert answers(client, url, lookup, SECRET) == answers(client, url, lookup, "nothing-like-it"), lookup


@pytest.mark.parametrize("role", ["Support", "Auditor"])
@pytest.mark.parametrize("lookup", ["payload__contains", "error__startswith", "traceback__contains", "key__startswith"])
def test_nor_does_it_for_whoever_has_fewer_rights(planted, role, lookup):
    client, url = client_of(role), reverse("admin:outbox_deadletter_changelist")
    right, wrong = (answers(client, url, lookup, guess) for guess in (SECRET, "nothing-like-it"))
    assert right == wrong
    assert right[0] != 200 or str(planted[0].pk) in str(right[1])
