"""The route of customers' programs: one message for many recipients, taken when Kafka has every one of them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import msgspec
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema
from pydantic import AfterValidator, Field

from config.as_json import as_json
from config.database.clock import database_now
from outbox.api.idempotency import Asked
from outbox.api.outside import once_outside
from outbox.api.problems import Answer, Problem
from outbox.api.schemas import WRITE_REFUSALS, Input, Key, ProblemOut
from throttler.api import bunch
from throttler.api.forecast import forecast

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
    ids = bunch.ids_of(caller.pk, key, len(body.recipients))
    records = bunch.split(caller.customer_id, ids, asked_for, now)

    def deed() -> Answer:
        expected = forecast(caller.customer_id, len(ids), now, body.ttl_seconds)
        bunch.send(records)
        return Answer(202, as_json({"ids": ids, **asdict(expected)}))

    scope = f"{caller.pk} POST {request.path_info}"
    return once_outside(Asked.of(scope, key, msgspec.json.encode(asked_for, order="sorted")), deed).response()
