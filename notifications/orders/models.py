"""Orders, what happened to each, their mails, and their queries."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import DEFAULT_DB_ALIAS, models
from django.db.models import F, OuterRef, Q, Subquery
from django.db.models.functions import Cast, Lower, Right, Upper

from config.database.queries import compiled
from config.fields import IdentifierField, is_uuid, uuid7
from config.flows import ORDER
from notifications.mail.deliveries import Delivery
from outbox.messages.models import OutboxMessage, Resend, tomorrow

MOST_AMOUNT = 999_999_999_999  # minor units; far below what a double can hold exactly
NUMBER_DIGITS = 10
# As it stands in a mail, and as people copy it: "Order 0EB1806D21", "#0eb1806d21".
NUMBER = re.compile(rf"(?:order\W*)?#?(?P<number>[0-9a-f]{{{NUMBER_DIGITS}}})", re.ASCII | re.IGNORECASE)
MOST_FOUND = 20


class OrderQuerySet(models.QuerySet["Order"]):
    """Queries of orders."""

    def of(self, user_email: str) -> OrderQuerySet:
        """Exactly this address; the index is on the one without capitals."""
        return self.of_any_case(user_email).filter(user_email=user_email)

    def of_any_case(self, user_email: str) -> OrderQuerySet:
        return self.filter(address=user_email.lower())

    def numbered(self, number: str) -> OrderQuerySet:
        """By the number in the customer's mail; two orders with one number are possible, and unlikely."""
        return self.filter(number_in_mail=number.upper())

    def aggregates_of(self, key: str) -> list[str]:
        """The aggregates of the orders that this id, or number in a mail, may mean."""
        if is_uuid(key):
            return [Order(pk=uuid.UUID(key)).aggregate]
        match = NUMBER.fullmatch(key)
        return [order.aggregate for order in self.numbered(match["number"])[:MOST_FOUND]] if match else []

    def after(self, order_id: uuid.UUID) -> OrderQuerySet:
        """The orders that follow in a list whose newest order is first."""
        return self.filter(pk__lt=order_id)

    def newest_first(self) -> OrderQuerySet:
        return self.order_by("-pk")

    def with_last_messages(self, aggregate: str, now: uuid.UUID, before: uuid.UUID) -> OrderQuerySet:
        """Adds what the next message of the order has to follow: that of its last event, and the newest from id `now` on.

        That one was resent, or made anew, by a host whose clock is ahead.
        """
        told = OrderEvent.objects.filter(order=OuterRef("pk")).order_by("-number").values("message_id")
        ahead = OutboxMessage.objects.from_id(now, before).filter(aggregate=aggregate).order_by("-id").values("id")
        return self.annotate(last_told=Subquery(told[:1]), last_ahead=Subquery(ahead[:1]))

    def as_seen(self, order: Order) -> OrderQuerySet:
        """The row, if it has not changed since `order` was read: the guard of every change."""
        return self.filter(
            pk=order.pk, version=order.version, status=order.status, refunded_amount=order.refunded_amount
        )


class Order(models.Model):
    """What somebody bought. Its `version` counts what happened to it since it was created."""

    class Status(models.TextChoices):
        PENDING = "pending"
        PAID = "paid"
        CANCELLED = "cancelled"
        PART_REFUNDED = "part_refunded", "partly refunded"
        REFUNDED = "refunded"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    user_email = IdentifierField(max_length=254)
    total_amount = models.BigIntegerField(help_text="In minor units: cents.")
    currency = models.CharField(max_length=3, help_text="ISO 4217.")
    refunded_amount = models.BigIntegerField(default=0)
    status = IdentifierField(max_length=15, choices=Status, default=Status.PENDING)
    version = models.IntegerField(default=0, help_text="Events so far; the number of the last one.")
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    # What people search by. Computed by the database, because MariaDB has no indexes on expressions.
    number_in_mail = models.GeneratedField(
        expression=Upper(Right(Cast("id", models.CharField(max_length=36)), NUMBER_DIGITS)),
        output_field=IdentifierField(max_length=NUMBER_DIGITS),
        db_persist=True,
        help_text="As mails call it: the last digits of the id.",
    )
    address = models.GeneratedField(
        expression=Lower("user_email"),
        output_field=IdentifierField(max_length=254),
        db_persist=True,
        help_text="The address without capitals.",
    )

    last_message_id: uuid.UUID | None  # by `order_as_it_is` only

    objects = OrderQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["address", "id"], name="order_address"),
            models.Index(fields=["number_in_mail"], name="order_number"),
            models.Index(fields=["status", "id"], name="order_status"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(refunded_amount__gte=0, refunded_amount__lte=F("total_amount")),
                name="order_refunds_within_total",
            )
        ]

    def __str__(self) -> str:
        return f"Order {self.pk}"

    @property
    def aggregate(self) -> str:
        """The aggregate of its messages, which are sent in order."""
        return f"{ORDER}{self.pk}"


