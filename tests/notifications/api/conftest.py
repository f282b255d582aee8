"""Programs that promise messages by HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from config.telemetry import metrics
from notifications.api.tokens import issue
from outbox.models import IdempotencyKey, OutboxMessage
from tests.notifications.conftest import ME, Caller

PATH = "/v1/messages"


def token(name: str = "billing", channels: str = "email", **more: Any) -> str:
    return issue(name, ME, rate=0, channels=channels, **more)[1]


@pytest.fixture
def billing(db: None) -> Caller:
    return Caller(token())


def promise(caller: Caller, *envelopes: object, key: str = "") -> Any:
    return caller.post(PATH, {"messages": list(envelopes)}, key)


def stored() -> list[OutboxMessage]:
    return list(OutboxMessage.objects.order_by("id"))


def nothing_is_stored() -> bool:
    return not OutboxMessage.objects.exists() and not IdempotencyKey.objects.exists()


def places(refusal: dict[str, Any]) -> list[tuple[str, str]]:
    return [(error["where"], error["reason"]) for error in refusal["errors"]]


def counted(outcome: str) -> float:
    return metrics.INTAKE_RECORDS.labels("http", outcome)._value.get()
