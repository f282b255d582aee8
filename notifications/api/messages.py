"""The routes of messages that a program promises, and of what became of them; for tokens with channels."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from django.http import HttpResponse
from ninja import Path, Router, Schema
from pydantic import Field, WithJsonSchema

from config.database.clock import database_now
from config.payload import as_json
from notifications.api.auth import CallerRequest, ChannelToken
from notifications.api.orders import MESSAGE_ID, DeliveryOut, Moment, delivery_data
from notifications.mail.deliveries import Delivery
from outbox.api.idempotency import Asked, once
from outbox.api.problems import READ_REFUSALS, WRITE_REFUSALS, Answer, Input, Key, ProblemOut
from outbox.api.promises import ENVELOPE, STATES, Promiser, message_seen_by, read_promises, store_promises, until_stored

MOST_MESSAGES = 100

router = Router(tags=["messages"], auth=ChannelToken())


class NewMessages(Input):
    # The gate of messages-in looks at each: it says what is wrong in the words of a letter.
    messages: list[Annotated[Any, WithJsonSchema(ENVELOPE)]] = Field(
        min_length=1, max_length=MOST_MESSAGES, description="Each as a record of messages-in says it."
    )


class PromisedOut(Schema):
    id: UUID | None = Field(description="Null: of a repeat whose message is not known any more.", examples=[MESSAGE_ID])
    idempotency_key: str = Field(examples=[ENVELOPE["examples"][0]["idempotency_key"]])
    state: str = Field(description="pending; of a repeat what became of its message.", examples=["pending"])


class PromisesOut(Schema):
    """One for each envelope, in their order."""

    messages: list[PromisedOut]


class MessageStateOut(Schema):
    """What became of a message; never what it says, or about whom."""

    id: UUID = Field(examples=[MESSAGE_ID])
    channel: str = Field(examples=["email"])
    event_type: str = Field(examples=["invoice.issued"])
    state: str = Field(description=f"One of {', '.join(STATES)}.", examples=["sent"])
    attempts: int = Field(examples=[1])
    created_at: Moment
    expires_at: Moment
    sent_at: datetime | None = Field(examples=["2026-02-12T10:00:01Z"])
    delivery: DeliveryOut | None = None


@router.post(
    "/messages",
    response={202: PromisesOut, WRITE_REFUSALS - {404}: ProblemOut},
    operation_id="promise_messages",
    summary="Promise messages",
)
def promise_messages(request: CallerRequest, body: NewMessages, key: Key) -> HttpResponse:
    """All are stored in one transaction, or none: one that is wrong refuses them all, and each fault is named."""
    promiser = _promiser(request)
    promises = read_promises(body.messages, promiser)

    def plan() -> tuple[datetime, Callable[[], Answer]]:
        now = database_now()
        return now, lambda: _answer(
            202, {"messages": [one._asdict() for one in store_promises(promises, promiser, now)]}
        )

    asked = Asked.of(
        f"{request.auth.pk} POST {request.path_info}", key, msgspec.json.encode(body.model_dump(), order="sorted")
    )
    return once(asked, plan, until_stored).response()


@router.get(
    "/messages/{message_id}",
    response={200: MessageStateOut, READ_REFUSALS: ProblemOut},
    operation_id="get_message",
    summary="What became of a message",
)
def get_message(request: CallerRequest, message_id: Annotated[UUID, Path(examples=[MESSAGE_ID])]) -> HttpResponse:
    """Of a mail also what its provider has reported since. Only for tokens with the message's channel."""
    message = message_seen_by(_promiser(request), message_id)
    names = ("id", "channel", "event_type", "state", "attempts", "created_at", "expires_at", "sent_at")
    delivery = Delivery.objects.of_messages([message_id]).first()
    data = {name: getattr(message, name) for name in names}
    return _answer(200, {**data, "delivery": delivery_data(delivery)}).response()


def _promiser(request: CallerRequest) -> Promiser:
    return Promiser(request.auth.name, request.auth.allowed_channels)


def _answer(status: int, data: dict[str, object]) -> Answer:
    return Answer(status, as_json(data))
