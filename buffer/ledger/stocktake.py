"""Quantities that people say: opening stock from a CSV file, and corrections after a stocktake."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from django.db import transaction
from django.utils.text import capfirst

from buffer.ledger.models import InventoryItem, InventoryLocation, InventoryStock, InventoryTracking
from buffer.ledger.statements import NAME, Row, adjust_stocks, insert_movements, read_known
from buffer.ledger.topics import LARGEST_DELTA
from config.admin.levers import Operator
from config.database.clock import database_now
from config.database.queries import batched
from config.database.upsert import Upsert
from config.fields import IDENTIFIER_LENGTH
from config.letters import Refusal
from config.payload import short_hash
from config.processes.commands import numbered_rows
from outbox.audit_log import actions
from outbox.bookkeeping import counters

# -- Opening stock from a file -----------------------------------------------------------------------------
OPENING = "OPENING"
COLUMNS = ("stock_id", "item", "location", "quantity")
CHUNK = 1000


@dataclass(frozen=True)
class OpeningLine:
    number: int
    stock_id: str
    item: str
    location: str
    quantity: int

    @property
    def place(self) -> int:
        """A hash of what the ledger does not keep: the stock may follow its topics elsewhere later."""
        return short_hash(f"{self.item}\x1f{self.location}".encode())


@dataclass
class Imported:
    """What an import did, or what it refuses; each refusal names its line."""

    opened: int = 0
    known: int = 0
    refused: list[str] = field(default_factory=list)


def import_stock(path: Path, *, dry_run: bool, say: Callable[[str], None]) -> Imported:
    """Open the stocks of a file; a file with a line that is refused changes nothing.

    Lines that were imported before are left alone, so a file can be imported again after a crash.
    """
    expected = Imported()
    lines = list(_lines(path, expected.refused))
    for chunk in batched(lines, CHUNK):
        expected.known += _count_known(chunk, expected.refused)
    expected.opened = len(lines) - expected.known
    if expected.refused or dry_run:
        return expected
    done = Imported()
    for chunk in batched(lines, CHUNK):
        _make_places(chunk)
        with transaction.atomic():
            _open(chunk, done, database_now())
        say(f"{done.opened + done.known:,} of {len(lines):,} lines")
    return done


def _lines(path: Path, refused: list[str]) -> Iterator[OpeningLine]:
    """The lines that can be read; why the others cannot goes to `refused`."""
    seen: dict[str, int] = {}
    for number, cells in numbered_rows(path, COLUMNS):
        wrong, line = _line(number, cells)
        if line and line.stock_id in seen:
            wrong = f"stock {line.stock_id} stands in line {seen[line.stock_id]} already"
        if wrong or not line:
            refused.append(f"line {number}: {wrong}")
            continue
        seen[line.stock_id] = number
        yield line


def _line(number: int, cells: Sequence[str]) -> tuple[str, OpeningLine | None]:
    """Why a line is refused, or the line."""
    if len(cells) != len(COLUMNS):
        return f"{len(cells)} cells instead of {len(COLUMNS)}", None
    names = dict(zip(COLUMNS, cells, strict=True))
    for name in COLUMNS[:3]:
        if len(names[name]) > IDENTIFIER_LENGTH or "\0" in names[name]:
            return f"{name}: longer than {IDENTIFIER_LENGTH} characters, or with a zero byte", None
    if not names["stock_id"]:
        return "stock_id: empty", None
    quantity = names["quantity"].strip()
    # The length first: Python turns no more than 4300 digits into a number.
    if not (quantity.isascii() and quantity.isdigit() and len(quantity) <= 30 and int(quantity) <= LARGEST_DELTA):
        return f"quantity: {quantity[:30]!r} is no whole number from 0 to {LARGEST_DELTA}", None
    return "", OpeningLine(number, names["stock_id"], names["item"], names["location"], int(quantity))


def _count_known(chunk: Sequence[OpeningLine], refused: list[str]) -> int:
    """How many lines were imported before; those with another quantity go to `refused`."""
    known = read_known(OPENING, [(line.stock_id, line.stock_id) for line in chunk])
    for line in chunk:
        stored = known.get((line.stock_id, line.stock_id))
        if stored and stored.delta != line.quantity:
            refused.append(
                f"line {line.number}: stock {line.stock_id} was opened with {stored.delta}, not {line.quantity}; "
                "an adjustment corrects it"
            )
        elif stored and stored.payload_hash not in (line.place, 0):  # the oldest have none
            refused.append(f"line {line.number}: stock {line.stock_id} was opened for another item or location")
    return len(known)


TIMES = "created_at updated_at"
UNSOURCED = {field.attname: field.get_default() for field in InventoryLocation._meta.fields}
FOLLOWS = f"merchant_id active topic_id source_partition source_offset source_timestamp {TIMES}"
ITEMS = Upsert(
    InventoryItem,
    columns="id",
    key="id",
    update={},
    constants=FOLLOWS,
    token="token",  # noqa: S106 (a column)
)
LOCATIONS = Upsert(
    InventoryLocation,
    columns="name",
    key="merchant_id name",
    update={},
    constants=f"{FOLLOWS} is_default",
    token="token",  # noqa: S106 (a column)
)


def _make_places(chunk: Sequence[OpeningLine]) -> None:
    """Make items and locations in a transaction of their own, because workers lock them after stocks."""
    with transaction.atomic():
        now = database_now()
        constants = {**UNSOURCED, "created_at": now, "updated_at": now}
        ITEMS.run([(name,) for name in sorted({line.item for line in chunk} - {""})], constants)
        LOCATIONS.run([(name,) for name in sorted({line.location for line in chunk} - {""})], constants)


STOCKS = Upsert(
    InventoryStock,
    columns="id item_id location_id quantity",
    key="id",
    update={
        "item_id": "new.item_id",
        "location_id": "new.location_id",
        "quantity": "old.quantity + new.quantity",
        "updated_at": "new.updated_at",
    },
    constants=TIMES,
)


def _open(chunk: Sequence[OpeningLine], done: Imported, now: datetime) -> None:
    """Record, then open exactly what was recorded."""
    rows: list[Row] = sorted(
        (line.stock_id, line.stock_id, line.quantity, None, None, None, line.place) for line in chunk
    )
    fresh = {stock_id for stock_id, _ in insert_movements(("", OPENING), rows, "", now)}
    imported = InventoryLocation.objects.filter(merchant_id="", name__in={line.location for line in chunk})
    places = dict(imported.values_list("name", "pk"))
    stocks = [
        (line.stock_id, line.item or None, places.get(line.location), line.quantity)
        for line in sorted(chunk, key=lambda line: line.stock_id)
        if line.stock_id in fresh
    ]
    STOCKS.run(stocks, {"created_at": now, "updated_at": now})
    counters.add({(NAME, "opening", "movements"): len(fresh)}, now)  # they come from no record
    done.opened += len(fresh)
    done.known += len(chunk) - len(fresh)
    _count_known([line for line in chunk if line.stock_id not in fresh], done.refused)


# -- Correction after a stocktake --------------------------------------------------------------------------
ADJUSTMENT = "ADJUSTMENT"


class MadeAlready(Refusal):
    """This adjustment was made, and not as it is asked for now."""


@dataclass(frozen=True)
class Adjusted:
    """What an adjustment did; `known` when it had been made before and nothing changed now."""

    delta: int
    quantity: int
    known: bool = False


def take_stock(
    stock_id: str, counted: int, seen: int, adjustment_id: str, operator: Operator, reason: str, word: str = "stock"
) -> Adjusted:
    """Correct a stock to what was counted; raises Refusal when it has moved since `seen` was on the screen.

    `word` is what its topic calls a stock, for the audit log.
    """
    with transaction.atomic():
        quantity = InventoryStock.objects.locked([stock_id]).get(stock_id)
        known = InventoryTracking.objects.of_reference(ADJUSTMENT, adjustment_id).exists()
        if quantity is not None and quantity != seen and not known:
            raise Refusal(
                f"It moved from {seen:,} to {quantity:,} while this page was open. Check the count, then confirm again."
            )
        return adjust_stock(
            stock_id, adjustment_id=adjustment_id, operator=operator, reason=reason, counted=counted, word=word
        )


def adjust_stock(
    stock_id: str, *, adjustment_id: str, operator: Operator, reason: str, counted: int, word: str = "stock"
) -> Adjusted:
    """Set a stock to what was `counted`.

    Nothing moves the stock between the look at its quantity and the movement. The same `adjustment_id` again
    changes nothing, so a double click is harmless; with another number it is refused. Raises Refusal for what cannot
    be done.
    """
    _refuse_nonsense(adjustment_id, reason, counted)
    with transaction.atomic():
        now = database_now()
        quantity = InventoryStock.objects.locked([stock_id]).get(stock_id)
        if quantity is None:
            raise Refusal(f"stock {stock_id} is not known: import it")
        known = InventoryTracking.objects.of_reference(ADJUSTMENT, adjustment_id).first()
        request = short_hash(f"counted {counted}, delta None".encode())  # as stored rows have it
        if known:
            return _again(known, stock_id, request, quantity)
        change = counted - quantity
        # Whoever makes the same one meanwhile waits for the stock, and then knows it.
        insert_movements(("", ADJUSTMENT), [(adjustment_id, stock_id, change, None, None, None, request)], "", now)
        adjust_stocks({stock_id: change}, now)
        result = f"{change:+d}, now {counted}"
        detail = {"adjustment": adjustment_id, "before": quantity, "delta": change, "counted": counted}
        actions.record(
            operator, "adjust_stock", f"{capfirst(word)} {stock_id}", reason=reason, result=result, detail=detail,
            subject_type="buffer.inventorystock", subject_id=stock_id,
            before={"quantity": quantity}, after={"quantity": counted},
        )  # fmt: skip
        counters.add({(NAME, "adjustment", "movements"): 1}, now)  # it comes from no record
        return Adjusted(change, counted)


def _refuse_nonsense(adjustment_id: str, reason: str, counted: int) -> None:
    if not 0 <= counted <= LARGEST_DELTA:
        raise Refusal(f"counted: {counted} is outside 0 … {LARGEST_DELTA}")
    if not 0 < len(adjustment_id) <= IDENTIFIER_LENGTH:
        raise Refusal(f"adjustment_id: 1 to {IDENTIFIER_LENGTH} characters")
    if not reason.strip():
        raise Refusal("reason: say why the quantity is corrected")


def _again(known: InventoryTracking, stock_id: str, request: int, quantity: int) -> Adjusted:
    # The oldest have no hash of what was asked for.
    if known.stock_id != stock_id or known.payload_hash not in (request, 0):
        raise MadeAlready(f"adjustment {known.reference_id} was made already: {known.delta:+d} of {known.stock_id}")
    return Adjusted(known.delta, quantity, known=True)
