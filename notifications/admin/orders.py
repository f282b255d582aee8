"""Admin page of orders with their mails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from django.contrib import admin
from django.contrib.auth.models import AbstractUser, AnonymousUser
from django.db import models
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from config.admin import humanize
from config.admin.filters import ByUuid, Segments
from config.admin.html import chip
from config.admin.pages import ReadOnlyAdmin, age_column
from config.admin.search import begun_by
from config.database.clock import database_now
from config.environment import mailbox
from config.environment.mailbox import masked
from config.fields import is_uuid
from config.flows import ORDER
from notifications.mail.content import money, short
from notifications.orders.models import NUMBER, Order, OrderMail, mails_of
from outbox.audit_log.reveal import RIGHT, Revealing, Visibility
from outbox.letters.models import DeadLetter
from outbox.models import ChannelState

MOST_FOUND = 20
SEND_AGAIN = {  # by the state of a mail: words, lever of its message, the right for it
    "sent": ("Send again", "resend", "outbox.resend_outboxmessage"),
    "uncertain": ("Send again", "send-again", "outbox.send_again_outboxmessage"),
    "pending": ("Try now", "try-now", "outbox.cancel_outboxmessage"),
}


class ShownMail(NamedTuple):
    """A mail of an order: where it leads, why it is not sent, its letter, and what this reader can do: (words, address)."""

    mail: OrderMail
    url: str
    amount: str
    why: str
    letter: DeadLetter | None
    levers: Sequence[tuple[str, str]]


class StatusOfOrder(Segments):
    title = "status"
    parameter_name = "status"
    field = "status"
    choices_in_words = [("all", "All"), *((status.value, status.label.capitalize()) for status in Order.Status)]


@admin.register(Order)
class OrderAdmin(Revealing, ReadOnlyAdmin):
    place = 10
    list_display = ["order", "state", "total", "refunded", "created"]
    list_filter = [StatusOfOrder]
    happened = ByUuid("created", "pk")
    begins = ["pk"]
    search_fields = ["pk"]
    search_help_text = "Paste the order number from a mail, an order id or an e-mail address. Capitals do not matter."
    empty = ("No orders here", "An order appears here when a program creates it through the API.")
    created = age_column("created_at", "Created")

    @admin.display(description="Order")
    def order(self, row: Order) -> str:
        line = '{}<span class="sw-second">{}</span><span class="sw-second sw-code">{}</span>'
        return format_html(line, short(row.pk), masked(row.user_email), row.pk)

    def words(self, row: Order) -> str:
        return f"Order {short(row.pk)} of {masked(row.user_email)}, {money(row.total_amount, row.currency)}"

    @admin.display(description="Status")
    def state(self, row: Order) -> str:
        return chip(row.status)

    @admin.display(description="Total")
    def total(self, row: Order) -> str:
        return format_html('<span class="sw-number">{}</span>', money(row.total_amount, row.currency))

    @admin.display(description="Refunded")
    def refunded(self, row: Order) -> str:
        given = money(row.refunded_amount, row.currency) if row.refunded_amount else humanize.UNKNOWN
        return format_html('<span class="sw-number">{}</span>', given)

    def find(self, key: str) -> Iterable[Order]:
        orders = Order.objects.newest_first()
        order_id = key.removeprefix(ORDER)  # the aggregate of its messages
        if is_uuid(order_id):
            return list(orders.filter(pk=order_id))
        if match := NUMBER.fullmatch(key):
            return list(orders.numbered(match["number"])[:MOST_FOUND])
        try:
            return list(orders.of_any_case(mailbox.check(key))[:MOST_FOUND])
        except ValueError:
            return ()

    def begun_rows(self, text: str) -> list[models.QuerySet]:
        """The number in a mail, too, whose capitals do not matter."""
        numbered = begun_by(Order.objects.all(), "number_in_mail", text.removeprefix("#").upper())
        return [*super().begun_rows(text.removeprefix(ORDER)), *([] if numbered is None else [numbered])]

    def detail(self, request: HttpRequest, row: Order) -> dict[str, object]:
        sight = self.sight(request, row)
        return {
            "title": f"Order {short(row.pk)}",
            "address": row.user_email if sight.shown else masked(row.user_email),
            "sight": sight,
            "total": money(row.total_amount, row.currency),
            "refunded": money(row.refunded_amount, row.currency),
            "left": money(row.total_amount - row.refunded_amount, row.currency),
            "mails": _shown(row, sight, request.user),
        }


def _shown(row: Order, sight: Visibility, user: AbstractUser | AnonymousUser) -> list[ShownMail]:
    """Newest first."""
    mails, letters = mails_of([row]), _letters_of(row)
    waiting = {mail.message.channel for mail in mails if mail.message and mail.state == "pending"}
    closed = {channel: ChannelState.objects.why_closed([channel], database_now()) for channel in waiting}
    shown = []
    for mail in reversed(mails):
        letter, why = letters.get(str(mail.message_id)), ""
        if mail.message and mail.state != "sent":
            why = (mail.state == "pending" and closed[mail.message.channel]) or sight.error(mail.message.error)
        shown.append(ShownMail(mail, _url_of(mail), _amount(mail, row), why, letter, _levers(mail, letter, user)))
    return shown


def _letters_of(row: Order) -> dict[str, DeadLetter]:
    """By message, the newest letter that it left; a message that was made of a letter counts as the letter's own."""
    letters = DeadLetter.objects.filter(business_key=row.aggregate).newest_first()
    found: dict[str, DeadLetter] = {}
    first: dict[str, str] = {}
    for letter in list(letters.only("status", "topic_id", "carrier")[:MOST_FOUND])[::-1]:
        message = first.get(letter.topic_id, letter.topic_id)
        found[message] = letter
        first[str(letter.carrier)] = message
    return found


def _levers(mail: OrderMail, letter: DeadLetter | None, user: AbstractUser | AnonymousUser) -> list[tuple[str, str]]:
    """Only what can be pulled now, and by this reader."""
    levers = []
    if letter and letter.status == DeadLetter.Status.OPEN and user.has_perm("outbox.requeue_deadletter"):
        levers.append(("Requeue", f"{reverse('admin:outbox_deadletter_lever', args=['requeue'])}?id={letter.pk}"))
        if user.has_perms(["outbox.edit_deadletter", RIGHT]):
            levers.append(("Send to another address", reverse("admin:outbox_deadletter_edit", args=[letter.pk])))
    words, name, right = SEND_AGAIN.get(mail.state, ("", "", ""))
    if words and not (mail.resend and name == "resend") and user.has_perm(right):
        levers.append((words, f"{reverse('admin:outbox_outboxmessage_lever', args=[name])}?id={mail.message_id}"))
    return levers


def _amount(mail: OrderMail, row: Order) -> str:
    return money(mail.event.amount, row.currency) if mail.event.amount else ""


def _url_of(mail: OrderMail) -> str:
    """The message's own page; empty when retention took it."""
    return reverse("admin:outbox_outboxmessage_change", args=[mail.message_id]) if mail.message else ""
