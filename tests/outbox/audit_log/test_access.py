"""Rights: only superusers give them, each change is an action; a POST without the right is 403 and recorded."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from outbox.audit_log.models import OperatorAction

pytestmark = pytest.mark.django_db
DAY = {"date_joined_0": "2026-11-01", "date_joined_1": "10:00:00"}


@pytest.fixture
def boss():
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    return client


@pytest.fixture
def helper():
    """May do with accounts whatever Django's rights allow, and is no superuser."""
    user = User.objects.create_user("helper", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="auth"))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def ann():
    return User.objects.create_user("ann", is_staff=True)


def actions() -> list[tuple]:
    return list(OperatorAction.objects.order_by("pk").values_list("verb", "subject_type", "subject_id"))


def test_rights_given_and_taken_are_actions_with_what_was_before(boss, ann):
    support = Group.objects.get(name="Support")
    url = f"/admin/auth/user/{ann.pk}/change/"
    assert (
        boss.post(
            url, {"username": "ann", "is_staff": "on", "is_active": "on", "groups": [support.pk], **DAY}
        ).status_code
        == 302
    )
    (given,) = OperatorAction.objects.all()
    assert (given.verb, given.subject_type, given.subject_id) == ("change_rights", "auth.user", str(ann.pk))
    assert (given.before["roles"], given.after["roles"]) == ([], ["Support"])
    boss.post(url, {"username": "ann", "is_staff": "on", **DAY})
    taken = OperatorAction.objects.order_by("-pk").first()
    assert (taken.before["roles"], taken.after["roles"], taken.after["active"]) == (["Support"], [], False)


def test_the_rights_of_a_role_are_actions_too(boss):
    group = Group.objects.get(name="Support")
    right = Permission.objects.get(codename="pause_channel")
    boss.post(f"/admin/auth/group/{group.pk}/change/", {"name": "Support", "permissions": [right.pk]})
    (action,) = OperatorAction.objects.all()
    assert action.verb == "change_rights"
    assert action.after == {"rights": ["outbox.pause_channel"]}
    assert "outbox.requeue_deadletter" in action.before["rights"]


def test_adding_renaming_and_deleting_accounts_is_recorded_without_what_was_typed(boss):
    assert boss.post("/admin/auth/user/add/", {"username": "eve"}).status_code == 200
    eve = User.objects.get(username="eve")
    words = {"usable_password": "true", "password1": "gre4t-secret", "password2": "gre4t-secret"}
    assert boss.post(f"/admin/auth/user/{eve.pk}/password/", words).status_code == 302
    boss.post(f"/admin/auth/user/{eve.pk}/delete/", {"post": "yes"})
    assert [verb for verb, _, _ in actions()] == ["add_user", "make_password_link", "change_user", "delete_user"]
    assert "gre4t-secret" not in str(list(OperatorAction.objects.values()))


@pytest.mark.parametrize("path", ["user/{}/change/", "user/{}/password/", "user/{}/delete/", "user/add/", "group/add/"])
def test_nobody_but_a_superuser_changes_accounts(helper, ann, path):
    before = list(User.objects.values())
    url = "/admin/auth/" + path.format(ann.pk)
    assert helper.post(url, {"username": "ann", "is_superuser": "on", "post": "yes", "name": "x"}).status_code == 403
    assert list(User.objects.order_by("pk").values()) == sorted(before, key=lambda row: row["id"])
    (action,) = OperatorAction.objects.all()
    assert (action.verb, action.actor_name) == ("refused", "helper")


def test_a_helper_may_still_look(helper, ann):
    assert helper.get(f"/admin/auth/user/{ann.pk}/change/").status_code == 200


def test_a_refused_lever_names_the_rows_the_right_and_the_reason(helper):
    helper_user = User.objects.get(username="helper")
    helper_user.user_permissions.add(*Permission.objects.filter(codename="view_deadletter"))
    ids = ["019aa5c1-52e0-7c41-9d0e-7be0b1f6a23c", "019aa5c1-52e0-7c41-9d0e-7be0b1f6a23d"]
    answer = helper.post("/admin/outbox/deadletter/lever/discard/", {"id": ids, "reason": "I want\x00 to"})
    assert answer.status_code == 403
    (action,) = OperatorAction.objects.all()
    assert (action.subject, action.rows, action.reason) == ("Discard on dead letters", 2, "I want to")
    assert action.result == "needs the right “discard dead letters”"
    assert action in OperatorAction.objects.about("outbox.deadletter", ids[1])


def test_looking_is_no_deed(helper):
    assert helper.get("/admin/outbox/deadletter/").status_code == 403
    assert not OperatorAction.objects.exists()
