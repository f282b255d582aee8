"""Every role at every lever of every page: it may, or gets 403 and stands in the trail."""

from __future__ import annotations

import uuid

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from buffer.admin.stocks import STOCKTAKE
from buffer.models import InventoryStock
from config.admin.read_only import ReadOnlyAdmin
from config.admin.roles import ROLES
from config.database.clock import database_now
from outbox.admin.batches.form import DEEDS, RIGHTS, role_for
from outbox.letters.filters import VERBS
from outbox.models import FailureGroup, OperatorAction
from outbox.replay.batches.models import ReplayBatch
from throttler.admin.levers import LEVERS as OF_CUSTOMERS
from throttler.customers.models import Customer

pytestmark = pytest.mark.django_db
PAGES = [page for page in admin.site._registry.values() if isinstance(page, ReadOnlyAdmin)]
# (where it is asked for, the right it needs)
LEVERS = [
    *((page.lever_url(lever), f"{page.opts.app_label}.{lever.right}") for page in PAGES for lever in page.levers),
    *(
        (reverse("admin:throttler_customer_lever", args=[one.lever.name]), f"throttler.{one.lever.right}")
        for one in OF_CUSTOMERS
    ),
    (reverse("admin:buffer_inventorystock_lever", args=["stocktake"]), f"buffer.{STOCKTAKE.right}"),
    (reverse("admin:outbox_topicreplay_add"), "outbox.replay_topic"),
    (reverse("admin:outbox_failuregroup_words", args=[1]), "outbox.take_failuregroup"),
    (reverse("admin:outbox_deadletter_edit", args=[uuid.UUID(int=0)]), "outbox.edit_deadletter"),
]


@pytest.fixture(autouse=True)
def _plain_http(settings):
    settings.SECURE_SSL_REDIRECT = False


@pytest.fixture
def row() -> str:
    """A key that a stock and a customer have; other pages have no row with it, which their levers say."""
    now = database_now()
    InventoryStock.objects.create(pk="X-1", quantity=0, created_at=now, updated_at=now)
    FailureGroup.objects.create(
        pk=1, fingerprint="f", source="ledger", step="x", reason="x", title="t", first_seen=now, last_seen=now
    )
    Customer.objects.create(pk="X-1", rates="10/s", created_at=now, updated_at=now)
    return "X-1"


def test_the_matrix_knows_the_levers():
    assert len(LEVERS) > 20
    assert {right for _, right in LEVERS} > {"outbox.discard_deadletter", "throttler.purge_customer"}


@pytest.mark.parametrize("role", ROLES)
def test_each_lever_asks_for_its_right(role, row):
    user = User.objects.create_user("somebody", is_staff=True)
    user.groups.set([Group.objects.get(name=role)])
    client = Client()
    client.force_login(user)
    for url, right in LEVERS:
        keys = [] if "outbox" in url or "notifications" in url else [row]
        answer = client.post(url, {"id": keys if "stock" in url or "customer" in url else []})
        recorded = OperatorAction.objects.filter(verb="refused")
        allowed = user.has_perm(right)
        assert (answer.status_code == 403) == (not allowed), (url, right)
        assert recorded.count() == (0 if allowed else 1), (url, right)
        recorded.delete()


@pytest.mark.parametrize("role", ROLES)
def test_each_lever_of_a_batch_asks_for_both_rights(role):
    """To bulk, and to do it to one letter; who has them is told that the batch has ended, or that nothing was chosen."""
    user = User.objects.create_user("somebody", is_staff=True)
    user.groups.set([Group.objects.get(name=role)])
    client, now = Client(), database_now()
    client.force_login(user)
    for verb in VERBS:
        batch = ReplayBatch.objects.create(
            verb=verb, state="done", filter={"all": True}, cut_off=uuid.uuid4(), created_at=now
        )
        url = reverse("admin:outbox_replaybatch_draft")
        asked = [(url, {"verb": verb})]
        asked += [(reverse("admin:outbox_replaybatch_deed", args=[batch.pk, name]), {}) for name in DEEDS]
        allowed = user.has_perms(RIGHTS[verb])
        for url, given in asked:
            assert (client.post(url, given).status_code == 403) == (not allowed), (url, verb)
            recorded = list(OperatorAction.objects.values_list("verb", "subject_type", "result"))
            expected = [("refused", "outbox.replaybatch", recorded and recorded[0][2])]
            assert recorded == ([] if allowed else expected), (url, verb)
            assert allowed or recorded[0][2].startswith("needs the right")
            OperatorAction.objects.all()._raw_delete("default")
        assert ReplayBatch.objects.filter(pk=batch.pk, state="done").exists()


def test_senior_support_may_pull_every_lever_on_many_letters():
    assert {role_for(verb) for verb in VERBS} == {"Senior support"}


@pytest.mark.parametrize("role", ROLES)
def test_a_page_draws_each_lever_open_or_locked_with_right_and_role(role, row):
    user = User.objects.create_user("somebody", is_staff=True)
    user.groups.set([Group.objects.get(name=role)])
    client = Client()
    client.force_login(user)
    html = client.get(reverse("admin:throttler_customer_change", args=[row])).content.decode()
    locked = "need the right “change rate and lifetime of customers”. The role Operator has it."
    assert (locked in html) == (role != "Operator")
    assert "needs the right “purge what a customer has buffered”. No role has it." in html
