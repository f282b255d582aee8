"""What is sent and fails, each with a name of its own that its letter, its effect and the oracle know it by."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

REQUESTS, PAYMENTS, NOTIFICATIONS = "transfer-requests", "PAYMENT_SUCCESS", "notifications-in"
LEDGER, OUTBOX, THROTTLER = "ledger", "outbox", "throttler"
SOURCES = (REQUESTS, LEDGER, OUTBOX, THROTTLER)
# kind → the source of its letters
KINDS = {"old": REQUESTS, "late": REQUESTS, "big": REQUESTS, "pay": LEDGER, "mail": OUTBOX, "note": THROTTLER}
NAME = re.compile(r"\b(?:old|late|big|pay|mail|note)-\d{6}\b")
OPENING = 1000
WAS, IS = 3, 5  # quantities of a late order: as it was sent, and as it is
EDITED = 7  # of a payment whose letter was edited
OLD = timedelta(days=75)
PADDING = "x" * 300  # of a message that is larger than its throttler takes at first


@dataclass(frozen=True)
class Record:
    """One record to produce."""

    topic: str
    key: bytes
    value: bytes
    timestamp: int | None = None


@dataclass(frozen=True)
class Cases:
    """So many of each kind; a fifth of refused batches, which are the slowest. `edits`: the ledger's letters are edited."""

    number: int
    places: int
    edits: bool = False

    def names(self, kind: str) -> list[str]:
        return [f"{kind}-{n:06d}" for n in range(max(10, self.number // 5) if kind == "big" else self.number)]

    def all(self) -> dict[str, str]:
        """`{name: source}`"""
        return {name: source for kind, source in KINDS.items() for name in self.names(kind)}

    def orders(self, kind: str, quantity: int = WAS) -> list[Record]:
        """Orders with one SKU of their own; those of `old` are of a month that the buffer keeps only later."""
        at = datetime.now(UTC).replace(microsecond=0, minute=0, second=0) - (
            OLD if kind == "old" else timedelta(hours=1)
        )
        return [
            encoded(REQUESTS, place := f"{kind}-place-{n % self.places}", {
                "order_id": name, "location_id": place, "ordered_at": at.isoformat(),
                "items": [{"sku": name, "quantity": quantity}],
            }) for n, name in enumerate(self.names(kind))
        ]  # fmt: skip

    def payments(self) -> list[Record]:
        """Of stocks that nobody knows yet."""
        return [
            encoded(PAYMENTS, name, {
                "saleOrderId": name, "merchantId": "m", "items": [{"stockId": self.stock_of(n), "quantity": paid_for(n)}],
            }) for n, name in enumerate(self.names("pay"))
        ]  # fmt: skip

    def notifications(self) -> list[Record]:
        return [
            encoded(NOTIFICATIONS, customer := self.customer_of(n), {
                "notification_id": name, "customer_id": customer, "recipient": "ada@example.com",
                "message": {"text": PADDING}, "created_at": datetime.now(UTC).isoformat(),
            }) for n, name in enumerate(self.names("note"))
        ]  # fmt: skip

    @property
    def customers(self) -> int:
        """Of one of them a batch takes one letter back at a time: enough of them for it to end."""
        return max(self.places, self.number // 20)

    def sold(self, number: int) -> int:
        """What the payment of that number takes from its stock in the end."""
        return EDITED if self.edits else paid_for(number)

    def stock_of(self, number: int) -> str:
        return f"stock-{number % self.places}"

    def customer_of(self, number: int) -> str:
        return f"customer-{number % self.customers}"

    def stocks_csv(self) -> str:
        rows = [f"stock-{n},V,L,{OPENING}" for n in range(self.places)]
        return "\n".join(["stock_id,item,location,quantity", *rows, ""])

    def customers_csv(self) -> str:
        rows = [f"customer-{n},1000/s,,86400" for n in range(self.customers)]
        return "\n".join(["customer_id,rates,burst,ttl_seconds", *rows, ""])


def paid_for(number: int) -> int:
    return 1 + number % 3


def encoded(topic: str, key: str, body: dict[str, Any]) -> Record:
    return Record(topic, key.encode(), json.dumps(body).encode())


def case_of(payload: bytes) -> str:
    """The one case that a payload names; nothing where it names none or several."""
    found = set(NAME.findall(payload.decode(errors="replace")))
    return found.pop() if len(found) == 1 else ""


def by_source(cases: Iterable[str]) -> dict[str, Sequence[str]]:
    """`{source: its cases}`"""
    found: dict[str, list[str]] = {source: [] for source in SOURCES}
    for name in cases:
        found[KINDS[name.partition("-")[0]]].append(name)
    return dict(found)
