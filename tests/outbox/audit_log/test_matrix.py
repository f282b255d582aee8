"""Every role at every lever of every page: it may, or gets 403 and stands in the trail."""

from __future__ import annotations

import io
import re
import uuid
from urllib.parse import urlencode

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import connection
from django.http import HttpResponseNotFound
from django.urls import reverse

from buffer.admin.stocks import STOCKTAKE
from buffer.models import InventoryStock
from config import urls
from config.admin.levers import ROLES
from config.admin.pages import ReadOnlyAdmin
from config.database.clock import database_now
from config.kafka import Replayed
from outbox.admin.replay_batches import DEEDS, RIGHTS, role_for
from outbox.letters.burial import Letter, bury
from outbox.letters.filters import STARTS, VERBS
from outbox.letters.models import DeadLetter
from outbox.models import FailureGroup, OperatorAction
from outbox.replay_batches.models import ReplayBatch
from tests.outbox.audit_log.test_reveal import client_of
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


@pytest.fixture
def row() -> str:
    """A key that a stock and a customer have; other pages have no row with it, which their levers say."""
    now = database_now()
    InventoryStock.objects.create(pk="X-1", quantity=0, created_at=now, updated_at=now)
    FailureGroup.objects.create(
        pk=1,
        fingerprint="f",
        source="ledger",
        step="x",
        reason="x",
        title="t",
        open_count=3,
        first_seen=now,
        last_seen=now,
    )
    Customer.objects.create(pk="X-1", rates="10/s", created_at=now, updated_at=now)
    return "X-1"


def test_the_matrix_knows_the_levers():
    assert len(LEVERS) > 20
    assert {right for _, right in LEVERS} > {"outbox.discard_deadletter", "throttler.purge_customer"}


@pytest.mark.parametrize("role", ROLES)
def test_each_lever_asks_for_its_right(role, row):
    client, user = client_of(role), User.objects.get()
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
    client, user, now = client_of(role), User.objects.get(), database_now()
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
    html = client_of(role).get(reverse("admin:throttler_customer_change", args=[row])).content.decode()
    locked = "need the right “change rate and lifetime of customers”. The role Operator has it."
    assert (locked in html) == (role != "Operator")
    assert "needs the right “purge what a customer has buffered”. No role has it." in html


# -- Whatever address there is, and the terminal -------------------------------------------------------------
def addresses(patterns, before: str = "/admin/"):
    """Every address of the admin, with something in place of each argument; `name` stands for each lever."""
    for one in patterns:
        path = before + re.sub(r"^\^|\$$", "", str(one.pattern))
        if hasattr(one, "url_patterns"):
            yield from addresses(one.url_patterns, path)
        elif "?P" not in path:
            yield re.sub(r"<int:\w+>", "1", re.sub(r"<uuid:\w+>", str(uuid.UUID(int=0)), path))


FORM = "application/x-www-form-urlencoded"
NAMES = sorted(
    {lever.name for page in PAGES for lever in page.levers} | {one.lever.name for one in OF_CUSTOMERS} | set(DEEDS)
)


@pytest.mark.skipif(
    connection.vendor == "mysql", reason="some thousand requests, refused before the database says anything"
)
def test_no_address_changes_anything_for_whoever_may_only_look(row, monkeypatch):
    """Also one that is added tomorrow: nothing but refusals and files stands in the trail, and rows are as they were."""
    # Four of five addresses name a lever of another page: the text of "not found" would be a third of the time.
    monkeypatch.setattr(urls, "handler404", lambda request, exception: HttpResponseNotFound(), raising=False)
    client = client_of("Auditor")
    models = (InventoryStock, FailureGroup, Customer, User, Group)
    before = [list(model.objects.order_by("pk").values()) for model in models]
    given = {"reason": "a long enough reason", "choice": "day", "verb": "requeue", "all": "1"}
    all_urls = {one for one in addresses(admin.site.urls[0]) if not one.endswith(("logout/", "login/"))}
    asked = {
        re.sub(r"<(slug|path):\w+>", name, url) for url in all_urls for name in (NAMES if "<slug:" in url else ["X-1"])
    }
    assert len(asked) > 200
    for url in sorted(asked):
        for key in ("1", "X-1"):  # a row's key where numbers are keys, and where texts are
            answer = client.post(url, urlencode({**given, "id": key}), content_type=FORM)
            assert answer.status_code in (200, 302, 403, 404, 405), url
    assert set(OperatorAction.objects.values_list("verb", flat=True)) == {"refused", "download"}
    last_login = {"last_login"}
    after = [list(model.objects.order_by("pk").values()) for model in models]
    assert [[{k: v for k, v in one.items() if k not in last_login} for one in rows] for rows in before] == [
        [{k: v for k, v in one.items() if k not in last_login} for one in rows] for rows in after
    ]
    assert not ReplayBatch.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", VERBS)
def test_each_lever_of_the_terminal_is_one_action_of_the_account_that_ran_it(verb):
    """Whoever has the shell has every right; the trail says who it was and why, as for a person."""
    record = Replayed("swift", 0, 1, 1_700_000_000_000, b"k", b'{"a": 1}', [])
    bury([Letter("transfer-requests", "decode", "x", "broken", record, business_key="A-1")], "g", database_now())
    DeadLetter.objects.update(status=STARTS[verb])
    given = ["--all", "--reason", "the cause is mended"]
    if verb == "edit":
        given += ["--set", "$.a", "2", "--as", "json"]
    call_command("dead_letters", verb, *given, stdout=io.StringIO(), stderr=io.StringIO())
    (action,) = OperatorAction.objects.all()
    assert (action.verb, action.actor_number, action.reason) == (verb, None, "the cause is mended")
    assert action.actor_name.endswith(", by command")
