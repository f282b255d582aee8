"""Readers of the providers' events: typed JSON becomes Event."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from notifications.mail.delivery_status import ACCEPTED, BOUNCED, COMPLAINED, DEFERRED, DELIVERED, REJECTED
from notifications.webhooks.event import (
    OTHER,
    Event,
    Malformed,
    from_metadata,
    identity,
    known,
    moment,
    ours,
    parts_of,
    read,
    text_of,
)

Named = dict[str, Any]
Headers = Mapping[str, str]


# -- Resend ------------------------------------------------------------------------------------------------
RESEND = {
    "email.sent": ACCEPTED,
    "email.delivered": DELIVERED,
    "email.delivery_delayed": DEFERRED,
    "email.bounced": BOUNCED,
    "email.complained": COMPLAINED,
    "email.failed": REJECTED,
    "email.suppressed": REJECTED,
}


class ResendBounce(msgspec.Struct):
    type: str = "Permanent"
    message: str = ""


class ResendData(msgspec.Struct):
    email_id: str = ""
    to: list[str] = []
    headers: list[dict[str, str]] | None = None
    bounce: ResendBounce | None = None


class Resend(msgspec.Struct):
    type: str
    data: ResendData
    created_at: datetime | None = None


def resend(body: bytes, headers: Headers) -> list[Event]:
    item = read(body, Resend)
    kind = known(item.type, RESEND)
    if kind == BOUNCED and item.data.bounce and item.data.bounce.type != "Permanent":
        kind = REJECTED  # they gave up, and the address may be good
    detail = item.data.bounce.message if item.data.bounce else ""
    recipient = item.data.to[0] if len(item.data.to) == 1 else ""
    return [
        Event(kind, headers["svix-id"], text_of(body), metadata_in(item.data.headers), item.data.email_id,
              recipient, moment(item.created_at), detail)
    ]  # fmt: skip


def metadata_in(headers: list[dict[str, str]] | None) -> Any:
    """Our id in the X-Metadata header, among the mail's headers as they list them."""
    found = [header.get("value") for header in headers or () if header.get("name", "").lower() == "x-metadata"]
    return from_metadata(found[0]) if found else None


# -- Mailgun -----------------------------------------------------------------------------------------------
MAILGUN = {"accepted": ACCEPTED, "delivered": DELIVERED, "failed": BOUNCED, "rejected": REJECTED,
           "complained": COMPLAINED}  # fmt: skip


class MailgunSignature(msgspec.Struct):
    timestamp: str
    token: str
    signature: str


class MailgunEvent(msgspec.Struct, rename={"variables": "user-variables", "status": "delivery-status"}):
    event: str
    timestamp: float | None = None
    recipient: str = ""
    severity: str = ""
    variables: Named = {}
    message: Named = {}
    status: Named = {}


class Mailgun(msgspec.Struct, rename={"event": "event-data"}):
    signature: MailgunSignature
    event: MailgunEvent


def mailgun(body: bytes, headers: Headers) -> list[Event]:
    item = read(body, Mailgun)
    kind = known(item.event.event, MAILGUN)
    if kind == BOUNCED and item.event.severity == "temporary":
        kind = DEFERRED
    sent = item.event.message.get("headers")
    provider_id = str(sent.get("message-id", "")) if isinstance(sent, dict) else ""
    detail = str(item.event.status.get("message") or item.event.status.get("description") or "")
    # The signature covers timestamp and token only: a token that is used once cannot carry another body.
    return [
        Event(kind, identity(item.signature.token), text_of(body),
              ours(item.event.variables.get("message_id")), f"<{provider_id}>" if provider_id else "",
              item.event.recipient, moment(item.event.timestamp), detail)
    ]  # fmt: skip


# -- SendGrid ----------------------------------------------------------------------------------------------
SENDGRID = {"processed": ACCEPTED, "delivered": DELIVERED, "deferred": DEFERRED, "bounce": BOUNCED,
            "dropped": REJECTED, "spamreport": COMPLAINED}  # fmt: skip


class SendGrid(msgspec.Struct):
    event: str
    email: str = ""
    timestamp: float | None = None
    sg_message_id: str = ""
    type: str = ""
    reason: str = ""
    attempt: str | int = ""
    message_id: str = ""  # our metadata stands beside their fields


def sendgrid(body: bytes, headers: Headers) -> list[Event]:
    return [_sendgrid(part, read(part, SendGrid)) for part in parts_of(body)]


