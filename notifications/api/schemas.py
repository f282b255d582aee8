"""The bodies of requests and answers, and how an order becomes one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from ninja import Schema
from pydantic import AfterValidator, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from notifications.currencies import CODES
from notifications.mail import recipients
from notifications.mail.content import short
from notifications.orders.models import MOST_AMOUNT, Order, OrderMail, mails_of
from outbox.api.schemas import Input

ORDER_ID = "0198c2b4-7d10-7a3e-9c55-2f1b8e6a4d01"
MESSAGE_ID = "0198c2b4-9a44-7f02-8d1e-60b7c3f5a902"
StatusName = Literal["pending", "paid", "cancelled", "part_refunded", "refunded"]


def _minor_units(value: object, check: ValidatorFunctionWrapHandler) -> object:
    """Who sends 19.99 or "1999" learns what an amount is, not only that it is none."""
    try:
        return check(value)
    except ValidationError as error:
        raise ValueError(f"{error.errors()[0]['msg']}: an amount is in minor units, 1999 for 19.99 EUR") from None


def _currency(value: str) -> str:
    if value not in CODES:
        raise ValueError("not a currency of ISO 4217, in capitals")
    return value


Address = Annotated[
    str,
    AfterValidator(recipients.check),
    Field(
        description="One bare address. Its domain is kept in lower-case punycode.",
        examples=["ada@example.com"],
        max_length=320,
    ),
]
Amount = Annotated[
    int,
    Field(
        strict=True,
        ge=1,
        le=MOST_AMOUNT,
        description="In minor units: 1999 is 19.99 EUR, or 1999 JPY.",
        examples=[1999],
    ),
    WrapValidator(_minor_units),
]
Moment = Annotated[datetime, Field(examples=["2026-02-12T10:00:00Z"])]


class NewOrder(Input):
    user_email: Address
    total_amount: Amount
    currency: Annotated[
        str, AfterValidator(_currency), Field(description="ISO 4217.", examples=["EUR"], min_length=3, max_length=3)
    ]


class Refund(Input):
    amount: Amount


class DeliveryOut(Schema):
    """The provider's news of a mail it has accepted."""

    state: str = Field(examples=["delivered"])
    updated_at: Moment


class MessageOut(Schema):
    id: UUID = Field(examples=[MESSAGE_ID])
    resent_from: UUID | None = Field(None, description="The mail that a person had sent again.", examples=[None])
    event_type: str = Field(examples=["order.paid"])
    state: str = Field(
        description="pending, processing, sent, uncertain, dead_lettered, cancelled or expired; "
        "removed when its retention is over.",
        examples=["sent"],
    )
    attempts: int = Field(examples=[1])
    created_at: Moment
    sent_at: datetime | None = Field(examples=["2026-02-12T10:00:01Z"])
    delivery: DeliveryOut | None = None


class OrderOut(Schema):
    """An order after what was asked for."""

    id: UUID = Field(examples=[ORDER_ID])
    number: str = Field(description="As the customer's mails call it.", examples=["1B8E6A4D01"])
    user_email: str = Field(examples=["ada@example.com"])
    total_amount: int = Field(examples=[1999])
    currency: str = Field(examples=["EUR"])
    refunded_amount: int = Field(examples=[0])
    status: StatusName = Field(examples=["pending"])
    version: int = Field(description="What happened to it so far.", examples=[0])
    created_at: Moment
    updated_at: Moment


class OrderWithMessages(OrderOut):
    """An order with its mails, oldest first."""

    messages: list[MessageOut]


class OrderPage(Schema):
    """Newest first. What next is goes into after; null is the end."""

    orders: list[OrderWithMessages]
    next: UUID | None = Field(examples=[ORDER_ID])


# -- Orders as these bodies --------------------------------------------------------------------------------
def order_data(order: Order) -> dict[str, object]:
    """An order as OrderOut."""
    return {
        "id": order.pk,
        "number": short(order.pk),
        "user_email": order.user_email,
        "total_amount": order.total_amount,
        "currency": order.currency,
        "refunded_amount": order.refunded_amount,
        "status": str(order.status),
        "version": order.version,
        "created_at": order.created_at,
        "updated_at": order.updated_at,
    }


def with_messages(orders: Sequence[Order]) -> list[dict[str, object]]:
    """Orders as OrderWithMessages, in the given sequence."""
    messages = defaultdict(list)
    for mail in mails_of(orders):
        messages[mail.event.order_id].append(_message_data(mail))
    return [{**order_data(order), "messages": messages[order.pk]} for order in orders]


def _message_data(mail: OrderMail) -> dict[str, object]:
    message, delivery = mail.message, mail.delivery
    return {
        "id": mail.message_id,
        "resent_from": mail.resend.resent_from if mail.resend else None,
        "event_type": mail.event.event_type,
        "state": mail.state,
        "attempts": message.attempts if message else 0,
        "created_at": mail.created_at,
        "sent_at": message.sent_at if message else None,
        "delivery": {"state": str(delivery.status), "updated_at": delivery.updated_at} if delivery else None,
    }
