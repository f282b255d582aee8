"""The routes of orders: each write is one plan, handed to `once`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Annotated
from uuid import UUID

import msgspec
from django.http import HttpRequest, HttpResponse
from ninja import Path, Query, Router

from config.database.clock import database_now
from config.gate import Gate, InvalidRecord
from notifications.api.auth import CallerRequest, OrderToken
from notifications.api.schemas import (
    ORDER_ID,
    NewOrder,
    OrderOut,
    OrderPage,
    OrderWithMessages,
    Refund,
    StatusName,
    order_data,
    with_messages,
)
from notifications.mail import recipients
from notifications.orders import changes
from notifications.orders.changes import Action
from notifications.orders.models import Order
from outbox.api.idempotency import Asked, once
from outbox.api.problems import Answer, Problem, unreadable
from outbox.api.schemas import READ_REFUSALS, WRITE_REFUSALS, Key, ProblemOut

MOST_ORDERS = 100
NO_ORDER = {404}  # routes that name no order cannot miss one

router = Router(auth=OrderToken(), tags=["orders"])

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
    gate = Gate.of(dict, len(request.body))
    try:
        return gate.decode(request.body) if request.body.strip() else {}
    except InvalidRecord as refused:
        raise unreadable(request, refused) from None


def _normal(address: str) -> str:
    try:
        return recipients.check(address)
    except ValueError as why:
        raise Problem("invalid", errors=[{"where": "query.user_email", "what": str(why)}]) from None


def _answer(status: int, order: Order) -> Answer:
    return _json(status, order_data(order))


_encode = partial(msgspec.json.Encoder(uuid_format="canonical").encode)


def _json(status: int, data: dict) -> Answer:
    return Answer(status, _encode(data).decode())
