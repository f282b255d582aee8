"""The route of customers' programs: one message for many recipients, with the forecast of when it leaves."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from math import ceil
from typing import Annotated, Any

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema
from pydantic import AfterValidator, Field

from config.database.clock import database_now
from config.gate import InvalidRecord
from config.kafka import Outgoing, Producer, Sent, topic_name
from config.payload import as_json
from outbox.api.idempotency import Asked, once_outside
from outbox.api.problems import Answer, Problem
from outbox.api.schemas import WRITE_REFUSALS, Input, Key, ProblemOut
from throttler import messages
from throttler.customers.models import Customer
from throttler.lanes.models import Lane, LaneOwner
from throttler.limits.rate import Rates, RateWindow, default_rates
from throttler.messages import microseconds

# -- A bunch as single notifications: their ids, their bytes, and their way to the topic ---------------------
TOPIC = "notifications-in"
BUNCHES = uuid.UUID("6f1d7f1e-5b0e-4c58-9a57-8f6f0a1c2d3e")  # the namespace of the ids
PATIENCE = 15.0  # seconds


@cache
def producer() -> Producer:
    """The one of this process, which is kept."""
    return Producer(patience=PATIENCE, max_block_ms=5_000, delivery_timeout_ms=10_000, request_timeout_ms=5_000)


def ids_of(token_id: int, key: str, count: int) -> list[str]:
    """One id for each recipient: the same token, key and place give the same again."""
    return [str(uuid.uuid5(BUNCHES, f"{token_id} {key} {index}")) for index in range(count)]


def split_bunch(customer_id: str, ids: Sequence[str], body: dict[str, Any], now: datetime) -> list[Outgoing]:
    """A record for each recipient; raises Problem that names the recipients whose record the throttler would refuse."""
    topic, gate = topic_name(TOPIC), messages.gate()
    common = {"customer_id": customer_id, "message": body["message"], "created_at": now.isoformat()}
    if body["ttl_seconds"] is not None:
        common["ttl_seconds"] = body["ttl_seconds"]
    found, errors = [], []
    for index, (notification_id, recipient) in enumerate(zip(ids, body["recipients"], strict=True)):
        value = msgspec.json.encode({"notification_id": notification_id, "recipient": recipient, **common})
        try:
            gate.decode(value)
        except InvalidRecord as refused:
            errors.append({"where": f"body.recipients.{index}", "what": str(refused)})
        found.append(Outgoing(topic, customer_id, value))
    if errors:
        raise Problem("invalid", errors=errors)
    return found


def send_bunch(records: Sequence[Outgoing]) -> None:
    """Produce all; raises Problem when one was not acknowledged: some may be there, none is said to be."""
    missing = sum(not isinstance(outcome, Sent) for outcome in producer().send_all(records))
    if missing:
        raise Problem("unavailable", f"{missing} of {len(records)} were not acknowledged by Kafka.", retry_after=2)


# -- When the last of some messages would leave, and how many would expire before ----------------------------
# From the mirror, a second old.
SECOND = 1_000_000


@dataclass(frozen=True)
class Prospect:
    """What lies before some messages; each None where nobody can tell. `eta_seconds` is that of the last one."""

    backlog: int | None = None
    eta_seconds: int | None = None
    would_expire: int | None = None


@dataclass(frozen=True)
class Backlog:
    """What a customer has waiting, and has used of the longer windows: `[period_us, start_us, used]`, as the limiter keeps it."""

    backlog: int = 0
    quota: Sequence[Sequence[int]] = ()

    @classmethod
    def of(cls, customer_id: str) -> Backlog:
        """There is more than one lane only while partitions are added."""
        lanes = list(Lane.objects.filter(customer_id=customer_id).values_list("backlog", "limiter"))
        quota = [one for _, limiter in lanes for one in limiter.get("quota", [])]
        return cls(sum(backlog for backlog, _ in lanes), quota)

    def used(self, period_us: int, now_us: int) -> int:
        """How much of a longer window is spent now."""
        return max(
            (used for period, start, used in self.quota if period == period_us and start + period > now_us), default=0
        )

    def leaves_after_us(self, rates: Rates, place: int, now_us: int) -> int:
        """Microseconds until the message at `place` (1 is the next) leaves, if the slowest window alone decides.

        Who has something waiting has spent the burst.
        """
        shortest, *longer = rates.windows
        behind = place if self.backlog else max(0, place - rates.burst)
        spread = behind * shortest.period_us // shortest.limit
        return max([spread, *(self._of_quota(window, place, now_us) for window in longer)])

    def _of_quota(self, window: RateWindow, place: int, now_us: int) -> int:
        """What is left of a longer window goes at once, then nothing until it ends; each is one of UTC."""
        left = max(0, window.limit - self.used(window.period_us, now_us))
        if place <= left:
            return 0
        ends = window.period_us - now_us % window.period_us
        return ends + (place - left - 1) // window.limit * window.period_us


def prospect(rates: Rates, waiting: Backlog, count: int, ttl_us: int, now_us: int) -> Prospect:
    """What `count` messages behind those that wait may expect; rates without a window let nothing leave."""
    if rates.held:
        return Prospect(waiting.backlog, None, count)
    last = waiting.backlog + count
    eta = waiting.leaves_after_us(rates, last, now_us)
    # The time of leaving only grows with the place.
    alive = bisect_right(range(1, last + 1), ttl_us, key=lambda place: waiting.leaves_after_us(rates, place, now_us))
    return Prospect(waiting.backlog, ceil(eta / SECOND), min(count, last - alive) if ttl_us else count)


def forecast(customer_id: str, count: int, now: datetime, ttl_seconds: int | None = None) -> Prospect:
    """Of the mirror for `count` more messages. All None: no owner reported of late."""
    if not LaneOwner.objects.reporting(now).exists():
        return Prospect()
    customer = Customer.objects.filter(pk=customer_id).first()
    rates = customer.allowed if customer else default_rates()
    lifetime = _first(ttl_seconds, customer.ttl_seconds if customer else None, settings.THROTTLER_TTL_SECONDS)
    return prospect(rates, Backlog.of(customer_id), count, lifetime * SECOND, microseconds(now))


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


# -- The route of customers' programs ------------------------------------------------------------------------
# One message for many recipients, taken when Kafka has every one of them.
router = Router(tags=["notifications"])


def _not_too_many(value: list[str]) -> list[str]:
    if len(value) > settings.THROTTLER_MAX_RECIPIENTS:
        raise ValueError(f"{len(value)} recipients, at most {settings.THROTTLER_MAX_RECIPIENTS} are possible")
    return value


def _short_enough(value: int | None) -> int | None:
    if value is not None and value > settings.THROTTLER_TTL_SECONDS:
        raise ValueError(f"at most {settings.THROTTLER_TTL_SECONDS} seconds are possible")
    return value


Recipient = Annotated[str, Field(min_length=1, max_length=320, examples=["ada@example.com"])]


class NewBunch(Input):
    recipients: Annotated[
        list[Recipient], AfterValidator(_not_too_many), Field(min_length=1, examples=[["ada@example.com"]])
    ]
    message: dict[str, Any] = Field(description="Any JSON object.", examples=[{"subject": "Hello"}])
    ttl_seconds: Annotated[int | None, AfterValidator(_short_enough)] = Field(
        default=None, ge=0, strict=True, examples=[600], description="Given up after this; empty: the customer's."
    )


class BunchOut(Schema):
    """Every notification is in Kafka. The forecast is null when no throttler has reported for 10 seconds."""

    ids: list[str] = Field(examples=[["4a4f6a3e-3b1c-5c3d-8f0e-0c9a1b2c3d4e"]])
    backlog: int | None = Field(description="Messages of this customer that wait before these.", examples=[0])
    eta_seconds: int | None = Field(description="Until the last of these leaves; null also on hold.", examples=[1])
    would_expire: int | None = Field(description="How many of these expire before they could leave.", examples=[0])


@router.post(
    "/transactional",
    response={202: BunchOut, WRITE_REFUSALS - {404}: ProblemOut},
    operation_id="send_notifications",
    summary="Send a message to many recipients",
)
def send_notifications(request: HttpRequest, body: NewBunch, key: Key) -> HttpResponse:
    """Answered when Kafka has acknowledged all; after a 503 the same request under the same key repeats the ids."""
    caller = request.auth  # type: ignore[attr-defined]
    if not caller.customer_id:
        raise Problem("forbidden", "This token sends for no customer.")
    asked_for, now = body.model_dump(), database_now()
    ids = ids_of(caller.pk, key, len(body.recipients))
    records = split_bunch(caller.customer_id, ids, asked_for, now)

    def deed() -> Answer:
        expected = forecast(caller.customer_id, len(ids), now, body.ttl_seconds)
        send_bunch(records)
        return Answer(202, as_json({"ids": ids, **asdict(expected)}))

    scope = f"{caller.pk} POST {request.path_info}"
    return once_outside(Asked.of(scope, key, msgspec.json.encode(asked_for, order="sorted")), deed).response()
