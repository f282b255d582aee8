"""The command `customers`: lists and shows customers, and pulls the admin's levers on them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from config.admin.humanize import plural
from config.admin.levers import operator_of_terminal
from config.database.chunks import by_key
from config.database.clock import database_now
from config.flows import Refusal
from config.telemetry.visible import on_one_line
from throttler.customers import changes
from throttler.customers.models import Customer

CHUNK = 1000
TIMES = ("created_at", "updated_at")
FIELDS = ("customer_id", "rates", "burst", "ttl_seconds", "weight", "held", "purge_before", *TIMES)
PLAIN = {"hold": changes.hold, "resume": changes.resume, "purge": changes.purge}
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


def run(given: Mapping[str, Any]) -> Iterator[str]:
    """The lines to print for the arguments of the command; raises Refusal."""
    verb, customer_id, as_json = given["verb"], given["customer"], given["json"]
    if verb == "list":
        return list_lines(as_json)
    if verb == "show":
        return show(customer_id, as_json)
    change = _change(verb, given["value"], given["burst"])
    values = _foreseen(customer_id, change) if given["dry_run"] else _done(verb, customer_id, change, given["reason"])
    told = {"customer_id": customer_id, "verb": verb, "changed": values, "waiting": changes.waiting(customer_id)}
    told["dry_run"] = given["dry_run"]
    return iter([json.dumps(told, default=str) if as_json else _sentence(told)])


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
    if row._state.adding:
        found |= dict.fromkeys(TIMES)
    found |= {"own_terms": not row._state.adding, "waiting": changes.waiting(customer_id)}
    if as_json:
        yield json.dumps(found, default=str)
    else:
        yield from _page(found)


def _page(customer: Mapping[str, Any]) -> Iterator[str]:
    """What `show` says to people."""
    said = {name: changes.said(name, customer[name]) for name in ("rates", "burst", "ttl_seconds", "weight")}
    yield f"Customer  {on_one_line(customer['customer_id'])}"
    yield f"Terms     {'its own' if customer['own_terms'] else 'the defaults'}"
    yield f"Rate      {said['rates']}"
    yield f"Burst     {said['burst']}"
    yield f"Lifetime  {said['ttl_seconds']}"
    yield f"Weight    {said['weight']}"
    yield f"On hold   {'yes' if customer['held'] else 'no'}"
    if purged := customer["purge_before"]:
        yield f"Given up  what came before {purged:%F %T} UTC"
    if changed := customer["updated_at"]:
        yield f"Changed   {changed:%F %T} UTC"
    yield f"Waiting   {plural(customer['waiting'], 'message', 'messages')}"


def _foreseen(customer_id: str, change: changes.Change) -> Mapping[str, Any]:
    """What a change would set now."""
    _check(customer_id)
    now = database_now()
    return change(changes.seen_of(customer_id, now), now)


def _done(verb: str, customer_id: str, change: changes.Change, reason: str) -> Mapping[str, Any]:
    operator = operator_of_terminal()
    return changes.change(customer_id, verb.replace("-", "_"), change, operator, reason)


def _sentence(told: Mapping[str, Any]) -> str:
    would = "it would be: " if told["dry_run"] else ""
    count = plural(told["waiting"], "message waits", "messages wait")
    return f"{told['customer_id']}: {would}{changes.in_words(told['changed'])}; {count}"


def _check(customer_id: str) -> None:
    if fault := changes.fault_of_customer(customer_id):
        raise Refusal(fault)


def _change(verb: str, value: str, burst: str | None) -> changes.Change:
    if verb == "set-rate" and burst is None:
        return changes.set_rate_alone(value)
    if verb == "set-rate":
        return changes.set_rate(value, None if burst == "default" else _number("burst", str(burst), ", or “default”"))
    if verb == "set-ttl":
        return changes.set_ttl(_seconds(value))
    if verb == "set-weight":
        return changes.set_weight(_number("weight", value))
    return PLAIN[verb]


def _seconds(text: str) -> int | None:
    return None if text == "default" else _number("seconds", text, ", or “default”")


def _number(name: str, text: str, otherwise: str = "") -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Refusal(f"{name}: give a whole number{otherwise}")
    return int(text)


def _line(found: dict[str, Any]) -> str:
    state = "held" if found["held"] else "-"
    cells = (found["customer_id"], found["rates"], found["burst"], found["ttl_seconds"], state)
    return "\t".join("-" if cell is None else on_one_line(cell) for cell in cells)
