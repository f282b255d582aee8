"""Changes of orders: planned and rendered outside any transaction, carried out by one guarded UPDATE.

The mail that tells of a change is written in the same transaction, after the UPDATE has locked the order: its
id rises with the order's version, and either both exist or neither does.
"""

from __future__ import annotations

import copy
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeVar

from django.db import transaction

from config.database.clock import database_now
from config.database.retry import Remedy, Stale
from config.environment import mailbox
from config.processes.worker import until_it_stands
from config.telemetry import metrics
from config.telemetry.logs import correlation_id, log_committed
from notifications.mail import content
from notifications.mail.content import Mail
from notifications.orders.models import Order, OrderEvent, order_as_it_is
from outbox.messages.publish import NONE_BEFORE, publish

Action = Literal["pay", "cancel", "refund"]
Result = TypeVar("Result")
Status, Kind = Order.Status, OrderEvent.Kind

PATIENCE = 5.0  # seconds in which a change that loses races is planned again


class Impossible(Exception):
    """The order's state does not allow it; nothing was written."""


class UnknownOrder(Exception):
    """There is no order with that id."""


class Busy(Exception):
    """The order changed again before each try, until PATIENCE was over."""


@dataclass(frozen=True)
class Transition:
    """A transition of the state machine: the event's name, and the order's values after it."""

    event_type: str
    status: str
    refunded_amount: int
    amount: int = 0


@dataclass(frozen=True)
class PlannedChange:
    """A transition that was possible when `seen` was read, with the mail about it."""

    seen: Order
    step: Transition
    after: Order
    mail: Mail


def next_step(order: Order, action: Action, amount: int = 0) -> Transition:
    """The transition that `action` makes from here. Impossible when there is none."""
    if action == "pay" and order.status == Status.PENDING:
        return Transition(Kind.PAID.value, Status.PAID.value, 0)
    if action == "cancel" and order.status == Status.PENDING:
        return Transition(Kind.CANCELLED.value, Status.CANCELLED.value, 0)
    if action == "refund" and order.status in (Status.PAID, Status.PART_REFUNDED):
        return _refund(order, amount)
    hint = "; refund it instead" if action == "cancel" and order.status != Status.CANCELLED else ""
    raise Impossible(f"the order is {Status(order.status).label.lower()}: {action} is not possible{hint}")


def _refund(order: Order, amount: int) -> Transition:
    left = order.total_amount - order.refunded_amount
    if not 0 < amount <= left:
        raise Impossible(f"{amount} cannot be refunded: {left} of {order.total_amount} are left, in minor units")
    if amount == left:
        return Transition(Kind.REFUNDED.value, Status.REFUNDED.value, order.total_amount, amount)
    return Transition(Kind.PART_REFUNDED.value, Status.PART_REFUNDED.value, order.refunded_amount + amount, amount)


def create(user_email: str, total_amount: int, currency: str, now: datetime) -> Order:
    """A pending order; no mail is sent. ValueError if mail could not go to the address."""
    order = Order.objects.create(
        user_email=mailbox.check(user_email),
        total_amount=total_amount,
        currency=currency,
        created_at=now,
        updated_at=now,
    )
    log_committed("order_created", order_id=str(order.pk), correlation_id=correlation_id())
    return order


def change(order_id: uuid.UUID, action: Action, amount: int = 0) -> Order:
    """Change an order in a transaction of its own. Raises UnknownOrder, Impossible or Busy."""

    def unit() -> Order:
        planned = plan(order_id, action, amount)
        with transaction.atomic():
            return carry_out(planned)

    return until_done(unit)


def plan(order_id: uuid.UUID, action: Action, amount: int = 0) -> PlannedChange:
    """Read the order and render its mail: all that is slow or may fail happens before anything is locked."""
    seen = order_as_it_is(order_id)
    if seen is None:
        raise UnknownOrder(f"there is no order {order_id}")
    step = next_step(seen, action, amount)
    after = copy.copy(seen)
    after.status, after.refunded_amount = step.status, step.refunded_amount
    after.version, after.updated_at = seen.version + 1, database_now()
    return PlannedChange(seen, step, after, content.render(step.event_type, after, step.amount))


def carry_out(planned: PlannedChange) -> Order:
    """Write the change and its mail inside the caller's transaction. Raises Stale if the order has changed since."""
    seen, after, step = planned.seen, planned.after, planned.step
    taken = Order.objects.as_seen(seen).update(
        status=after.status, refunded_amount=after.refunded_amount, version=after.version, updated_at=after.updated_at
    )
    if taken != 1:
        raise Stale
    # The key has the event's number, not the try's: a key that changed with each retry would stop no copy.
    publish(
        step.event_type, after.aggregate, planned.mail,
        idempotency_key=f"{after.aggregate}:{after.version}", after=seen.last_message_id or NONE_BEFORE, now=after.updated_at,
        correlation_id=correlation_id(),
        row=OrderEvent(
            order_id=seen.pk, number=after.version, event_type=step.event_type, amount=step.amount,
            created_at=after.updated_at,
        ),
    )  # fmt: skip
    log_committed(
        "order_changed", order_id=str(seen.pk), event_type=step.event_type, correlation_id=correlation_id(),
        was=seen.status, became=after.status, version=after.version,
    )  # fmt: skip
    return after


@metrics.ORDER_WRITE_SECONDS.time()
def until_done(unit: Callable[[], Result]) -> Result:
    """Run a unit (plan, then one transaction) again while it loses races or deadlocks. Raises Busy after PATIENCE."""
    deadline = time.monotonic() + PATIENCE

    def worth_it(_failures: int, remedy: Remedy) -> bool:
        if remedy is Remedy.RERUN and time.monotonic() > deadline:
            raise Busy
        return remedy is Remedy.RERUN

    return until_it_stands(unit, "orders", worth_it)
