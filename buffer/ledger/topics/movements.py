"""One pure function per topic: a message becomes its effect. `MOVEMENTS` names them (docs/adding.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args, get_type_hints

from django.conf import settings
from django.utils.module_loading import import_string

from buffer.ledger.topics.effects import Effect, Movements, part_of, summed
from buffer.ledger.topics.messages import Payment, Receipt, TicketItem, Transfer
from config.gate import Gate, InvalidRecord
from config.kafka import topic_name

DONE = "DONE"


def sold(message: Payment) -> Movements:
    deltas = summed([(line.stock_id, -line.quantity) for line in message.items])
    return Movements("SALE_ORDER", message.sale_order_id, deltas)


def received(message: Receipt) -> Movements:
    reference = part_of(message.purchase_order_id, message.receipt_id)
    return Movements("PURCHASE_ORDER", reference, summed([(line.stock_id, line.quantity) for line in message.items]))


def cooked(message: TicketItem) -> Movements | None:
    """An item that is done used its materials up; of any other status nothing follows."""
    if message.status != DONE or message.materials == []:
        return None
    if message.materials is None:
        raise InvalidRecord("wrong_field", "Object missing required field `materials`, which an item that is DONE has")
    deltas = summed((material.material_stock_id, -material.quantity) for material in message.materials)
    return Movements("KITCHEN_TICKET_ITEM", message.kitchen_ticket_item_id, deltas)


def transferred(message: Transfer) -> Movements:
    if message.from_stock_id == message.to_stock_id:
        raise InvalidRecord("equal_ends", "a transfer from a stock to itself moves nothing")
    deltas = {message.from_stock_id: -message.quantity, message.to_stock_id: message.quantity}
    return Movements("TRANSFER", message.transfer_id, deltas, whole=True)


@dataclass(frozen=True)
class Source:
    """A topic of `MOVEMENTS`: its gate and its function, which raises InvalidRecord for what it cannot accept."""

    name: str
    gate: Gate[Any]
    effect: Callable[[Any], Effect]
    tombstones: bool  # records without a value are of no concern, not broken

    @classmethod
    def of(cls, name: str, path: str) -> Source:
        """The function's first annotation is the message type; `… | None` says that tombstones may come."""
        effect = import_string(path)
        kind = next(iter(get_type_hints(effect).values()))
        gate = Gate.of(kind, settings.BUFFER_MAX_EVENT_BYTES)
        return cls(name, gate, effect, type(None) in get_args(kind))


@cache
def sources() -> Mapping[str, Source]:
    """The topics of the ledger by their name on the broker."""
    return {topic_name(name): Source.of(name, path) for name, path in settings.MOVEMENTS.items()}
