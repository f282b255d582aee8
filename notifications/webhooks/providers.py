"""The providers: how the events of each are read into our form, and who signs how."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from config.fields import IDENTIFIER_LENGTH
from config.payload import digest
from notifications.mail import deliveries
from notifications.mail.deliveries import ACCEPTED, BOUNCED, COMPLAINED, DEFERRED, DELIVERED, REJECTED
from notifications.webhooks import signatures
from notifications.webhooks.fields import (
    Malformed,
    Record,
    from_metadata,
    moment,
    number,
    ours,
    parsed,
    parsed_record,
    parts_of,
    record,
    records,
    text,
    text_of,
    texts,
)

# -- Our form of an event, and our own format ----------------------------------------------------------------
OTHER = "other"  # opened, clicked, and whatever providers add: stored, without effect


@dataclass(frozen=True)
class Event:
    """One thing that happened to one mail, as a provider tells it."""

    kind: str  # one of deliveries.STATUSES, or OTHER
    dedup_id: str
    raw: str
    message_id: uuid.UUID | None = None  # our message's id, if the provider returns it
    provider_message_id: str = ""
    recipient: str = ""
    occurred_at: datetime | None = None
    detail: str = ""


def identity(*parts: object) -> str:
    """A dedup id from the parts that identify an event, for providers whose own id changes or is missing."""
    return digest("\x1f".join(map(str, parts)).encode())


def unreadable(raw: bytes, why: str) -> Event:
    """An element of a list that tells nothing: it is kept, so that somebody can read it."""
    return Event(OTHER, identity(text_of(raw)), text_of(raw), detail=f"cannot be read: {why}")


def generic(body: bytes) -> list[Event]:
    """Our own format. Malformed if nothing in it can be read; beside others, what cannot be read is kept."""
    parts = parts_of(body)
    readable: dict[bytes, Event] = {}
    faults: dict[bytes, Malformed] = {}
    for raw in parts:
        try:
            readable[raw] = _generic(raw, record(parsed(raw)))
        except Malformed as error:
            faults[raw] = error
    if faults and not readable:
        raise next(iter(faults.values()))
    return [readable.get(raw) or unreadable(raw, str(faults[raw])) for raw in parts]


def _generic(raw: bytes, item: Record) -> Event:
    dedup_id, kind = item.get("id"), item.get("event")
    if not isinstance(dedup_id, str) or not 0 < len(dedup_id) <= IDENTIFIER_LENGTH:
        raise Malformed(f"an event needs an id of 1 to {IDENTIFIER_LENGTH} characters")
    if not isinstance(kind, str):
        raise Malformed("`event` is no text")
    return Event(
        kind if kind in deliveries.STATUSES else OTHER, dedup_id, text_of(raw), ours(item.get("message_id")),
        text(item.get("provider_message_id")), text(item.get("recipient")), moment(item.get("occurred_at")),
        text(item.get("detail")),
    )  # fmt: skip


# -- The formats of providers --------------------------------------------------------------------------------
# Only `bounced` and `complained` suppress an address, so they stand for what a provider says about the address itself.
# `rejected` takes back that a mail was delivered, so it stands for a mail that is known not to have arrived. Of what a
# provider itself cannot tell, `deferred` says that the mail was not delivered yet, and takes nothing back.
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


def resend(body: bytes, headers: Headers) -> list[Event]:
    item = parsed_record(body)
    data = record(item.get("data"))
    bounce = record(data.get("bounce"))
    kind = RESEND.get(text(item.get("type")), OTHER)
    if kind == BOUNCED:
        kind = bounced(text(bounce.get("type")) or "Permanent", text(bounce.get("subType")))
    people = texts(data.get("to"))
    return [
        Event(kind, headers["svix-id"], text_of(body), metadata_in(data.get("headers")), text(data.get("email_id")),
              people[0] if len(people) == 1 else "", moment(item.get("created_at")), text(bounce.get("message")))
    ]  # fmt: skip


def metadata_in(headers: object) -> UUID | None:
    """Our id in the X-Metadata header, among the mail's headers as they list them."""
    named = [each for each in records(headers) if text(each.get("name")).lower() == "x-metadata"]
    return from_metadata(named[0].get("value")) if named else None


# -- Mailgun -----------------------------------------------------------------------------------------------
MAILGUN = {"accepted": ACCEPTED, "delivered": DELIVERED, "failed": REJECTED, "rejected": REJECTED,
           "complained": COMPLAINED}  # fmt: skip
