"""The routes of orders and their bodies: each write is one plan, handed to `once`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Literal
from uuid import UUID

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from ninja import Path, Query, Router, Schema
from pydantic import AfterValidator, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from config.database.clock import database_now
from config.environment import mailbox
from config.gate import Gate, InvalidRecord
from notifications.api.auth import CallerRequest
from notifications.mail.content import CURRENCIES, short
from notifications.mail.deliveries import Delivery
from notifications.orders import changes
from notifications.orders.changes import Action
from notifications.orders.models import MOST_AMOUNT, Order, OrderMail, mails_of
from outbox.api.idempotency import Asked, once
from outbox.api.problems import READ_REFUSALS, WRITE_REFUSALS, Answer, Input, Key, Problem, ProblemOut, unreadable

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
    if value not in CURRENCIES:
        raise ValueError("not a currency of ISO 4217, in capitals")
    return value


Address = Annotated[
    str,
    AfterValidator(mailbox.check),
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
        "delivery": delivery_data(delivery),
    }


def delivery_data(delivery: Delivery | None) -> dict[str, object] | None:
    """A delivery as DeliveryOut."""
    return {"state": str(delivery.status), "updated_at": delivery.updated_at} if delivery else None


# -- Routes --------------------------------------------------------------------------------------------------
MOST_ORDERS = 100
NO_ORDER = {404}  # routes that name no order cannot miss one

router = Router(tags=["orders"])

OrderId = Annotated[UUID, Path(examples=[ORDER_ID])]


@router.post(
    "/orders",
    response={201: OrderOut, WRITE_REFUSALS - NO_ORDER: ProblemOut},
    operation_id="create_order",
    summary="Create an order",
)
def create_order(request: CallerRequest, order: NewOrder, key: Key) -> HttpResponse:
    """The order is pending, and nobody is told yet."""

    def plan() -> tuple[datetime, Callable[[], Answer]]:
        now = database_now()
        return now, lambda: _answer(201, changes.create(order.user_email, order.total_amount, order.currency, now))

    return _once(request, request.path_info, key, order.model_dump(), plan)


@router.post(
    "/orders/{order_id}/pay",
    response={200: OrderOut, WRITE_REFUSALS: ProblemOut},
    operation_id="pay_order",
    summary="Mark an order as paid",
)
def pay_order(request: CallerRequest, order_id: OrderId, key: Key) -> HttpResponse:
    """Only from pending. The mail about it is promised in the same transaction."""
    return _change(request, key, order_id, "pay", _object(request))


@router.post(
    "/orders/{order_id}/cancel",
    response={200: OrderOut, WRITE_REFUSALS: ProblemOut},
    operation_id="cancel_order",
    summary="Cancel an order",
)
def cancel_order(request: CallerRequest, order_id: OrderId, key: Key) -> HttpResponse:
    """Only from pending. A paid order is refunded instead."""
    return _change(request, key, order_id, "cancel", _object(request))


@router.post(
    "/orders/{order_id}/refund",
    response={200: OrderOut, WRITE_REFUSALS: ProblemOut},
    operation_id="refund_order",
    summary="Refund an order, or part of it",
)
def refund_order(request: CallerRequest, order_id: OrderId, refund: Refund, key: Key) -> HttpResponse:
    """Only from paid and part_refunded; never more than is left."""
    return _change(request, key, order_id, "refund", refund.model_dump(), refund.amount)


@router.get(
    "/orders/{order_id}",
    response={200: OrderWithMessages, READ_REFUSALS: ProblemOut},
    operation_id="get_order",
    summary="An order with its mails",
)
def get_order(request: HttpRequest, order_id: OrderId) -> HttpResponse:
    """Each mail with its state in the outbox, and what the provider said about it."""
    order = Order.objects.filter(pk=order_id).first()
    if order is None:
        raise Problem("not_found", f"there is no order {order_id}")
    return _json(200, with_messages([order])[0]).response()


@router.get(
    "/orders",
    response={200: OrderPage, READ_REFUSALS - NO_ORDER: ProblemOut},
    operation_id="list_orders",
    summary="Orders, newest first",
)
def list_orders(
    request: HttpRequest,
    user_email: Annotated[str | None, Query(description="Exactly this address.", max_length=320)] = None,
    status: Annotated[StatusName | None, Query(description="Only orders in this status.")] = None,
    after: Annotated[UUID | None, Query(description="What next was on the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_ORDERS, description="Orders a page.")] = 50,
) -> HttpResponse:
    """A page costs the same wherever it is; nothing is counted."""
    rows = Order.objects.newest_first()
    if user_email is not None:
        rows = rows.of(_normal(user_email))
    if status is not None:
        rows = rows.filter(status=status)
    if after is not None:
        rows = rows.after(after)
    orders = list(rows[: limit + 1])
    page = orders[:limit]
    following = page[-1].pk if len(orders) > limit else None
    return _json(200, {"orders": with_messages(page), "next": following}).response()


def _change(
    request: CallerRequest, key: str, order_id: UUID, action: Action, body: dict, amount: int = 0
) -> HttpResponse:
    def plan() -> tuple[datetime, Callable[[], Answer]]:
        try:
            planned = changes.plan(order_id, action, amount)
        except changes.UnknownOrder as unknown:
            raise Problem("not_found", f"{unknown}") from None
        except changes.Impossible as why:
            raise Problem("illegal_transition", f"{why}") from None
        return planned.after.updated_at, lambda: _answer(200, changes.carry_out(planned))

    # One order has one path here, however the caller spelled its id: the key must be the same key.
    path = f"{request.path_info.rsplit('/', 2)[0]}/{order_id}/{action}"
    return _once(request, path, key, body, plan)


def _once(request: CallerRequest, path: str, key: str, body: dict, plan: Callable) -> HttpResponse:
    scope = f"{request.auth.pk} {request.method} {path}"
    canonical = msgspec.json.encode(body, order="sorted")
    try:
        return once(Asked.of(scope, key, canonical), plan, changes.until_done).response()
    except changes.Busy:
        raise Problem("unavailable", "The order changes too often just now.", retry_after=1) from None


def _object(request: HttpRequest) -> dict:
    """The body of a route that needs none: nothing, or any JSON object."""
    gate = Gate.of(dict, settings.API_MAX_BYTES)
    try:
        return gate.decode(request.body) if request.body.strip() else {}
    except InvalidRecord as refused:
        raise unreadable(request, refused) from None


def _normal(address: str) -> str:
    try:
        return mailbox.check(address)
    except ValueError as why:
        raise Problem("invalid", errors=[{"where": "query.user_email", "what": str(why)}]) from None


def _answer(status: int, order: Order) -> Answer:
    return _json(status, order_data(order))


_encode = partial(msgspec.json.Encoder(uuid_format="canonical").encode)


def _json(status: int, data: dict) -> Answer:
    return Answer(status, _encode(data).decode())
