"""Every page of the admin by a name: the pictures are taken of some, the test of accessibility opens all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlencode

from django.contrib.admin import site
from django.contrib.auth.models import User
from django.contrib.auth.tokens import default_token_generator
from django.db.models import Model, QuerySet
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from buffer.models import Batch, Bucket, BufferedEvent, InventoryStock
from config.admin.site import register_pages
from outbox.groups.models import FailureGroup
from outbox.letters.models import DeadLetter
from outbox.models import ChannelState, OutboxMessage, Subscription, WorkerProcess
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from tests.screenshots.flows import busiest_stock
from throttler.models import Customer

REASON = "The customer called, ticket 4471"
CUSTOMER = "harbour-foods"


class Shown(NamedTuple):
    """A page: its address, who looks at it, what the server answers, and what is done on it first."""

    find: Callable[[], str]
    who: str = "ito"  # "support" has few rights, "guest" has none, "" is not signed in
    status: int = 200
    do: Callable[[Any], object] | None = None


def name_of(model: type[Model]) -> str:
    return f"{model._meta.app_label}_{model._meta.model_name}"


def listed(model: type[Model], **query: object) -> Callable[[], str]:
    """The list of a model, narrowed by filters."""
    asked = f"?{urlencode(query)}" if query else ""
    return lambda: reverse(f"admin:{name_of(model)}_changelist") + asked


def one(rows: Callable[[], QuerySet], page: str = "change", **query: object) -> Callable[[], str]:
    """The page of the newest of these rows."""

    def find() -> str:
        row = rows().order_by("-pk").first()
        assert row is not None, "the sample rows have none of these"
        asked = f"?{urlencode(query)}" if query else ""
        return reverse(f"admin:{name_of(type(row))}_{page}", args=[row.pk]) + asked

    return find


def lever(name: str, rows: Callable[[], QuerySet], **more: object) -> Callable[[], str]:
    """The confirmation of a lever on some of these rows."""

    def find() -> str:
        chosen = list(rows().order_by("pk")[:3])
        query = urlencode([*(("id", row.pk) for row in chosen), *more.items()])
        return f"{reverse(f'admin:{name_of(type(chosen[0]))}_lever', args=[name])}?{query}"

    return find


def named(url: str, *args: object, **query: object) -> Callable[[], str]:
    return lambda: reverse(f"admin:{url}", args=args) + (f"?{urlencode(query)}" if query else "")


def letters(**found: object) -> Callable[[], QuerySet]:
    return lambda: DeadLetter.objects.filter(**found)


def groups(**found: object) -> Callable[[], QuerySet]:
    return lambda: FailureGroup.objects.filter(**found).exclude(open_count=0)


def batches(state: str) -> Callable[[], QuerySet]:
    return lambda: ReplayBatch.objects.filter(state=state)


def messages(state: str) -> Callable[[], QuerySet]:
    return lambda: OutboxMessage.objects.filter(state=state)


def _reveal(page: Any) -> None:
    """In the first look; in the others it is revealed still."""
    if page.locator("#sw-reveal-reason").count():
        page.fill("#sw-reveal-reason", REASON)
        page.click("button:has-text('Reveal for')")
    page.wait_for_selector("text=Shown to you until")


def _edit(page: Any) -> None:
    """What the gate has refused is revealed, and its faults are named."""
    if page.locator("#id_reason").count():
        page.fill("#id_reason", REASON)
        page.click("button:has-text('Show it and edit a copy')")
    page.wait_for_selector("#id_why")


def _edit_wrong(page: Any) -> None:
    _edit(page)
    page.fill("#id_text", page.input_value("#id_text").replace('"quantity"', '"quantities"', 1))
    page.click("button:has-text('Check and preview')")
    page.wait_for_selector("[role=alert]")


def _submit(page: Any) -> None:
    """The first form of the page, with what stands in it."""
    page.locator("#content-main button.sw-first, #content button.sw-first").first.click()
    page.wait_for_selector("[role=alert], .errornote")


def _save(page: Any) -> None:
    page.click("input[name=_save]")
    page.wait_for_selector(".errornote")


def _issue(page: Any) -> None:
    page.fill("#id_name", "picture taker")
    page.click("input[name=_save]")
    page.wait_for_selector("text=Copy it now")


def _invite(page: Any) -> None:
    page.fill("#id_email", f"new{User.objects.count()}@shop.example")
    page.click("input[name=_save]")
    page.wait_for_selector("text=The link of")


def _welcome() -> str:
    """The link of somebody who has not set a password yet."""
    person, _ = User.objects.get_or_create(username="newcomer", defaults={"first_name": "N.", "last_name": "Comer"})
    parts = [urlsafe_base64_encode(force_bytes(person.pk)), default_token_generator.make_token(person)]
    return reverse("admin:auth_user_welcome", args=parts)


def _items(state: str) -> Callable[[], str]:
    def find() -> str:
        item = ReplayItem.objects.filter(state=state).earliest("pk")
        return f"{reverse('admin:outbox_replayitem_changelist')}?batch__id__exact={item.batch_id}&state={state}"

    return find


def _stocktake() -> str:
    return (
        reverse("admin:buffer_inventorystock_lever", args=["stocktake"])
        + f"?id={InventoryStock.objects.latest('pk').pk}"
    )


def _of_group() -> str:
    group = groups(source="outbox")().latest("pk")
    return f"{reverse('admin:outbox_deadletter_changelist')}?group__id__exact={group.pk}"


def _found() -> str:
    """An order that was sent, and its letter that came too late: two hits."""
    return named("find", q=DeadLetter.objects.filter(step="late").latest("pk").business_key)()


def _draft() -> str:
    group = groups(source="outbox")().latest("pk")
    return f"{reverse('admin:outbox_replaybatch_draft')}?verb=requeue&group={group.pk}"


def _change() -> str:
    return f"{reverse('admin:outbox_replaybatch_draft')}?verb=edit&source=transfer-requests"


def _of_models() -> dict[str, Shown]:
    """The list of every model that the admin knows, and the page of its newest row."""
    register_pages()
    found = {}
    for model in site._registry:
        if model is ReplayItem:
            continue  # its list is that of one batch, and it has no pages
        name = name_of(model).replace("_", "-")
        found[f"{name}-list"] = Shown(listed(model))
        found[name] = Shown(one(model._default_manager.all))
    return found


OTHERS = {
    "home": Shown(named("index")),
    "home-support": Shown(named("index"), "support"),
    "home-guest": Shown(named("index"), "guest"),
    "login": Shown(named("login"), ""),
    "app": Shown(named("app_list", "outbox")),
    "partitions": Shown(named("partitions")),
    "password": Shown(named("password_change")),
    "password-done": Shown(named("password_change_done")),
    "find-nothing": Shown(named("find", q="A-00000")),
    "find-some": Shown(_found),
    "no-such-page": Shown(lambda: "/admin/nothing/", status=404),
    # -- letters and groups
    "letters-all": Shown(listed(DeadLetter, state="all")),
    "letters-of-group": Shown(_of_group),
    "letters-none": Shown(listed(DeadLetter, q="A-00000")),
    "letter-ingest": Shown(one(letters(reason="wrong_field"))),
    "letter-late": Shown(one(letters(step="late"))),
    "letter-batch": Shown(one(letters(step="publish"))),
    "letter-ledger": Shown(one(letters(source="ledger", status="open"))),
    "letter-notice": Shown(one(letters(source="throttler", status="open"))),
    "letter": Shown(one(letters(source="outbox", status="open"))),
    "letter-support": Shown(one(letters(source="outbox", status="open")), "support"),
    "letter-revealed": Shown(one(letters(reason="late_event")), do=_reveal),
    "letter-requeued": Shown(one(letters(status="requeued"))),
    "letter-resolved": Shown(one(letters(status="resolved"))),
    "letter-failed-again": Shown(one(letters(status="failed_again"))),
    "letter-discarded": Shown(one(letters(status="discarded"))),
    "letter-history": Shown(one(letters(status="discarded"), "history")),
    "edit-hidden": Shown(one(letters(source="ledger", status="open"), "edit")),
    "edit": Shown(one(letters(reason="wrong_field", source="transfer-requests"), "edit"), do=_edit),
    "edit-wrong": Shown(one(letters(reason="late_event"), "edit"), do=_edit_wrong),
    "edit-mail": Shown(one(letters(source="outbox", status="open"), "edit"), do=_edit),
    "edit-closed": Shown(one(letters(status="discarded"), "edit")),
    "edit-support": Shown(one(letters(reason="wrong_field"), "edit"), "support", 403),
    "groups": Shown(listed(FailureGroup)),
    "groups-all": Shown(listed(FailureGroup, state="all")),
    "groups-none": Shown(listed(FailureGroup, state="all", owner="me", flow="ledger")),
    "group": Shown(one(groups(source="outbox"))),
    "group-week": Shown(one(groups(reason="wrong_field"), hours=168)),
    "group-support": Shown(one(groups(source="outbox")), "support"),
    "group-words": Shown(one(groups(source="outbox"), "words")),
    "discard": Shown(lever("discard", letters(reason="wrong_field"))),
    "discard-wrong": Shown(lever("discard", letters(reason="wrong_field")), do=_submit),
    "discard-support": Shown(lever("discard", letters(reason="wrong_field")), "support", 403),
    "requeue": Shown(lever("requeue", letters(source="outbox", status="open"))),
    "nothing-to-do": Shown(lever("requeue", letters(status="discarded"))),
    # -- replay batches
    "draft": Shown(_draft),
    "change": Shown(_change),
    "change-wrong": Shown(_change, do=_submit),
    "batch-edit": Shown(one(lambda: ReplayBatch.objects.filter(verb="edit"))),
    "batch-counting": Shown(one(batches("counting"))),
    "batch-preview": Shown(one(batches("previewed"))),
    "batch-preview-wrong": Shown(one(batches("previewed")), do=_submit),
    "batch-preview-support": Shown(one(batches("previewed")), "support"),
    "batch-hold": Shown(one(batches("holding"))),
    "batch-running": Shown(one(batches("running"))),
    "batch-stopped": Shown(one(batches("stopped"))),
    "batch-done": Shown(one(batches("done"))),
    "batch-cancelled": Shown(one(batches("cancelled"))),
    "batch-items": Shown(_items("failed_again")),
    # -- the outbox, the buffer, stock, the throttler, mail
    "message": Shown(one(messages("pending"))),
    "worker-dead": Shown(one(lambda: WorkerProcess.objects.filter(command="run_throttler"))),
    "subscribe": Shown(named("outbox_subscription_add")),
    "subscribe-wrong": Shown(named("outbox_subscription_add"), do=_submit),
    "subscribe-support": Shown(named("outbox_subscription_add"), "support"),
    "subscription-failing": Shown(one(lambda: Subscription.objects.exclude(failures=0))),
    "subscription-edit": Shown(one(Subscription.objects.all, "edit")),
    "subscription-remove": Shown(lever("remove", Subscription.objects.all)),
    "message-sent": Shown(one(messages("sent"))),
    "message-dead": Shown(one(messages("dead_lettered"))),
    "pause": Shown(lever("pause", ChannelState.objects.all)),
    "replay-topic": Shown(named("outbox_topicreplay_add")),
    "replay-topic-wrong": Shown(named("outbox_topicreplay_add"), do=_submit),
    "bucket": Shown(one(lambda: Bucket.objects.filter(location_id="WH-07"))),
    "batch": Shown(one(lambda: Batch.objects.filter(location_id="WH-07"))),
    "batch-refused": Shown(one(lambda: Batch.objects.filter(status="parked"))),
    "order": Shown(one(lambda: BufferedEvent.objects.filter(location_id="WH-07", status="pending"))),
    "flush": Shown(lever("flush", lambda: Bucket.objects.filter(location_id="WH-07"))),
    "stock": Shown(one(lambda: InventoryStock.objects.filter(pk=busiest_stock()))),
    "stocktake": Shown(_stocktake),
    "stocktake-wrong": Shown(_stocktake, do=_submit),
    "customer": Shown(one(lambda: Customer.objects.filter(pk=CUSTOMER))),
    "customer-add": Shown(named("throttler_customer_add")),
    "customer-rate": Shown(lever("rate", lambda: Customer.objects.filter(pk=CUSTOMER), rates="5/s")),
    "customer-rate-wrong": Shown(lever("rate", lambda: Customer.objects.filter(pk=CUSTOMER)), do=_submit),
    "customer-life": Shown(lever("life", lambda: Customer.objects.filter(pk=CUSTOMER))),
    "customer-purge": Shown(lever("purge", lambda: Customer.objects.filter(pk=CUSTOMER))),
    "customers-all": Shown(listed(Customer, show="all")),
    "waiting": Shown(named("throttler_customer_messages", customer=CUSTOMER)),
    "waiting-one": Shown(named("throttler_customer_message", customer=CUSTOMER, partition=5, offset=2001)),
    "token-new": Shown(named("notifications_apitoken_add"), do=_issue),
    "suppression-new": Shown(named("notifications_suppression_add")),
    "time-zone": Shown(named("auth_user_zone")),
    "letters-view": Shown(listed(DeadLetter, state="all", source="ledger")),
    "account-new": Shown(named("auth_user_add")),
    "account-new-wrong": Shown(named("auth_user_add"), do=_save),
    "account-link": Shown(named("auth_user_add"), do=_invite),
    "welcome": Shown(_welcome, ""),
    "welcome-wrong": Shown(_welcome, "", do=_submit),
    "welcome-over": Shown(named("auth_user_welcome", "x", "over"), ""),
    "account-password": Shown(one(User.objects.all, "password_change")),
    "account-history": Shown(one(User.objects.all, "history")),
    "account-delete": Shown(one(User.objects.all, "delete")),
    "role-new": Shown(named("auth_group_add")),
    "api-docs": Shown(lambda: "/api/docs", ""),
}
PAGES: dict[str, Shown] = {**_of_models(), **OTHERS}
