"""The route of customers' programs: one message for many recipients, with the forecast of when it leaves."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Protocol

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from ninja import Schema
from pydantic import AfterValidator, Field

from config.database.clock import database_now
from config.gate import InvalidRecord
from config.kafka import Outgoing, Producer, Sent, topic_name
from config.payload import as_json
from config.telemetry.logs import correlation_id
from config.telemetry.tracing import traceparent
from outbox.api.idempotency import Asked, once_outside
from outbox.api.problems import WRITE_REFUSALS, Answer, CustomerRouter, Input, Key, Problem, ProblemOut
from throttler import messages
from throttler.customers.changes import seen_of
from throttler.customers.situation import traffic_of, ttl_of
from throttler.lanes.models import Lane, LaneOwner
from throttler.limits.forecast import Forecast

# -- A bunch as single notifications -------------------------------------------------------------------------
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


def split_bunch(customer_id: str, ids: Sequence[str], body: Mapping[str, Any], now: datetime) -> list[Outgoing]:
    """A record for each recipient, with the trace of the request; raises Problem that names those that the throttler would refuse."""
    topic, gate = topic_name(TOPIC), messages.gate()
    known = {"traceparent": traceparent(), "correlation_id": correlation_id()}
    headers = tuple((name, text.encode()) for name, text in known.items() if text)
    common = {"customer_id": customer_id, "message": body["message"], "created_at": now.isoformat()}
    if body["ttl_seconds"] is not None:
        common["ttl_seconds"] = body["ttl_seconds"]
    records, errors = [], []
    for index, (notification_id, recipient) in enumerate(zip(ids, body["recipients"], strict=True)):
        value = msgspec.json.encode({"notification_id": notification_id, "recipient": recipient, **common})
        try:
            gate.decode(value)
        except InvalidRecord as refused:
            errors.append({"where": f"body.recipients.{index}", "what": str(refused)})
        records.append(Outgoing(topic, customer_id, value, headers))
    if errors:
        raise Problem("invalid", errors=errors)
    return records


def send_bunch(records: Sequence[Outgoing], until: float) -> None:
    """Produce all; raises Problem when one was not acknowledged: some may be there, none is said to be.

    Nothing is begun after `until` (monotonic).
    """
    missing = sum(not isinstance(outcome, Sent) for outcome in producer().send_all(records, until))
    if missing:
        raise Problem("unavailable", f"{missing} of {len(records)} were not acknowledged by Kafka.", retry_after=2)


# -- The route of customers' programs ------------------------------------------------------------------------
def expected(customer_id: str, count: int, now: datetime, ttl_seconds: int | None = None) -> dict[str, int | None]:
    """The forecast of `count` messages sent now, as `BunchOut` says it; all None: no owner reported of late."""
    if not LaneOwner.objects.reporting(now).exists():
        return dict.fromkeys(("backlog", "eta_seconds", "would_expire"))
    row = seen_of(customer_id, now)
    traffic = traffic_of(row, list(Lane.objects.filter(customer_id=customer_id)), 0.0, now)
    forecast = Forecast(traffic, row.allowed)
    ttl = ttl_of(row) if ttl_seconds is None else ttl_seconds
    return {
        "backlog": traffic.backlog, "eta_seconds": forecast.leaves_in(count),
        "would_expire": forecast.given_up(count, ttl),
    }  # fmt: skip


router = CustomerRouter(tags=["notifications"])


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
    message: dict[str, object] = Field(description="Any JSON object.", examples=[{"subject": "Hello"}])
    ttl_seconds: Annotated[int | None, AfterValidator(_short_enough)] = Field(
        default=None, ge=0, strict=True, examples=[600], description="Given up after this; empty: the customer's."
    )


class BunchOut(Schema):
    """Every notification is in Kafka. The forecast is null when no throttler has reported for 10 seconds."""

    ids: list[str] = Field(examples=[["4a4f6a3e-3b1c-5c3d-8f0e-0c9a1b2c3d4e"]])
    backlog: int | None = Field(description="Messages of this customer that wait before these.", examples=[0])
    eta_seconds: int | None = Field(description="Until the last of these leaves; null also on hold.", examples=[1])
    would_expire: int | None = Field(description="How many of these expire before they could leave.", examples=[0])


class SendingToken(Protocol):
    """The token of a request; for which customer it sends, empty for none."""

    pk: int
    customer_id: str


class SenderRequest(HttpRequest):
    """A request that the API let in."""

    auth: SendingToken


@router.post(
    "/transactional",
    response={202: BunchOut, WRITE_REFUSALS - {404}: ProblemOut},
    operation_id="send_notifications",
    summary="Send a message to many recipients",
)
def send_notifications(request: SenderRequest, body: NewBunch, key: Key) -> HttpResponse:
    """Answered when Kafka has acknowledged all; after a 503 the same request under the same key repeats the ids."""
    caller = request.auth
    if not caller.customer_id:
        raise Problem("forbidden", "This token sends for no customer.")
    asked_for, now = body.model_dump(), database_now()
    ids = ids_of(caller.pk, key, len(body.recipients))
    records = split_bunch(caller.customer_id, ids, asked_for, now)

    # Before the key is claimed: between claim and action nothing waits for the database.
    forecast = expected(caller.customer_id, len(ids), now, body.ttl_seconds)

    def action(until: float) -> Answer:
        send_bunch(records, until)
        return Answer(202, as_json({"ids": ids, **forecast}))

    scope = f"{caller.pk} POST {request.path_info}"
    return once_outside(Asked.of(scope, key, msgspec.json.encode(asked_for, order="sorted")), action).response()
