"""Orders and their mails as the schemas describe them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from notifications.orders.mails import OrderMail, mails_of
from notifications.orders.models import Order


def order_data(order: Order) -> dict[str, Any]:
    """An order as OrderOut."""
    return {
        "id": order.pk,
        "user_email": order.user_email,
        "total_amount": order.total_amount,
        "currency": order.currency,
        "refunded_amount": order.refunded_amount,
        "status": str(order.status),
        "version": order.version,
        "created_at": order.created_at,
        "updated_at": order.updated_at,
    }


def with_messages(orders: Sequence[Order]) -> list[dict[str, Any]]:
    """Orders as OrderWithMessages, in the given sequence."""
    found = defaultdict(list)
    for mail in mails_of(orders):
        found[mail.event.order_id].append(_message_data(mail))
    return [{**order_data(order), "messages": found[order.pk]} for order in orders]


def _message_data(mail: OrderMail) -> dict[str, Any]:
    message, delivery = mail.message, mail.delivery
    return {
        "id": mail.event.message_id,
        "event_type": mail.event.event_type,
        "state": mail.state,
        "attempts": message.attempts if message else 0,
        "created_at": mail.event.created_at,
        "sent_at": message.sent_at if message else None,
        "delivery": {"state": str(delivery.status), "updated_at": delivery.updated_at} if delivery else None,
    }
