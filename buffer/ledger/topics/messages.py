"""The messages of the stock topics, as their gates accept them; unknown fields are allowed."""

from __future__ import annotations

from typing import Annotated

import msgspec

from buffer.streams import Identifier, Quantity


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

# What says which reference, merchant or item it is about: an edited copy says the same. Without a receipt it is the
# whole order.
LOCKED = (
    "saleOrderId", "purchaseOrderId", "receiptId?", "kitchenTicketItemId", "transferId", "after.id", "before.id",
    "payload.after.id", "payload.before.id",
)  # fmt: skip
