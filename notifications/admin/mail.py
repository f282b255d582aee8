"""Admin pages of mail: deliveries, suppressed addresses, webhook events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.db import models
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.http import urlencode

from config.admin import humanize
from config.admin.filters import ByTime, ByUuid, Segments
from config.admin.html import chip
from config.admin.levers import Lever, LeverResult, Operator, operator_of
from config.admin.lists import Keyset
from config.admin.pages import ReadOnlyAdmin, age_column
from config.environment import mailbox
from config.fields import is_uuid
from notifications.email_handler import address_in
from notifications.mail import suppression
from notifications.mail.deliveries import Delivery, DeliveryStatus
from notifications.mail.suppression import Suppression
from notifications.orders.models import Order
from notifications.webhooks.inbox import WebhookEvent
from notifications.webhooks.providers import PROVIDERS
from outbox.audit_log.reveal import Revealing, Visibility
from outbox.groups.models import FailureGroup
from outbox.letters.models import DeadLetter
from outbox.messages.models import FLOW

MOST_FOUND = 20


def address_seen(sight: Visibility, address: str) -> str:
    """An address, to those to whom its row is revealed."""
    return address if sight.shown else mailbox.masked(address)


# -- Deliveries --------------------------------------------------------------------------------------------
def _suppress(keys: list[UUID], operator: Operator, reason: str) -> int:
    people = Delivery.objects.of_messages(keys).values_list("recipient", flat=True)
    return suppression.add(list(people), operator, reason)


def _not_suppressed(rows: models.QuerySet) -> models.QuerySet:
    """Compared by the address as stored; `add` compares again, by the hash that ignores case."""
    return rows.exclude(Exists(Suppression.objects.filter(address=OuterRef("recipient"))))


SUPPRESS = Lever(
    name="suppress", verb="Suppress the recipient", past="Suppressed", icon="ban",
    right="suppress_recipient", keep="Go on writing",
    nouns=("recipient", "recipients"),
    promise="This address gets no mail any more, whatever happens to its orders.",
    detail="Mails that wait for it become dead letters when their turn comes; they can be requeued after it is lifted.",
    question="Suppress",
    act=_suppress, ready=_not_suppressed, why_not=lambda row: "The address is suppressed already.",
    harm=True, least=10,
)  # fmt: skip


class StatusOfDelivery(Segments):
    title = "status"
    parameter_name = "status"
    field = "status"
    choices_in_words = [("all", "All"), *((status.value, str(status.label)) for status in DeliveryStatus)]


@admin.register(Delivery)
class DeliveryAdmin(Revealing, ReadOnlyAdmin):
    place = 20
    levers = (SUPPRESS,)
    list_display = ["mail", "state", "provider", "accepted", "changed"]
    list_filter = [StatusOfDelivery]
    happened = ByUuid("mail written", "pk")
    begins = ["pk"]
    search_fields = ["pk"]
    search_help_text = "Paste a message id, or the provider's id of a mail. Exact match, in the chosen status."
    empty = ("No deliveries here", "A delivery appears when a provider has accepted a mail.")
    accepted = age_column("accepted_at", "Accepted")
    changed = age_column("status_at", "In this state since")

    @admin.display(description="Mail")
    def mail(self, row: Delivery) -> str:
        line = '<span class="sw-code">{}</span><span class="sw-second">to {}</span>'
        return format_html(line, row.message_id, mailbox.masked(row.recipient))

    @admin.display(description="State")
    def state(self, row: Delivery) -> str:
        return chip(row.status)

    def find(self, key: str) -> Iterable[Delivery]:
        if is_uuid(key):
            return list(Delivery.objects.of_messages([UUID(key)]))
        names = [*settings.CHANNELS, *PROVIDERS, settings.EMAIL_ESP]
        return list(Delivery.objects.filter(provider__in=names, provider_message_id=key)[:MOST_FOUND])

    def detail(self, request: HttpRequest, row: Delivery) -> dict[str, object]:
        sight = self.sight(request, row)
        address = address_seen(sight, row.recipient)
        return {
            "title": f"Mail to {address}",
            "address": address,
            "sight": sight,
            "words": sight.text(row.detail),
            "suppressed": Suppression.objects.of([row.recipient]).first(),
            "events": list(WebhookEvent.objects.filter(message_id=row.pk).order_by("-id")[:MOST_FOUND]),
            "message_url": reverse("admin:outbox_outboxmessage_change", args=[row.pk]),
            "order_url": reverse("admin:notifications_order_change", args=[row.order_id])
            if is_uuid(row.order_id)
            else "",
        }


# -- Suppressed addresses ----------------------------------------------------------------------------------
MOST_OFFERED = 50  # as many as one confirmation takes
MOST_LOOKED_AT = 200


def _lift(keys: list[int], operator: Operator, reason: str) -> LeverResult:
    people = list(Suppression.objects.filter(pk__in=keys).values_list("address", flat=True))
    lifted = suppression.lift(keys, operator, reason)
    return LeverResult(lifted, next_step=_offer(open_letters_to(people), len(people), operator) if lifted else "")


def open_letters_to(addresses: Iterable[str]) -> list[UUID]:
    """The open letters of mails to these, newest first: of their orders, and of what was lately refused as suppressed."""
    wanted = {suppression.hash_of(address): address for address in addresses}
    orders = [
        order.aggregate
        for address in wanted.values()
        for order in Order.objects.of_any_case(address).newest_first()[:MOST_LOOKED_AT]
    ]
    refused = FailureGroup.objects.filter(source=FLOW, reason="suppressed").values_list("pk", flat=True)
    letters = DeadLetter.objects.open().of_source(FLOW).newest_first().values_list("pk", flat=True)
    ids = {
        *letters.filter(business_key__in=orders)[:MOST_LOOKED_AT],
        *letters.filter(group__in=list(refused))[:MOST_LOOKED_AT],
    }
    payloads = (
        pair
        for portion in DeadLetter.objects.portions(sorted(ids, reverse=True))
        for pair in DeadLetter.objects.filter(pk__in=portion).newest_first().values_list("pk", "payload")
    )
    return [pk for pk, payload in payloads if suppression.hash_of(address_in(bytes(payload or b""))) in wanted]


def _offer(letters: Sequence[UUID], addresses: int, operator: Operator) -> str:
    """To requeue them, for whoever may; others are told how many there are."""
    if not letters:
        return ""
    single = len(letters) == 1
    number = humanize.plural(len(letters), "letter", "letters")
    sentence = f"{number} to {'it' if addresses == 1 else 'them'} {'is' if single else 'are'} open."
    if not operator.user.has_perm("outbox.requeue_deadletter"):
        return sentence
    url = reverse("admin:outbox_deadletter_lever", args=["requeue"])
    chosen = urlencode([("id", str(pk)) for pk in letters[:MOST_OFFERED]])
    which = "it" if single else "them" if len(letters) <= MOST_OFFERED else f"the newest {MOST_OFFERED}"
    return format_html('{} <a href="{}?{}">Requeue {}…</a>', sentence, url, chosen, which)


LIFT = Lever(
    name="lift", verb="Lift", past="Lifted", icon="play",
    right="lift_suppression", keep="Leave it suppressed",
    nouns=("suppression", "suppressions"),
    promise="The address gets mail again, from the next one on.",
    detail="Mails that were refused meanwhile are dead letters: requeue those that are still wanted. "
    "Writing again to somebody who complained harms the sender's name with every provider.",
    act=_lift, least=10,
)  # fmt: skip


class NewSuppression(forms.ModelForm):
    class Meta:
        model = Suppression
        fields = ["address", "note"]
        labels = {"note": "Reason"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["note"].required = True

    def clean_address(self) -> str:
        try:
            return mailbox.check(self.cleaned_data["address"])
        except ValueError as error:
            raise forms.ValidationError(f"Not an address: {error}.") from error


@admin.register(Suppression)
class SuppressionAdmin(Revealing, ReadOnlyAdmin):
    place = 40
    levers = (LIFT,)
    form = NewSuppression
    keyset = Keyset("since", ties_opposed=True)
    list_display = ["to", "because", "since_when"]
    happened = ByTime("since", "since")
    search_fields = ["pk"]
    search_help_text = "Paste an address. Capitals do not matter."
    empty = ("Nobody is suppressed", "Addresses that bounced for good or complained are listed here.")
    since_when = age_column("since", "Since")

    def words(self, row: Suppression) -> str:
        return f"{row}: {row.get_reason_display()}"

    def has_add_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    @admin.display(description="Address")
    def to(self, row: Suppression) -> str:
        return str(row)

    @admin.display(description="Because")
    def because(self, row: Suppression) -> str:
        return row.get_reason_display().capitalize()

    def find(self, key: str) -> Iterable[Suppression]:
        return list(Suppression.objects.of([key])) if "@" in key else ()

    def shortcut(self, request: HttpRequest, row: Suppression) -> tuple[str, str]:
        """A suppression is lifted from the search, without its page."""
        if not LIFT.allowed(request.user, self.opts):
            return "", ""
        return LIFT.verb, f"{self.lever_url(LIFT)}?{urlencode({'id': str(row.pk)})}"

    def detail(self, request: HttpRequest, row: Suppression) -> dict[str, object]:
        sight = self.sight(request, row)
        facts = [
            ("Address", address_seen(sight, row.address)),
            ("Because", self.because(row)),
            ("Since", f"{humanize.stamp(row.since)}"),
            ("Note", sight.text(row.note) or humanize.UNKNOWN),  # a provider's words, which may name the address
        ]
        return {"facts": facts, "sight": sight}

    def save_model(self, request: HttpRequest, obj: Suppression, form: object, change: bool) -> None:
        suppression.add([obj.address], operator_of(request.user), obj.note)
        obj.__dict__.update(Suppression.objects.of([obj.address]).get().__dict__)

    def response_add(
        self, request: HttpRequest, obj: Suppression, post_url_continue: str | None = None
    ) -> HttpResponse:
        messages.success(request, f"{obj} is suppressed.")
        return HttpResponseRedirect(reverse("admin:notifications_suppression_change", args=[obj.pk]))

    def log_addition(self, request: HttpRequest, obj: object, message: object) -> None:  # type: ignore[override]
        """Nothing: the operator action records it, with its reason and without the address."""


# -- Webhook events ----------------------------------------------------------------------------------------
class VerdictOfEvent(Segments):
    title = "verdict"
    parameter_name = "verdict"
    field = "verdict"
    choices_in_words = [
        ("all", "All"),
        ("applied", "Applied"),
        ("no_news", "No news"),
        ("parked", "Waiting"),
        ("unknown_message", "Unknown message"),
        ("other_recipient", "Other recipient"),
        ("ignored", "Ignored"),
    ]


@admin.register(WebhookEvent)
class WebhookEventAdmin(Revealing, ReadOnlyAdmin):
    place = 30
    list_display = ["event", "outcome", "provider", "occurred", "received"]
    list_filter = [VerdictOfEvent]
    happened = ByUuid("received", "pk")
    begins = ["pk"]
    search_fields = ["pk"]
    search_help_text = "Paste a message id or an event id. Exact match, with the chosen verdict."
    empty = ("No events here", "Providers that are told our address report here what became of each mail.")
    occurred = age_column("occurred_at", "Happened")
    received = age_column("received_at", "Received")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        return super().get_queryset(request).defer("body", "headers")

    @admin.display(description="Event")
    def event(self, row: WebhookEvent) -> str:
        line = '{}<span class="sw-second sw-code">{}</span>'
        return format_html(line, row.get_kind_display().capitalize(), row.message_id or row.provider_message_id)

    @admin.display(description="Verdict")
    def outcome(self, row: WebhookEvent) -> str:
        return verdict_chip(row)

    def find(self, key: str) -> Iterable[WebhookEvent]:
        if not is_uuid(key):
            return ()
        rows = WebhookEvent.objects.defer("body", "headers")
        by_message = list(rows.filter(message_id=key)[:MOST_FOUND])
        return [*rows.filter(pk=key), *by_message]

    def detail(self, request: HttpRequest, row: WebhookEvent) -> dict[str, object]:
        sight = self.sight(request, row)
        return {
            "title": f"{row.get_kind_display().capitalize()}, says {row.provider}",
            "verdict": verdict_chip(row),
            "payload": sight.payload(row.body),
            "size": len(row.body.encode()),
            "sight": sight,
            "headers": [(name, sight.text(str(value))) for name, value in (row.headers or {}).items()],
            "delivery": Delivery.objects.of_messages([row.message_id]).first() if row.message_id else None,
            "facts": [
                ("Provider's id of the event", row.dedup_id),
                ("Provider's id of the mail", row.provider_message_id),
                ("Recipient", address_seen(sight, row.recipient) if row.recipient else "not said"),
                ("Detail", sight.text(row.detail) or humanize.UNKNOWN),
            ],
        }


def verdict_chip(row: WebhookEvent) -> str:
    # "Parked" is a dead letter elsewhere; here it only waits.
    return chip("waiting", "Waits for its message") if row.verdict == "parked" else chip(row.verdict)
