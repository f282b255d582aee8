"""The tracking ledger as the rest of Spillway sees it, with its invariants."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import msgspec
from django.conf import settings
from django.db import connection
from django.db.models import Count, Sum

from buffer.home import ledger_stages
from buffer.ledger.handler import GROUP, LONGEST_NAME, Track
from buffer.ledger.models import InventoryStock, InventoryTracking
from buffer.ledger.movement_letters import MovementLetters
from buffer.ledger.statements import NAME
from buffer.ledger.topics import Movements, Source, sources
from config.flows import Check, Sample, Stage, Worker
from config.kafka import Record, topic_name
from config.letters import Letters
from outbox.bookkeeping import counters
from outbox.bookkeeping.verify import OFFENDERS
from outbox.letters.overview import letters_ever
from outbox.letters.topic_flow import TopicFlow, TopicNumbers


class Ledger(TopicFlow[TopicNumbers]):
    """Every stock effect exactly once."""

    name = NAME
    purpose = "Every stock effect once"
    page = "admin:buffer_inventorystock_changelist"
    headline = ("stock movements",)
    group = GROUP
    command = "track_inventory"
    reader = "Stock tracking"
    unread = "stock messages unread"
    outcomes = ("applied", "duplicate", "skipped", "parked")
    scope_length = LONGEST_NAME
    numbers_class = TopicNumbers

    def workers(self) -> Sequence[Worker]:
        return [Worker("track_inventory")]

    def topics(self) -> Sequence[str]:
        return list(settings.MOVEMENTS)

    def stages(self, numbers: TopicNumbers) -> Iterator[Stage]:
        return ledger_stages(numbers, _topics_in_words())

    def own_checks(self) -> Iterator[Check]:
        """The first two read the whole ledger once each, grouped by the server."""
        yield _sums_are_quantities()
        yield _no_half_transfer()
        yield _rows_are_counted()

    def samples(self, seed: int) -> Iterator[Sample]:
        return stock_traffic(seed)

    def summary(self) -> Sequence[tuple[str, int]]:
        totals = counters.totals(NAME)
        return [
            ("stock messages read", totals.get("read", 0)),
            ("stock effects applied", totals.get("applied", 0)),
            ("stock repeats", totals.get("duplicate", 0)),
            ("dead letters of stock", letters_ever(self.sources())),
            ("stock movements", totals.get("movements", 0) + totals.get("restored", 0)),
        ]

    def letters(self) -> Sequence[Letters]:
        return [MovementLetters(NAME)]

    def replays(self) -> Mapping[str, Callable[[], Track]]:
        return dict.fromkeys(settings.MOVEMENTS, Track)

    def searched(self) -> Mapping[str, Callable[[Record], Sequence[str]]]:
        return {topic: partial(_reference_in, source) for topic, source in sources().items()}


def _topics_in_words() -> str:
    """`6 stock, 1 balance topics`."""
    numbers = Counter(source.words["stock"] for source in sources().values())
    return f"{', '.join(f'{number} {stock}' for stock, number in numbers.items())} topics"


def _reference_in(source: Source, record: Record) -> Sequence[str]:
    effect = source.effect(source.gate.decode(record.value)) if record.value else None
    return [effect.reference_id] if isinstance(effect, Movements) else []


# -- Invariants --------------------------------------------------------------------------------------------
def _sums_are_quantities() -> Check:
    """One pass over the ledger; a stock without movements and movements without a stock are found as well."""
    stock, tracking = (connection.ops.quote_name(model._meta.db_table) for model in (InventoryStock, InventoryTracking))
    sql = (
        "SELECT stock_id, SUM(quantity), SUM(total) FROM ("  # noqa: S608 (names of our own)
        f"SELECT id AS stock_id, quantity, 0 AS total FROM {stock} UNION ALL "
        f"SELECT stock_id, 0 AS quantity, SUM(delta) AS total FROM {tracking} GROUP BY stock_id"
        f") AS sides GROUP BY stock_id HAVING SUM(quantity) <> SUM(total) ORDER BY stock_id LIMIT {OFFENDERS}"
    )
    with connection.cursor() as cursor:
        cursor.execute(sql)
        offenders = [
            {"stock": stock_id, "quantity": int(quantity), "sum of movements": int(total)}
            for stock_id, quantity, total in cursor.fetchall()
        ]
    return Check(f"{NAME}: the movements of every stock sum up to its quantity", rows=offenders)


def _no_half_transfer() -> Check:
    transfers = InventoryTracking.objects.filter(reference_type="TRANSFER").values("reference_id")
    ends = transfers.annotate(ends=Count("stock_id"), total=Sum("delta"))
    half = ends.exclude(ends=2, total=0).order_by()
    offenders = [{**row, "total": int(row["total"])} for row in half[:OFFENDERS]]
    return Check(f"{NAME}: every transfer has two ends that cancel out", rows=offenders)


def _rows_are_counted() -> Check:
    """Rows that somebody deleted and a replay put back are counted as restored only."""
    totals = counters.totals(NAME)
    written, restored = totals.get("movements", 0), totals.get("restored", 0)
    rows = InventoryTracking.objects.count()
    expected = rows if written <= rows <= written + restored else written + restored
    return Check(f"{NAME}: rows = movements counted", expected, rows)


# -- Sample traffic ------------------------------------------------------------------------------------------
STOCKS = [f"ST-{number:03d}" for number in range(1, 121)]
MATERIALS = [f"MT-{number:03d}" for number in range(1, 61)]
MERCHANTS = [f"M-{number:02d}" for number in range(1, 13)]
POISON = [b"{not json", b'{"saleOrderId": 7}', b'{"saleOrderId": "S", "merchantId": "M", "items": []}']
Message = tuple[str, str, bytes]  # topic, key, value


def stock_traffic(seed: int, poison: float = 0.004) -> Iterator[Sample]:
    """Endless samples; one in ten is a repeat. Stocks are filled before anything is taken from them."""
    rng = random.Random(seed)  # noqa: S311 (sample data)
    recent: list[Message] = []
    yield from map(_sample, _first(rng, seed))
    number = 0
    while True:
        draw = rng.random()
        if draw < poison:
            yield _sample(("PAYMENT_SUCCESS", "poison", rng.choice(POISON)))
            continue
        if recent and draw < 0.10:
            message = rng.choice(recent)
        else:
            number += 1
            message = rng.choices(MAKERS, WEIGHTS)[0](rng, f"{seed:02d}-{number:07d}")
            recent = [*recent[-199:], message]
        yield _sample(message)


def _first(rng: random.Random, seed: int) -> Iterator[Message]:
    """Merchants, variants, and enough of everything for a while."""
    for number, merchant in enumerate(MERCHANTS):
        yield _change("merchant-cdc", {"id": merchant, "merchant_id": merchant})
        yield _change("product-variant-cdc", {"id": f"V-{number:03d}", "merchant_id": merchant})
    for start in range(0, len(STOCKS + MATERIALS), 20):
        lines = [_line("stockId", name, 1000) for name in (STOCKS + MATERIALS)[start : start + 20]]
        order = f"PO{seed:02d}-{start:03d}"
        yield _message("PURCHASE_ORDER_RECEIVED", order, {"purchaseOrderId": order, "items": lines})


def _paid(rng: random.Random, name: str) -> Message:
    items = [_line("stockId", stock, rng.randint(1, 4)) for stock in rng.sample(STOCKS, rng.choice([1, 1, 2, 3]))]
    body = {"saleOrderId": f"SO{name}", "merchantId": rng.choice(MERCHANTS), "items": items}
    return _message("PAYMENT_SUCCESS", f"SO{name}", body)


def _received(rng: random.Random, name: str) -> Message:
    items = [_line("stockId", stock, rng.randint(5, 40)) for stock in rng.sample(STOCKS + MATERIALS, 4)]
    body = {"purchaseOrderId": f"PO{name}", "receiptId": f"R{rng.randint(1, 2)}", "items": items}
    return _message("PURCHASE_ORDER_RECEIVED", f"PO{name}", body)


def _cooked(rng: random.Random, name: str) -> Message:
    used = [_line("materialStockId", stock, rng.randint(1, 3)) for stock in rng.sample(MATERIALS, 2)]
    status = rng.choice(["PREPARING", "DONE", "DONE"])
    body = {"kitchenTicketItemId": f"KT{name}", "status": status, "materials": used}
    return _message("KITCHEN_TICKET_ITEM_STATUS_CHANGED", f"KT{name}", body)


def _moved(rng: random.Random, name: str) -> Message:
    source, target = rng.sample(MATERIALS, 2)
    ends = {"fromStockId": source, "toStockId": target, "quantity": rng.randint(1, 9)}
    return _message("MATERIAL_TRANSFERRED", f"TR{name}", {"transferId": f"TR{name}", **ends})


def _captured(rng: random.Random, name: str) -> Message:
    row = {"id": f"V-{rng.randint(0, 30):03d}", "merchant_id": rng.choice(MERCHANTS)}
    return _change("product-variant-cdc", row)


MAKERS: list[Callable[[random.Random, str], Message]] = [_paid, _received, _cooked, _moved, _captured]
WEIGHTS = [50, 8, 20, 18, 4]


def _line(field: str, stock: str, quantity: int) -> dict[str, object]:
    return {field: stock, "quantity": quantity}


def _message(topic: str, key: str, body: Mapping[str, object]) -> Message:
    return topic, key, msgspec.json.encode(body)


def _change(topic: str, row: dict[str, str]) -> Message:
    return _message(topic, row["id"], {"op": "u", "before": None, "after": row})


def _sample(message: Message) -> Sample:
    topic, key, value = message
    return Sample(topic_name(topic), key, value)
