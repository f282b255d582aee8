"""The command `customers`: lists and shows customers, and pulls the admin's levers on them."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from typing import Any

from config.admin.humanize import plural
from config.admin.levers import Operator
from config.database.chunks import by_key
from config.database.clock import database_now
from config.flows import Refusal
from throttler.customers import changes
from throttler.customers.models import Customer

CHUNK = 1000
FIELDS = ("customer_id", "rates", "burst", "ttl_seconds", "weight", "held", "purge_before", "created_at", "updated_at")
PLAIN = {"hold": changes.hold, "resume": changes.resume, "purge": changes.purge}


def list_lines(as_json: bool) -> Iterator[str]:
    """One line a customer, by id."""
    for chunk in by_key(Customer.objects.values_list(*FIELDS), CHUNK):
        for values in chunk:
            found = dict(zip(FIELDS, values, strict=True))
            yield json.dumps(found, default=str) if as_json else _line(found)


def show(customer_id: str, as_json: bool) -> Iterator[str]:
    """The terms of one customer and how many messages wait; raises Refusal when there is no such id."""
    _check(customer_id)
    row = changes.seen_of(customer_id, database_now())
    found: dict[str, Any] = {name: getattr(row, name) for name in FIELDS}
    found |= {"own_terms": not row._state.adding, "waiting": changes.waiting(customer_id)}
    if as_json:
        yield json.dumps(found, default=str)
    else:
        yield from (f"{name}: {'-' if value is None else value}" for name, value in found.items())


def act(verb: str, customer_id: str, value: str, burst: int | None, reason: str, *, dry_run: bool) -> str:
    """Pull a lever, or say what it would do; raises Refusal."""
    _check(customer_id)
    change = _change(verb, value, burst)
    count = plural(changes.waiting(customer_id), "message waits", "messages wait")
    if dry_run:
        now = database_now()
        values = change(changes.seen_of(customer_id, now), now)
        return f"{customer_id}: {_words(values)} would be set; {count}"
    operator = Operator(f"{getpass.getuser()} (command)")
    values = changes.change(customer_id, verb.replace("-", "_"), change, operator, reason)
    return f"{customer_id}: {_words(values)}; {count}"


def _check(customer_id: str) -> None:
    if fault := changes.fault_of_customer(customer_id):
        raise Refusal(fault)


def _change(verb: str, value: str, burst: int | None) -> changes.Change:
    if burst is not None and verb != "set-rate":
        raise Refusal("--burst belongs to set-rate")
    if verb == "set-rate":
        return changes.set_rate(value, burst)
    if verb == "set-ttl":
        return changes.set_ttl(_seconds(value))
    if verb == "set-weight":
        return changes.set_weight(_number("weight", value))
    if value:
        raise Refusal(f"{verb} takes no {value}")
    return PLAIN[verb]


def _seconds(text: str) -> int | None:
    return None if text == "default" else _number("seconds", text, ", or “default”")


def _number(name: str, text: str, otherwise: str = "") -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Refusal(f"{name}: give a whole number{otherwise}")
    return int(text)


def _words(values: Any) -> str:
    return ", ".join(f"{name}={'default' if value is None else value}" for name, value in values.items())


def _line(found: dict[str, Any]) -> str:
    state = "held" if found["held"] else "-"
    cells = (found["customer_id"], found["rates"], found["burst"], found["ttl_seconds"], state)
    return "\t".join("-" if cell is None else str(cell) for cell in cells)
