"""Genuine webhooks, as the providers sign them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import uuid
from typing import Any

from django.test import Client

from notifications.models import Delivery, WebhookEvent

SECRETS = {
    "generic": ["the-new-generic-secret", "the-old-generic-secret"],
    "resend": ["whsec_" + base64.b64encode(b"r" * 24).decode(), "whsec_" + base64.b64encode(b"o" * 24).decode()],
    "mailgun": ["the-new-mailgun-key", "the-old-mailgun-key"],
    "postmark": ["hook:a-new:pass:word", "hook:an-old-password"],
}


def generic(body: Any, at: float | None = None, secret: str = SECRETS["generic"][0]) -> tuple[bytes, dict[str, str]]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    stamp = str(int(time.time() if at is None else at))
    signature = hmac.new(secret.encode(), stamp.encode() + b"." + raw, hashlib.sha256).hexdigest()
    return raw, {"X-Spillway-Timestamp": stamp, "X-Spillway-Signature": signature}


def event(kind: str, message: Any = None, **more: Any) -> dict[str, Any]:
    """One event in the generic shape."""
    found = {"id": str(uuid.uuid4()), "event": kind, "occurred_at": time.time(), **more}
    return {**found, "message_id": str(message)} if message else found


def resend(
    kind: str,
    message: Any,
    at: float | None = None,
    secret: str = SECRETS["resend"][0],
    name: str | None = None,
    **data: Any,
) -> tuple[bytes, dict[str, str]]:
    body = {
        "type": kind, "created_at": "2026-11-20T12:00:00.000Z",
        "data": {"email_id": "re-1", "to": ["ada@example.com"],
                 "headers": [{"name": "X-Metadata", "value": json.dumps({"message_id": str(message)})}], **data},
    }  # fmt: skip
    raw = json.dumps(body).encode()
    name, stamp = f"msg_{uuid.uuid4()}" if name is None else name, str(int(time.time() if at is None else at))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.new(key, f"{name}.{stamp}.".encode() + raw, hashlib.sha256).digest()
    signature = "v1,bm9uc2Vuc2U= v1," + base64.b64encode(digest).decode()
    return raw, {"svix-id": name, "svix-timestamp": stamp, "svix-signature": signature}


def mailgun(
    kind: str,
    message: Any,
    at: float | None = None,
    secret: str = SECRETS["mailgun"][0],
    token: str | None = None,
    **data: Any,
) -> tuple[bytes, dict[str, str]]:
    stamp, token = str(int(time.time() if at is None else at)), uuid.uuid4().hex if token is None else token
    signature = hmac.new(secret.encode(), (stamp + token).encode(), hashlib.sha256).hexdigest()
    body = {
        "signature": {"timestamp": stamp, "token": token, "signature": signature},
        "event-data": {"event": kind, "timestamp": time.time(), "recipient": "ada@example.com",
                       "user-variables": {"message_id": str(message)}, "message": {"headers": {"message-id": "m@x"}},
                       "delivery-status": {"message": "said so"}, **data},
    }  # fmt: skip
    return json.dumps(body).encode(), {}


def postmark(
    kind: str, message: Any, secret: str = SECRETS["postmark"][0], **data: Any
) -> tuple[bytes, dict[str, str]]:
    body = {"RecordType": kind, "MessageID": "pm-1", "Recipient": "ada@example.com",
            "DeliveredAt": "2026-11-20T12:00:00Z", "Metadata": {"message_id": str(message)}, **data}  # fmt: skip
    return json.dumps(body).encode(), {"Authorization": "Basic " + base64.b64encode(secret.encode()).decode()}


# -- telling it to the endpoint ----------------------------------------------------------------------------
def post(signed: tuple[bytes, dict[str, str]], esp: str = "generic", **more: Any) -> Any:
    body, headers = signed
    more.setdefault("content_type", "application/json")
    return Client().post(f"/webhooks/email/{esp}", body, headers=headers, **more)


def tell(*events: dict[str, Any]) -> list[str]:
    """Post events in the generic shape; the verdicts of all that are stored, oldest first."""
    answer = post(generic(list(events)))
    assert answer.status_code == 204, answer.content
    return list(WebhookEvent.objects.order_by("id").values_list("verdict", flat=True))


def status() -> str:
    return Delivery.objects.get().status


def at(seconds: float) -> float:
    return time.time() + seconds
