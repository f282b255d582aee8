"""The commands `customers` and `import_customers`: a CSV file in one transaction, lists, levers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction

from config.admin.humanize import plural
from config.admin.levers import NO_REASON, Operator, operator_of_terminal
from config.database.clock import database_now
from config.database.queries import batched, by_key
from config.database.upsert import Upsert, new
from config.letters import Refusal
from config.processes.commands import numbered_rows
from config.processes.worker import Options
from config.telemetry.redaction import on_one_line, table_row
from outbox.audit_log import actions
from throttler.customers import changes
from throttler.customers.changes import SUBJECT, fault_of_customer, fault_of_ttl
from throttler.customers.models import Customer
from throttler.limits.rate import BadRates, parse_rates, rates_text

# -- `import_customers`: all lines of a file, or none --------------------------------------------------------
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
    imported = ImportedCustomers()
    rows = sorted(_rows(path, imported.refused), key=lambda row: row[0])
    if imported.refused:
        return imported
    with transaction.atomic():
        now = database_now()
        for done, chunk in enumerate(batched(rows, CHUNK), 1):
            _import(chunk, imported, now, dry_run=dry_run)
            say(f"{min(done * CHUNK, len(rows)):,} of {len(rows):,} lines")
        if imported.rates and not dry_run:
            _record(imported, path, operator, reason)
            # Owners look back 30 s: in a long transaction the moment of its first statement may be older.
            Customer.objects.filter(updated_at=now).update(updated_at=database_now())
    return imported


def _import(chunk: Sequence[Row], imported: ImportedCustomers, now: datetime, *, dry_run: bool) -> None:
    stored = Customer.objects.filter(pk__any=[row[0] for row in chunk]).values_list(*COLUMNS)
    known, default = {row[0]: row for row in stored}, ("", settings.THROTTLER_DEFAULT_RATE)
    different = [row for row in chunk if known.get(row[0]) != row]
    fresh = sum(row[0] not in known for row in different)
    imported.new += fresh
    imported.changed += len(different) - fresh
    imported.unchanged += len(chunk) - len(different)
    imported.rates |= {row[0]: [known.get(row[0], default)[1], row[1]] for row in different}
    if not dry_run:
        CUSTOMERS.run(different, {"weight": 1, "held": False, "created_at": now, "updated_at": now})


def _record(imported: ImportedCustomers, path: Path, operator: Operator, reason: str) -> None:
    """One action, which the pages of its customers find; like those, the rates of so many are kept."""
    kept = dict(islice(imported.rates.items(), actions.MOST_SUBJECTS))
    actions.record(
        operator, VERB, f"Customers of {path.name}", reason=reason.strip() or NO_REASON, result=str(imported),
        rows=len(imported.rates), detail={"file": path.name, "rates": kept}, subject_type=SUBJECT, subject_ids=list(kept),
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


# -- `customers`: lists, and the levers of the admin ---------------------------------------------------------
TIMES = ("created_at", "updated_at")
HEADER, WIDTHS = ("CUSTOMER", "RATE", "BURST", "LIFETIME", "WEIGHT", "STATE"), (30, 24, 9, 12, 6)
TERMS = {"rates": "Rate", "burst": "Burst", "ttl_seconds": "Lifetime", "weight": "Weight"}
FIELDS = ("customer_id", *TERMS, "held", "purge_before", *TIMES)
PLAIN = {"hold": changes.hold, "resume": changes.resume, "purge": changes.purge}
# What each verb does, as `--help` says it.
DOES = {
    "list": "all customers, one a line", "show": "one, with what waits for it", "hold": "send it nothing; what comes waits",
    "resume": "send again", "purge": "what waits now goes to notifications-expired", "set-rate": "how much in which time",
    "set-ttl": "how long a message may wait", "set-weight": "its share where the rate of all is short",
}  # fmt: skip
MEANING = "; ".join(f"{verb}: {words}" for verb, words in DOES.items())
VALUES = {"set-rate": "rates such as 10/s", "set-ttl": "seconds, or “default”", "set-weight": "a whole number"}


def misuse(verb: str, customer_id: str, value: str, burst: str | None) -> str:
    """What is missing or too much on the command line, or an empty text."""
    if verb == "list":
        return f"list takes no {customer_id}" if customer_id else ""
    if not customer_id:
        return f"{verb} needs a CUSTOMER"
    if verb in VALUES and not value:
        return f"{verb} needs {VALUES[verb]}"
    if verb not in VALUES and value:
        return f"{verb} takes no {value}"
    return "--burst belongs to set-rate" if burst is not None and verb != "set-rate" else ""


def run(given: Options) -> Iterator[str]:
    """The lines to print for the arguments of the command; raises Refusal."""
    verb, customer_id, as_json = given["verb"], given["customer"], given["json"]
    if verb == "list":
        return list_lines(as_json)
    if verb == "show":
        return show(customer_id, as_json)
    change = _change(verb, given["value"], given["burst"])
    if given["dry_run"]:
        _check(customer_id)
        now = database_now()
        values = change(changes.seen_of(customer_id, now), now)
    else:
        operator = operator_of_terminal()
        values = changes.change(customer_id, verb.replace("-", "_"), change, operator, given["reason"])
    result = {"customer_id": customer_id, "verb": verb, "changed": values, "waiting": changes.waiting(customer_id)}
    result["dry_run"] = given["dry_run"]
    return iter([json.dumps(result, default=str) if as_json else _sentence(result)])


def list_lines(as_json: bool) -> Iterator[str]:
    """One line a customer, by id."""
    listed = 0
    for chunk in by_key(Customer.objects.values_list(*FIELDS), CHUNK):
        if not listed and not as_json:
            yield table_row(HEADER, WIDTHS)
        listed += len(chunk)
        for values in chunk:
            customer = dict(zip(FIELDS, values, strict=True))
            yield json.dumps(customer, default=str) if as_json else _line(customer)
    if not listed and not as_json:
        yield f"No customer has terms of its own: all send at {settings.THROTTLER_DEFAULT_RATE}."


def show(customer_id: str, as_json: bool) -> Iterator[str]:
    """The terms of one customer and how many messages wait; raises Refusal when there is no such id."""
    _check(customer_id)
    row = changes.seen_of(customer_id, database_now())
    customer: dict[str, object] = {name: getattr(row, name) for name in FIELDS}
    if row._state.adding:
        customer |= dict.fromkeys(TIMES)
    customer |= {"own_terms": not row._state.adding, "waiting": changes.waiting(customer_id)}
    if as_json:
        yield json.dumps(customer, default=str)
    else:
        yield from _page(customer)


def _page(customer: Mapping[str, Any]) -> Iterator[str]:
    """What `show` says to people."""
    yield f"Customer  {on_one_line(customer['customer_id'])}"
    yield f"Terms     {'its own' if customer['own_terms'] else 'the defaults'}"
    for name, label in TERMS.items():
        yield f"{label:<10}{changes.value_in_words(name, customer[name])}"
    yield f"On hold   {'yes' if customer['held'] else 'no'}"
    if purged := customer["purge_before"]:
        yield f"Given up  what came before {purged:%F %T} UTC"
    if changed := customer["updated_at"]:
        yield f"Changed   {changed:%F %T} UTC"
    yield f"Waiting   {plural(customer['waiting'], 'message', 'messages')}"


def _sentence(result: Mapping[str, Any]) -> str:
    would = "it would be: " if result["dry_run"] else ""
    count = plural(result["waiting"], "message waits", "messages wait")
    changed = dict(result["changed"])
    burst = _burst_in_words(changed["rates"], changed.pop("burst")) if "burst" in changed else ""
    return f"{result['customer_id']}: {would}{changes.in_words(changed)}{burst}; {count}"


def _burst_in_words(text: str, burst: int | None) -> str:
    """What becomes of the burst with these rates: a customer's own stays when only the rates are named."""
    rates = parse_rates(text, burst)
    messages = plural(rates.burst, "message", "messages")
    if burst is not None:
        return f", burst {messages}, its own"
    return "" if rates.held else f", burst {messages}, what the rate allows in a second"


def _check(customer_id: str) -> None:
    if fault := changes.fault_of_customer(customer_id):
        raise Refusal(fault)


def _change(verb: str, value: str, burst: str | None) -> changes.Change:
    if verb == "set-rate" and burst is None:
        return changes.set_rate_alone(value)
    if verb == "set-rate":
        return changes.set_rate(value, _number_or_default("burst", str(burst)))
    if verb == "set-ttl":
        return changes.set_ttl(_number_or_default("seconds", value))
    if verb == "set-weight":
        return changes.set_weight(_whole_number("weight", value))
    return PLAIN[verb]


def _number_or_default(name: str, text: str) -> int | None:
    return None if text == "default" else _whole_number(name, text, ", or “default”")


def _whole_number(name: str, text: str, otherwise: str = "") -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Refusal(f"{name}: give a whole number{otherwise}")
    return int(text)


def _line(customer: dict[str, Any]) -> str:
    terms = [changes.value_in_words(name, customer[name]) for name in TERMS]
    return table_row([customer["customer_id"], *terms, "on hold" if customer["held"] else "sends"], WIDTHS)
