"""What an operator changes of a customer: one function behind command and admin, with reason and operator action."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Sum

from config.admin import humanize
from config.admin.levers import LEAST_REASON, Operator, fault_of_reason
from config.database.clock import database_now
from config.gate import InvalidRecord
from config.letters import Refusal
from config.telemetry.logs import log_committed
from outbox.audit_log import actions
from throttler.customers.models import Customer
from throttler.lanes.models import Lane
from throttler.limits.rate import BadRates, parse_rates, rates_text
from throttler.messages import check_customer

MOST_WEIGHT = 100  # of one customer; others wait for as many messages
MOMENT = timedelta(microseconds=1)
SUBJECT = "throttler.customer"  # of an operator action
Value = str | int | bool | datetime | None
Values = Mapping[str, Value]  # by column
Change = Callable[[Customer, datetime], Values]  # new values; raises Refusal


def set_rate(rates: str, burst: int | None = None) -> Change:
    """Rates like `20/s;10000/day` and the burst of the shortest window; raises Refusal when they cannot be read."""
    try:
        text = rates_text(parse_rates(rates, burst))
    except BadRates as error:
        raise Refusal(str(error)) from error
    return lambda row, now: {"rates": text, "burst": burst}


def set_rate_alone(rates: str) -> Change:
    """Rates, with the burst that the customer has; raises Refusal."""
    set_rate(rates)
    return lambda row, now: set_rate(rates, row.burst)(row, now)


def set_ttl(seconds: int | None) -> Change:
    """How long messages live that name no time themselves, in seconds; None: the default."""
    if fault := fault_of_ttl(seconds):
        raise Refusal(fault)
    return lambda row, now: {"ttl_seconds": seconds}


def set_weight(weight: int) -> Change:
    """How many messages leave in one turn when customers wait for the rate of all; raises Refusal."""
    if not 1 <= weight <= MOST_WEIGHT:
        raise Refusal(f"weight: must be 1 to {MOST_WEIGHT}")
    return lambda row, now: {"weight": weight}


def hold(row: Customer, now: datetime) -> Values:
    if row.held:
        raise Refusal(f"{row.pk} is held already.")
    return {"held": True}


def resume(row: Customer, now: datetime) -> Values:
    if not row.held:
        raise Refusal(f"{row.pk} is not held.")
    return {"held": False}


def purge(row: Customer, now: datetime) -> Values:
    return {"purge_before": now}


def longest_ttl() -> int:
    """The longest a message may wait, in seconds: a day less than its row is kept."""
    return int((settings.THROTTLER_BUFFER_DAYS - 1) * 86_400)


def fault_of_ttl(seconds: int | None) -> str:
    """Why this lifetime is refused, or an empty text."""
    if seconds is None or 1 <= seconds <= longest_ttl():
        return ""
    return f"ttl_seconds: must be 1 to {longest_ttl()}, a day less than THROTTLER_BUFFER_DAYS"


def fault_of_customer(customer_id: str) -> str:
    """Why no message can have this customer, or an empty text."""
    try:
        check_customer(customer_id)
        customer_id.encode()
    except InvalidRecord as refused:
        return str(refused)
    except UnicodeEncodeError:
        return "customer_id is no UTF-8"
    return ""


def waiting(customer_id: str) -> int:
    """How many messages of a customer are buffered, as its owners last reported."""
    return int(Lane.objects.filter(customer_id=customer_id).aggregate(sum=Sum("backlog"))["sum"] or 0)


def seen_of(customer_id: str, now: datetime) -> Customer:
    """The customer's row, or an unsaved one with the defaults."""
    return Customer.objects.filter(pk=customer_id).first() or without_row(customer_id, now)


def without_row(customer_id: str, now: datetime) -> Customer:
    """Who has no row sends at the default rate; unsaved."""
    return Customer(pk=customer_id, rates=settings.THROTTLER_DEFAULT_RATE, created_at=now, updated_at=now)


def change(
    customer_id: str, verb: str, action: Change, operator: Operator, reason: str, seen: Customer | None = None
) -> Values:
    """Change a customer and record who did it; a customer without a row gets one. Returns the new values.

    `seen` is the row that the operator looked at. Raises Refusal for a bad id or reason, for a change that is not
    possible now, and when somebody else changed the customer meanwhile.
    """
    if fault := fault_of_customer(customer_id) or fault_of_reason(reason, LEAST_REASON):
        raise Refusal(fault)
    with transaction.atomic():
        now = database_now()
        row = seen or _row(customer_id, now)
        values = action(row, now)
        _write(row, values, now)
        _record(row, verb, values, operator, reason)
    return values


def _row(customer_id: str, now: datetime) -> Customer:
    row = seen_of(customer_id, now)
    if row._state.adding:
        # Two operators may do this at once: the loser's row is ignored, and the guard below decides.
        Customer.objects.bulk_create([row], ignore_conflicts=True)
    return row


def _write(row: Customer, values: Values, now: datetime) -> None:
    # The clock may stand still or go back; a version must not come twice.
    moved = max(now, row.updated_at + MOMENT)
    if not Customer.objects.still_as(row).update(**values, updated_at=moved):
        raise Refusal(f"Somebody else changed {row.pk} meanwhile. Look at it, then try again.")


def _record(row: Customer, verb: str, values: Values, operator: Operator, reason: str) -> None:
    log_committed("customer_changed", customer_id=row.pk, verb=verb, by=operator.name, changed=_plain(values))
    before = {name: getattr(row, name) for name in values}
    detail = {"before": _plain(before), "after": _plain(values), "waiting": waiting(row.pk)}
    result = in_words(values, before)
    actions.record(
        operator, f"{verb}_customer", f"Customer {row.pk}", reason=reason, result=result, detail=detail,
        subject_type=SUBJECT, subject_id=row.pk, before=detail["before"], after=detail["after"],
    )  # fmt: skip


def in_words(values: Values, before: Values | None = None) -> str:
    """New values as people say them: `rate 10/s to 20/s`, `on hold`; what stays as it was `before` is left out, unless all is."""
    changed = {name: value for name, value in values.items() if before is None or before[name] != value} or values
    return ", ".join(_change_in_words(name, value, before) for name, value in changed.items())


def _change_in_words(name: str, value: Value, before: Values | None) -> str:
    if name == "held":
        return "on hold" if value else "not on hold any more"
    if name == "purge_before":
        return f"backlog dropped up to {value:%T} UTC"
    noun = {"rates": "rate", "ttl_seconds": "lifetime"}.get(name, name)
    return f"{noun} {' to '.join(value_in_words(name, one) for one in ([before[name], value] if before else [value]))}"


def value_in_words(name: str, value: Value) -> str:
    """The value of a field as people say it: `default`, `2 hours`."""
    if value is None:
        return "default"
    return humanize.length(value) if name == "ttl_seconds" and isinstance(value, int) else str(value)


def _plain(values: Values) -> dict[str, object]:
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in values.items()}