# Why it gave up, where the reason is the address. The others are a mail that grew old, a provider that blocks the
# sender, somebody who unsubscribed, and whatever could not be classified ("generic").
MAILGUN_ADDRESS = {"bounce": BOUNCED, "hardfail": BOUNCED, "suppress-bounce": BOUNCED, "suppress-complaint": COMPLAINED}


def mailgun(body: bytes, headers: Headers) -> list[Event]:
    item = parsed_record(body)
    event, signature = record(item.get("event-data")), record(item.get("signature"))
    kind = MAILGUN.get(what := text(event.get("event")), OTHER)
    if what == "failed":
        temporary = text(event.get("severity")) == "temporary"
        kind = DEFERRED if temporary else MAILGUN_ADDRESS.get(text(event.get("reason")), REJECTED)
    provider_id = text(record(record(event.get("message")).get("headers")).get("message-id"))
    status = record(event.get("delivery-status"))
    # The signature covers timestamp and token only: a token that is used once cannot carry another body.
    return [
        Event(kind, identity(text(signature.get("token"))), text_of(body),
              ours(record(event.get("user-variables")).get("message_id")), f"<{provider_id}>" if provider_id else "",
              text(event.get("recipient")), moment(event.get("timestamp")),
              text(status.get("message")) or text(status.get("description")) or text(event.get("reason")))
    ]  # fmt: skip


# -- SendGrid ----------------------------------------------------------------------------------------------
SENDGRID = {"processed": ACCEPTED, "delivered": DELIVERED, "deferred": DEFERRED, "bounce": BOUNCED,
            "dropped": REJECTED, "spamreport": COMPLAINED}  # fmt: skip
# Bounces that they lay at the door of the mail or its sender.
SENDGRID_NOT_THE_ADDRESS = {"content", "reputation", "technical", "frequency or volume too high"}


def sendgrid(body: bytes, headers: Headers) -> list[Event]:
    return [_sendgrid(raw) for raw in parts_of(body)]


def _sendgrid(raw: bytes) -> Event:
    try:
        item = parsed_record(raw)
    except Malformed:
        item = {}
    kind = SENDGRID.get(what := text(item.get("event")), OTHER)
    why = text(item.get("bounce_classification")).casefold()
    if kind == BOUNCED and (text(item.get("type")) == "blocked" or why in SENDGRID_NOT_THE_ADDRESS):
        kind = REJECTED
    provider_id, recipient = text(item.get("sg_message_id")), text(item.get("email"))
    # Their sg_event_id changes when they repeat themselves.
    once = identity(provider_id, what, number(item.get("timestamp")), recipient, text(item.get("attempt")))
    return Event(
        kind, once if provider_id else identity(text_of(raw)), text_of(raw),
        ours(item.get("message_id")),  # our metadata stands beside their fields
        provider_id.partition(".")[0], recipient, moment(item.get("timestamp")), text(item.get("reason")),
    )  # fmt: skip


# -- Postmark ----------------------------------------------------------------------------------------------
# "Bounces" are whatever came back, also what a person or a machine answered to a mail that has arrived.
POSTMARK_ANSWERS = {"AutoResponder", "AddressChange", "ChallengeVerification", "Subscribe", "Unsubscribe",
                    "OpenRelayTest", "InboundError", "SpamNotification"}  # fmt: skip
POSTMARK_BOUNCES = {
    **dict.fromkeys(POSTMARK_ANSWERS, OTHER),
    **dict.fromkeys(["HardBounce", "BadEmailAddress"], BOUNCED),
    **dict.fromkeys(["SoftBounce", "VirusNotification", "ManuallyDeactivated", "Unconfirmed", "Blocked", "DMARCPolicy",
                     "SMTPApiError", "TemplateRenderingFailed", "ManualSuppression"], REJECTED),
    "SpamComplaint": COMPLAINED,
}  # fmt: skip


def postmark(body: bytes, headers: Headers) -> list[Event]:
    item = parsed_record(body)
    kinds = {
        "Delivery": DELIVERED,
        "SpamComplaint": COMPLAINED,
        # Transient, DnsError, Unknown, and what they add.
        "Bounce": POSTMARK_BOUNCES.get(text(item.get("Type")), DEFERRED),
    }
    what, provider_id = text(item.get("RecordType")), text(item.get("MessageID"))
    recipient = text(item.get("Recipient")) or text(item.get("Email"))
    when = text(item.get("DeliveredAt")) or text(item.get("BouncedAt"))
    once = identity(what, provider_id, recipient, when or None, text(item.get("ID")))
    return [
        Event(kinds.get(what, OTHER), once if provider_id else identity(text_of(body)), text_of(body),
              ours(record(item.get("Metadata")).get("message_id")), provider_id, recipient, moment(when),
              text(item.get("Details")) or text(item.get("Description")))
    ]  # fmt: skip


