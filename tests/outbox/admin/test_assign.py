"""Groups are given to somebody else, by whoever may manage groups."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User

from outbox.audit_log.models import OperatorAction
from outbox.groups.models import FailureGroup
from tests.config.admin.conftest import client_with, lever_of
from tests.config.admin.test_pages import seen
from tests.outbox.admin.test_group_pages import State, group

__all__ = ["group"]
pytestmark = pytest.mark.django_db


def test_a_group_is_assigned_to_somebody_who_may_take_groups(boss, group):
    client_with("view_failuregroup", "take_failuregroup")
    ada = User.objects.get(username="user1")
    User.objects.create_user("nobody", is_staff=True)
    User.objects.create_user("gone", is_staff=True, is_superuser=True, is_active=False)
    url = lever_of(FailureGroup, "assign", group).partition("?")[0]
    html = seen(boss, f"{url}?id={group.pk}")
    assert re.findall(r'<option value="\d+">([^<]+)<', html) == ["M. Okafor (boss)", "user1"]
    stranger = User.objects.get(username="nobody").pk
    assert "choose one" in boss.post(url, {"id": group.pk, "choice": stranger}).content.decode()
    for owner in (ada, User.objects.get(username="boss")):
        boss.post(url, {"id": group.pk, "choice": owner.pk})
        group.refresh_from_db()
        assert (group.state, group.owner_id) == (State.ACKNOWLEDGED, owner.pk)
    assert "Nothing was changed" in boss.post(url, {"id": group.pk, "choice": owner.pk}, follow=True).content.decode()
    found = list(OperatorAction.objects.order_by("pk").values_list("verb", "before", "after"))
    assert found == [
        ("assign", {"owner": ""}, {"owner": "user1"}), ("assign", {"owner": "user1"}, {"owner": "M. Okafor"}),
    ]  # fmt: skip
