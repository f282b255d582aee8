"""The topics of stock: their messages, and the pure function of each that says what a record does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeAlias, get_args, get_type_hints

import msgspec
from django.conf import settings
from django.utils.module_loading import import_string

from buffer.streams import Identifier, Quantity
from config.fields import IDENTIFIER_LENGTH
from config.formats import opener_of
from config.gate import Gate, InvalidRecord, texts_in
from config.kafka import topic_name
from config.kafka.debezium import DELETED, Change, UnavailableValue, change_of, key_of


# -- Messages ----------------------------------------------------------------------------------------------
class StockQuantity(msgspec.Struct, rename="camel"):
    stock_id: Identifier
    quantity: Quantity


class Payment(msgspec.Struct, rename="camel"):
    """`PAYMENT_SUCCESS`: what was sold leaves the stock."""

    sale_order_id: Identifier
    merchant_id: Identifier | int
    items: Annotated[list[StockQuantity], msgspec.Meta(min_length=1)]


class Receipt(msgspec.Struct, rename="camel"):
    """`PURCHASE_ORDER_RECEIVED`: what was delivered, perhaps a part of what was ordered."""

    purchase_order_id: Identifier
    items: Annotated[list[StockQuantity], msgspec.Meta(min_length=1)]
    receipt_id: Identifier | None = None


class Material(msgspec.Struct, rename="camel"):
    material_stock_id: Identifier
    quantity: Quantity


class TicketItem(msgspec.Struct, rename="camel"):
    """`KITCHEN_TICKET_ITEM_STATUS_CHANGED`: material is used up when the item is done."""

    kitchen_ticket_item_id: Identifier
    status: str
    materials: list[Material] | None = None


class Transfer(msgspec.Struct, rename="camel"):
    """`MATERIAL_TRANSFERRED`: out of one stock, into another."""

    transfer_id: Identifier
    from_stock_id: Identifier
    to_stock_id: Identifier
    quantity: Quantity


# What may be read of a record of these topics, and of one of Debezium's, without a reveal.
READABLE = (
    "saleOrderId", "merchantId", "items[].stockId", "items[].quantity", "purchaseOrderId", "receiptId",
    "kitchenTicketItemId", "status", "materials[].materialStockId", "materials[].quantity", "transferId", "fromStockId",
    "toStockId", "quantity", "op", "after.id", "after.merchant_id", "payload.op", "payload.after.id",
    "payload.after.merchant_id",
)  # fmt: skip
REFERENCES = ("saleOrderId", "purchaseOrderId", "receiptId", "kitchenTicketItemId", "transferId")
# What says which reference, merchant or item it is about: an edited copy says the same. Without a receipt it is the
# whole order.
LOCKED = (
    "saleOrderId", "purchaseOrderId", "receiptId?", "kitchenTicketItemId", "transferId", "after.id", "before.id",
    "payload.after.id", "payload.before.id",
)  # fmt: skip


# -- Effects -----------------------------------------------------------------------------------------------
LARGEST_DELTA = 2**53 - 1
SALE_ORDER = "SALE_ORDER"


class Movements(NamedTuple):
    """All movements of one reference: what each stock gains (or, negative, loses).

    `whole`: the reference never moves another stock, as with a transfer, whose two ends must cancel out.
    """

    reference_type: str
    reference_id: str
    deltas: dict[str, int]
    whole: bool = False

    @property
    def reference(self) -> tuple[str, str]:
        return self.reference_type, self.reference_id

    @property
    def order_id(self) -> str:
        """Of the sale order that it is; empty for anything else."""
        return self.reference_id if self.reference_type == SALE_ORDER else ""


class Merchant(NamedTuple):
    """A merchant exists, or does not any more: it needs a default location."""

    merchant_id: str
    active: bool


class Variant(NamedTuple):
    """A product variant exists, or does not any more: it is an item. `None`: its merchant is still the same."""

    item_id: str
    merchant_id: str | None
    active: bool


# None: the record is of no concern, and is counted as skipped.
Effect: TypeAlias = Movements | Merchant | Variant | None


def summed(lines: Iterable[tuple[str, int]]) -> dict[str, int]:
    """`{stock: sum}`: a message may name a stock twice."""
    sums: dict[str, int] = {}
    for stock_id, quantity in lines:
        if stock_id not in sums:
            sums[stock_id] = quantity
            continue
        sums[stock_id] += quantity
        if abs(sums[stock_id]) > LARGEST_DELTA:
            raise InvalidRecord("out_of_range", f"the quantities of stock “{stock_id}” sum up beyond {LARGEST_DELTA}")
    return sums


def part_of(whole_id: str, part_id: str | None) -> str:
    """`whole/part`, which no other pair gives: the whole is escaped as in a JSON pointer (RFC 6901).

    Only a "/" or "~" in `whole_id` is written differently (`~1`, `~0`), so the first "/" always separates.
    """
    escaped = whole_id.replace("~", "~0").replace("/", "~1")
    return escaped if part_id is None else f"{escaped}/{part_id}"


def reference_in(value: bytes | None, topic: str) -> str:
    """The reference in a record of a topic, also in one that no gate takes; "" where it cannot be read."""
    source = sources()[topic]
    value = source.gate.readable(value)
    if names := source.references:
        return next(filter(None, texts_in(value, names)), "")
    sale, order, receipt, item, transfer = texts_in(value, REFERENCES)
    return sale or (part_of(order, receipt or None) if order else item or transfer)


# -- Words -------------------------------------------------------------------------------------------------
# What a topic moves, the unit behind its quantities, their correction by a count, and what moves it.
WORDS = {"stock": "stock", "quantity": "", "stocktake": "stocktake", "reference": ""}


# -- A function for each topic -----------------------------------------------------------------------------
DONE = "DONE"


def sold(message: Payment) -> Movements:
    deltas = summed([(line.stock_id, -line.quantity) for line in message.items])
    return Movements(SALE_ORDER, message.sale_order_id, deltas)


def received(message: Receipt) -> Movements:
    reference = part_of(message.purchase_order_id, message.receipt_id)
    if len(reference) > IDENTIFIER_LENGTH:
        raise InvalidRecord("reference_too_long", f"“{reference[:60]}…” is longer than {IDENTIFIER_LENGTH} characters")
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
    gate: Gate[object]
    effect: Callable[[object], Effect]
    tombstones: bool  # records without a value are of no concern, not broken
    of_orders: bool  # what its records are about are sale orders
    readable: Sequence[str] = ()  # besides READABLE; so with LOCKED and REFERENCES
    locked: Sequence[str] = ()
    references: Sequence[str] = ()

    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def words(self) -> Mapping[str, str]:
        return {**WORDS, **self.options.get("WORDS", {})}

    @classmethod
    def of(cls, name: str, entry: str | Mapping[str, Any]) -> Source:
        """The function's first annotation is the message type; `… | None` says that tombstones may come."""
        options = {"EFFECT": entry} if isinstance(entry, str) else entry
        effect = import_string(options["EFFECT"])
        kind = next(iter(get_type_hints(effect).values()))
        gate = Gate.of(kind, settings.BUFFER_MAX_EVENT_BYTES, opener_of(options))
        tombstones, of_orders = type(None) in get_args(kind), "sale_order_id" in getattr(kind, "__struct_fields__", ())
        readable, locked, references = (options.get(option, ()) for option in ("READABLE", "LOCKED", "REFERENCES"))
        return cls(name, gate, effect, tombstones, of_orders, readable, locked, references, options)