# -- Amazon SES, inside an SNS notification ----------------------------------------------------------------
SES = {"Send": ACCEPTED, "Delivery": DELIVERED, "DeliveryDelay": DEFERRED, "Bounce": BOUNCED,
       "Complaint": COMPLAINED, "Reject": REJECTED, "Rendering Failure": REJECTED}  # fmt: skip
SES_PARTS = {"Bounce": "bounce", "Complaint": "complaint", "Delivery": "delivery", "DeliveryDelay": "deliveryDelay"}
SES_PEOPLE = ("recipients", "bouncedRecipients", "complainedRecipients", "delayedRecipients")
# Of the transient bounces those that say what became of the mail; "General" is mostly somebody who is out of office.
GIVEN_UP = {"MailboxFull", "MessageTooLarge", "ContentRejected", "AttachmentRejected", "CustomTimeoutExceeded"}
# Feedback that is no complaint: somebody took it back, or a machine reports on signatures.
NO_COMPLAINT = {"not-spam", "auth-failure"}


def ses(body: bytes, headers: Headers) -> list[Event]:
    """The events of a notification. What SNS says of the subscription itself is none."""
    envelope = parsed_record(body)
    if text(envelope.get("Type")) != "Notification":
        return []
    try:
        item = record(parsed(text(envelope.get("Message")).encode()))
    except Malformed:
        item = {}  # "Successfully validated SNS topic": it is stored, and tells of no mail
    what, mail = text(item.get("eventType")) or text(item.get("notificationType")), record(item.get("mail"))
    part = record(item.get(SES_PARTS.get(what, "")))
    kind = SES.get(what, OTHER)
    sub_type = text(part.get("bounceSubType"))
    if kind == BOUNCED:
        kind = bounced(text(part.get("bounceType")), sub_type)
    if kind == COMPLAINED and text(part.get("complaintFeedbackType")) in NO_COMPLAINT:
        kind = OTHER
    people = people_in(part) or texts(mail.get("destination")) or [""]
    when = moment(part.get("timestamp")) or moment(mail.get("timestamp"))
    return [
        Event(kind, identity(text(envelope.get("MessageId")), person), text_of(body), metadata_in(mail.get("headers")),
              text(mail.get("messageId")), person, when, sub_type)
        for person in dict.fromkeys(people)
    ]  # fmt: skip


def bounced(kind: str, sub_type: str) -> str:
    """Amazon's classes of bounces, which Resend passes on."""
    if kind == "Permanent":
        return BOUNCED
    return REJECTED if sub_type in GIVEN_UP else DEFERRED


def people_in(part: Record) -> list[str]:
    """The recipients an SES event is about: plain addresses, or objects that hold one."""
    listed: list[object] = next((part[name] for name in SES_PEOPLE if isinstance(part.get(name), list)), [])
    return texts([each.get("emailAddress") if isinstance(each, dict) else each for each in listed])


# -- Who signs how: one line adds a provider -----------------------------------------------------------------
Verify = Callable[[Sequence[str], Mapping[str, str], bytes, datetime], None]
Read = Callable[[bytes, Mapping[str, str]], list[Event]]
JSON = ("application/json",)


@dataclass(frozen=True)
class Provider:
    """`keeps` are the request's headers that are stored with an event: signatures, never a password."""

    verify: Verify
    read: Read
    keeps: Sequence[str] = ()
    content_types: Sequence[str] = JSON


PROVIDERS = {
    "generic": Provider(
        signatures.generic, lambda body, headers: generic(body), ["x-spillway-timestamp", "x-spillway-signature"]
    ),
    "resend": Provider(signatures.resend, resend, ["svix-id", "svix-timestamp", "svix-signature"]),
    "mailgun": Provider(signatures.mailgun, mailgun),
    "sendgrid": Provider(
        signatures.sendgrid,
        sendgrid,
        ["x-twilio-email-event-webhook-timestamp", "x-twilio-email-event-webhook-signature"],
    ),
    "postmark": Provider(signatures.basic, postmark),
    # SNS sends JSON and calls it text.
    "amazon_ses": Provider(signatures.verify_sns, ses, content_types=[*JSON, "text/plain"]),
}
