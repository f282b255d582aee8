"""Orders with their mails: a few queries for a whole page, however long it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from notifications.mail.deliveries import Delivery
from notifications.orders.models import Order, OrderEvent
from outbox.messages.models import OutboxMessage

REMOVED = "removed"  # the message's partition was dropped; the event stays


@dataclass(frozen=True)
class OrderMail:
    """An event of an order, its message, and the message's delivery."""

    event: OrderEvent
    message: OutboxMessage | None
    delivery: Delivery | None

    @property
    def state(self) -> str:
        return str(self.message.state) if self.message else REMOVED


def mails_of(orders: Sequence[Order]) -> list[OrderMail]:
    """The mails of these orders, oldest first within each."""
    events = list(OrderEvent.objects.of_orders(orders).oldest_first())
    # A list of ids prunes the partitions on every database; a join would look into all of them.
    ids = [event.message_id for event in events]
    messages = OutboxMessage.objects.filter(pk__in=ids).defer("payload").in_bulk()
    deliveries = Delivery.objects.of_messages(ids).in_bulk()
    return [OrderMail(event, messages.get(event.message_id), deliveries.get(event.message_id)) for event in events]
