"""Roles are made after `migrate`, once; what people change about them stays."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, Permission
from django.core.management import call_command

from config.admin.levers import ROLES, role_with
from outbox.audit_log.models import OfferedRight

pytestmark = pytest.mark.django_db


def rights_of(role: str) -> set[str]:
    found = Group.objects.get(name=role).permissions.values_list("content_type__app_label", "codename")
    return {f"{app}.{codename}" for app, codename in found}


def migrate() -> None:
    call_command("migrate", verbosity=0)


def test_the_roles_have_what_they_are_for():
    support, senior, operator, auditor = map(rights_of, ROLES)
    assert {"outbox.requeue_deadletter", "outbox.view_deadletter", "notifications.view_order"} <= support
    assert support < senior < operator
    new = senior - support
    assert {"outbox.view_payload", "outbox.edit_deadletter", "outbox.discard_deadletter"} <= new
    assert {"outbox.send_again_outboxmessage", "outbox.pause_channel", "buffer.hold_bucket"} <= operator - senior
    assert auditor == {right for right in support if "view_" in right} | {
        "outbox.view_operatoraction",
        "outbox.keep_savedview",
    }
    assert not any(right.startswith("auth.") for right in operator | auditor)
    assert "outbox.view_operatoraction" in operator - senior
    assert "notifications.lift_suppression" in support


def test_what_somebody_took_away_or_added_stays():
    group = Group.objects.get(name="Support")
    group.permissions.remove(Permission.objects.get(codename="requeue_deadletter"))
    group.permissions.add(Permission.objects.get(codename="pause_channel"))
    before = rights_of("Support")
    migrate()
    assert rights_of("Support") == before


def test_a_role_that_was_deleted_stays_deleted():
    Group.objects.get(name="Auditor").delete()
    migrate()
    assert not Group.objects.filter(name="Auditor").exists()


def test_a_right_of_a_new_release_is_offered_once():
    OfferedRight.objects.filter(right="outbox.edit_deadletter").delete()
    right = Permission.objects.get(codename="edit_deadletter")
    for group in Group.objects.all():
        group.permissions.remove(right)
    Group.objects.get(name="Operator").delete()
    migrate()
    assert "outbox.edit_deadletter" in rights_of("Senior support")
    assert "outbox.edit_deadletter" not in rights_of("Support")
    assert not Group.objects.filter(name="Operator").exists()


def test_somebodys_own_group_with_a_roles_name_is_left_alone():
    Group.objects.all().delete()
    OfferedRight.objects.all().delete()
    Group.objects.create(name="Support")
    migrate()
    assert rights_of("Support") == set()
    assert "outbox.view_payload" in rights_of("Senior support")
    migrate()
    assert rights_of("Support") == set()


@pytest.mark.parametrize(
    ("right", "role"),
    [
        ("outbox.requeue_deadletter", "Support"),
        ("outbox.view_payload", "Senior support"),
        ("throttler.hold_customer", "Operator"),
        ("throttler.view_customer", "Support"),
        ("outbox.view_operatoraction", "Operator"),
        ("notifications.lift_suppression", "Support"),
        ("buffer.adjust_inventorystock", ""),
        ("auth.view_user", ""),
    ],
)
def test_a_locked_lever_can_name_the_least_role(right, role):
    assert role_with(right) == role