def _sendgrid(raw: bytes, item: SendGrid) -> Event:
    kind = known(item.event, SENDGRID)
    if kind == BOUNCED and item.type == "blocked":
        kind = REJECTED
    # Their sg_event_id changes when they repeat themselves.
    once = identity(item.sg_message_id, item.event, item.timestamp, item.email, item.attempt)
    return Event(
        kind, once, text_of(raw), ours(item.message_id), item.sg_message_id.partition(".")[0], item.email,
        moment(item.timestamp), item.reason,
    )  # fmt: skip


# -- Postmark ----------------------------------------------------------------------------------------------
POSTMARK_BOUNCES = {
    "HardBounce": BOUNCED,
    "BadEmailAddress": BOUNCED,
    "SpamComplaint": COMPLAINED,
    "Transient": DEFERRED,
}


class Postmark(msgspec.Struct, rename="pascal"):
    record_type: str
    message_i_d: str = msgspec.field(name="MessageID", default="")
    recipient: str = ""
    email: str = ""
    type: str = ""
    delivered_at: str | None = None
    bounced_at: str | None = None
    i_d: int | str = msgspec.field(name="ID", default="")
    metadata: Named = {}
    description: str = ""
    details: str = ""


def postmark(body: bytes, headers: Headers) -> list[Event]:
    item = read(body, Postmark)
    when = item.delivered_at or item.bounced_at
    kind = OTHER
    if item.record_type == "Delivery":
        kind = DELIVERED
    elif item.record_type == "SpamComplaint":
        kind = COMPLAINED
    elif item.record_type == "Bounce":
        kind = POSTMARK_BOUNCES.get(item.type, REJECTED)
    recipient = item.recipient or item.email
    once = identity(item.record_type, item.message_i_d, recipient, when, item.i_d)
    return [
        Event(kind, once, text_of(body), ours(item.metadata.get("message_id")), item.message_i_d, recipient,
              moment(when), item.details or item.description)
    ]  # fmt: skip


# -- Amazon SES, inside an SNS notification ----------------------------------------------------------------
SES = {"Send": ACCEPTED, "Delivery": DELIVERED, "DeliveryDelay": DEFERRED, "Bounce": BOUNCED,
       "Complaint": COMPLAINED, "Reject": REJECTED, "Rendering Failure": REJECTED}  # fmt: skip
SES_PEOPLE = ("recipients", "bouncedRecipients", "complainedRecipients", "delayedRecipients")


class SesMail(msgspec.Struct, rename="camel"):
    message_id: str = ""
    destination: list[str] = []
    headers: list[dict[str, str]] | None = None
    timestamp: str | None = None


class Ses(msgspec.Struct, rename="camel"):
    mail: SesMail
    event_type: str = ""
    notification_type: str = ""
    bounce: Named = {}
    complaint: Named = {}
    delivery: Named = {}
    delivery_delay: Named = {}

    @property
    def what(self) -> str:
        return self.event_type or self.notification_type

    @property
    def part(self) -> Named:
        parts = {
            "Bounce": self.bounce,
            "Complaint": self.complaint,
            "Delivery": self.delivery,
            "DeliveryDelay": self.delivery_delay,
        }
        return parts.get(self.what, {})


class Sns(msgspec.Struct, rename="pascal"):
    message_id: str
    message: str
    type: str


def ses(body: bytes, headers: Headers) -> list[Event]:
    envelope = read(body, Sns)
    if envelope.type != "Notification":
        return []
    item = read(envelope.message.encode(), Ses)
    kind = known(item.what, SES)
    if kind == BOUNCED and item.part.get("bounceType") != "Permanent":
        kind = REJECTED
    people = people_in(item.part) or item.mail.destination or [""]
    when = item.part.get("timestamp") or item.mail.timestamp
    if when is not None and not isinstance(when, str):
        raise Malformed("the timestamp is no text")
    return [
        Event(kind, identity(envelope.message_id, person), text_of(body), metadata_in(item.mail.headers),
              item.mail.message_id, person, moment(when), str(item.part.get("bounceSubType", "")))
        for person in dict.fromkeys(people)
    ]  # fmt: skip


def people_in(part: Named) -> list[str]:
    """The recipients an SES event is about: plain addresses, or objects that hold one."""
    listed: Any = next((part[name] for name in SES_PEOPLE if part.get(name)), [])
    people = listed if isinstance(listed, list) else []
    return [str(person.get("emailAddress", "")) if isinstance(person, dict) else str(person) for person in people]