@cache
def sources() -> Mapping[str, Source]:
    """The topics of the ledger by their name on the broker."""
    return {topic_name(name): Source.of(name, entry) for name, entry in settings.MOVEMENTS.items()}


def words_of(topic: str) -> Mapping[str, str]:
    """What is said of what a topic (by its name on the broker) moves; ours for one that nobody reads any more."""
    source = sources().get(topic)
    return source.words if source else WORDS


def readable() -> Sequence[str]:
    """What may be read of a record of any of these topics without a reveal."""
    return (*READABLE, *(path for source in sources().values() for path in source.readable))


def locked() -> Sequence[str]:
    """What an edited copy of such a record leaves as it is."""
    return (*LOCKED, *(path for source in sources().values() for path in source.locked))


# -- Debezium's changes ------------------------------------------------------------------------------------
NAMELESS = ("t", "m")  # truncations and messages name no row
Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]  # longer ones fit no column as text
# What stands in a deleted row where PostgreSQL's default replica identity tells the key alone: null, or the type's zero.
UNTOLD = (None, "", 0, "0")


class SourceRow(msgspec.Struct):
    """The columns that matter; keys may be numbers at their source."""

    id: Identifier | Number
    merchant_id: Annotated[str, msgspec.Meta(max_length=IDENTIFIER_LENGTH)] | Number | None


def merchant(change: dict[str, object] | None) -> Merchant | None:
    """Every merchant has a default location, which stays, inactive, when the merchant is deleted."""
    row = variant(change)
    return Merchant(row.item_id, row.active) if row else None


def variant(record: dict[str, object] | None) -> Variant | None:
    """Every product variant is an item. None for tombstones, and for truncations and messages, which name no row."""
    try:
        change = change_of(record)
    except InvalidRecord as error:
        raise InvalidRecord("wrong_field", str(error)) from None
    if change is None or change.operation in NAMELESS:
        return None
    if not isinstance(change.row, dict):
        raise InvalidRecord("wrong_field", f"there is no row in `{change.place}`")
    active = change.operation != DELETED
    columns, unavailable = _keys(change)
    try:
        keys = msgspec.convert(columns, SourceRow)
    except msgspec.ValidationError as error:
        raise InvalidRecord("wrong_field", f"{error} in `{change.place}`") from None
    if unavailable or (not active and keys.merchant_id in UNTOLD):
        return Variant(str(keys.id), None, active)
    return Variant(str(keys.id), "" if keys.merchant_id is None else str(keys.merchant_id), active)


def _keys(change: Change) -> tuple[dict[str, str | int | None], bool]:
    """Both columns, and whether the connector has no value of the merchant."""
    placeholder = settings.DEBEZIUM_UNAVAILABLE_VALUE
    try:
        identity = key_of(change, "id", placeholder)
    except UnavailableValue:
        raise InvalidRecord("wrong_field", "`id` holds the placeholder of an unavailable value") from None
    try:
        return {"id": identity, "merchant_id": key_of(change, "merchant_id", placeholder)}, False
    except UnavailableValue:
        return {"id": identity, "merchant_id": None}, True