class OrderEventQuerySet(models.QuerySet["OrderEvent"]):
    """Queries of what happened to orders."""

    def of_orders(self, orders: Iterable[Order]) -> OrderEventQuerySet:
        return self.filter(order__in=[order.pk for order in orders])

    def oldest_first(self) -> OrderEventQuerySet:
        return self.order_by("order_id", "number")


class OrderEvent(models.Model):
    """A change of an order, written in its transaction, with the message about it.

    Its primary key is that message's id: a number from the database would cost a round trip.
    """

    class Kind(models.TextChoices):
        PAID = "order.paid", "paid"
        CANCELLED = "order.cancelled", "cancelled"
        PART_REFUNDED = "order.part_refunded", "partly refunded"
        REFUNDED = "order.refunded", "refunded"

    message_id = models.UUIDField(primary_key=True)
    order = models.ForeignKey(Order, on_delete=models.PROTECT, related_name="events", db_index=False)
    number = models.IntegerField(help_text="The order's version after it.")
    event_type = IdentifierField(max_length=30, choices=Kind)
    amount = models.BigIntegerField(default=0, help_text="Of a refund, in minor units.")
    created_at = models.DateTimeField()

    objects = OrderEventQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["order", "number"], name="orderevent_number")]

    def __str__(self) -> str:
        return f"{self.get_event_type_display()}, no. {self.number} of order {self.order_id}"


ORDER_FIELDS = [field.attname for field in Order._meta.concrete_fields if not field.generated]


def order_as_it_is(order_id: uuid.UUID) -> Order | None:
    """The order, with its `last_message_id`. Every change begins with it: the ORM takes 2 ms to think of the query."""
    rows = _values_of(order_id=order_id, aggregate=f"{ORDER}{order_id}", now=uuid7(), before=tomorrow())
    if not rows:
        return None
    *values, told, ahead = rows[0]
    order = Order.from_db(DEFAULT_DB_ALIAS, ORDER_FIELDS, values)
    order.last_message_id = max(filter(None, (told, ahead)), default=None)
    return order


@compiled
def _values_of(
    order_id: uuid.UUID, aggregate: str, now: uuid.UUID, before: uuid.UUID
) -> models.QuerySet[Order, tuple[object, ...]]:
    orders = Order.objects.with_last_messages(aggregate, now, before).filter(pk=order_id)
    return orders.values_list(*ORDER_FIELDS, "last_told", "last_ahead")


# -- Orders with their mails -------------------------------------------------------------------------------
REMOVED = "removed"  # the message's partition was dropped; the event stays


@dataclass(frozen=True)
class OrderMail:
    """An event of an order, a message about it, and the message's delivery; `resend` where a person had it sent again."""

    event: OrderEvent
    message: OutboxMessage | None
    delivery: Delivery | None
    resend: Resend | None = None

    @property
    def message_id(self) -> uuid.UUID:
        return self.resend.message_id if self.resend else self.event.message_id

    @property
    def created_at(self) -> datetime:
        return self.resend.created_at if self.resend else self.event.created_at

    @property
    def state(self) -> str:
        return str(self.message.state) if self.message else REMOVED


def mails_of(orders: Sequence[Order]) -> list[OrderMail]:
    """The mails of these orders, oldest event first within each, and what was resent behind its first mail."""
    events = list(OrderEvent.objects.of_orders(orders).oldest_first())
    resent: dict[uuid.UUID, list[Resend | None]] = {event.message_id: [None] for event in events}
    for resend in Resend.objects.of(resent) if resent else ():
        resent[resend.resent_from].append(resend)
    # A list of ids prunes the partitions on every database; a join would look into all of them.
    ids = [again.message_id if again else first for first, each in resent.items() for again in each]
    messages = OutboxMessage.objects.filter(pk__in=ids).defer("payload").in_bulk()
    deliveries = Delivery.objects.of_messages(ids).in_bulk()
    mails = []
    for event in events:
        for again in resent[event.message_id]:
            pk = again.message_id if again else event.message_id
            mails.append(OrderMail(event, messages.get(pk), deliveries.get(pk), again))
    return mails
