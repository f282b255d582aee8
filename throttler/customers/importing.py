"""Customers from a CSV file: all lines in one transaction with one operator action, or none and why each was refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path

from django.conf import settings
from django.db import transaction

from config.admin.levers import NO_REASON, Operator
from config.database.chunks import batched
from config.database.clock import database_now
from config.database.upsert import Upsert, new
from config.processes.csv_rows import numbered_rows
from outbox.trail import audit
from throttler.customers.changes import SUBJECT, fault_of_customer, fault_of_ttl
from throttler.customers.models import Customer
from throttler.limits.rate import BadRates, parse_rates, rates_text

COLUMNS = ("customer_id", "rates", "burst", "ttl_seconds")
CHUNK = 1000
MOST_DIGITS = 9
VERB = "import_customers"
CUSTOMERS = Upsert(
    Customer,
    columns="customer_id rates burst ttl_seconds",
    key="customer_id",
    update=new("rates burst ttl_seconds updated_at"),
    constants="weight held created_at updated_at",
)
Row = tuple[str, str, int | None, int | None]


@dataclass
class ImportedCustomers:
    """How many customers are new, changed or as before; and why which lines are refused."""

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    refused: list[str] = field(default_factory=list)
    rates: dict[str, list[str]] = field(default_factory=dict, repr=False)  # of those: what they were, what they are

    def __str__(self) -> str:
        return f"{self.new:,} new, {self.changed:,} changed, {self.unchanged:,} unchanged"


def import_customers(
    path: Path, operator: Operator, *, reason: str = "", dry_run: bool = False, say: Callable[[str], None]
) -> ImportedCustomers:
    """Insert or change the customers of a file; a file with a line that is refused changes nothing.

    Hold, weight and purge stay as they are. One operator action tells of the file, unless it changes nothing. Raises
    BadSetting when the file cannot be read.
    """
    found = ImportedCustomers()
    rows = sorted(_rows(path, found.refused), key=lambda row: row[0])
    if found.refused:
        return found
    with transaction.atomic():
        now = database_now()
        for done, chunk in enumerate(batched(rows, CHUNK), 1):
            _import(chunk, found, now, dry_run=dry_run)
            say(f"{min(done * CHUNK, len(rows)):,} of {len(rows):,} lines")
        if found.rates and not dry_run:
            _record(found, path, operator, reason)
            # Owners look back 30 s: in a long transaction the moment of its first statement may be older.
            Customer.objects.filter(updated_at=now).update(updated_at=database_now())
    return found


def _import(chunk: Sequence[Row], found: ImportedCustomers, now: datetime, *, dry_run: bool) -> None:
    stored = Customer.objects.filter(pk__any=[row[0] for row in chunk]).values_list(*COLUMNS)
    known, default = {row[0]: row for row in stored}, ("", settings.THROTTLER_DEFAULT_RATE)
    different = [row for row in chunk if known.get(row[0]) != row]
    fresh = sum(row[0] not in known for row in different)
    found.new += fresh
    found.changed += len(different) - fresh
    found.unchanged += len(chunk) - len(different)
    found.rates |= {row[0]: [known.get(row[0], default)[1], row[1]] for row in different}
    if not dry_run:
        CUSTOMERS.run(different, {"weight": 1, "held": False, "created_at": now, "updated_at": now})


def _record(found: ImportedCustomers, path: Path, operator: Operator, reason: str) -> None:
    """One action, which the pages of its customers find; like those, the rates of so many are kept."""
    kept = dict(islice(found.rates.items(), audit.MOST_SUBJECTS))
    audit.record(
        operator, VERB, f"Customers of {path.name}", reason=reason.strip() or NO_REASON, result=str(found),
        rows=len(found.rates), detail={"file": path.name, "rates": kept}, subject_type=SUBJECT, subject_ids=list(kept),
    )  # fmt: skip


def _rows(path: Path, refused: list[str]) -> Iterator[Row]:
    """The lines that can be read; why the others cannot goes to `refused`."""
    seen: dict[str, int] = {}
    for number, cells in numbered_rows(path, COLUMNS):
        try:
            row = _row(cells)
            if row[0] in seen:
                raise BadRates(f"customer {row[0]} stands in line {seen[row[0]]} already")
        except BadRates as error:
            refused.append(f"line {number}: {error}")
            continue
        seen[row[0]] = number
        yield row


def _row(cells: Sequence[str]) -> Row:
    """Raises BadRates with the reason, whichever cell it is about."""
    if len(cells) != len(COLUMNS):
        raise BadRates(f"{len(cells)} cells instead of {len(COLUMNS)}")
    customer_id, rates, burst, ttl = cells
    ttl_seconds = _number("ttl_seconds", ttl)
    if fault := fault_of_customer(customer_id) or fault_of_ttl(ttl_seconds):
        raise BadRates(fault)
    parsed = _number("burst", burst)
    return customer_id, rates_text(parse_rates(rates, parsed)), parsed, ttl_seconds


def _number(name: str, text: str) -> int | None:
    text = text.strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise BadRates(f"{name}: {text[:30]!r} is no whole number")
    return int(text)
