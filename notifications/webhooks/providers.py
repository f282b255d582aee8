"""Which provider signs how, and how its events are read: one line adds one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from notifications.webhooks import readers, signatures
from notifications.webhooks.event import Event, generic

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
    "resend": Provider(signatures.resend, readers.resend, ["svix-id", "svix-timestamp", "svix-signature"]),
    "mailgun": Provider(signatures.mailgun, readers.mailgun),
    "sendgrid": Provider(
        signatures.sendgrid,
        readers.sendgrid,
        ["x-twilio-email-event-webhook-timestamp", "x-twilio-email-event-webhook-signature"],
    ),
    "postmark": Provider(signatures.basic, readers.postmark),
    # SNS sends JSON and calls it text.
    "amazon_ses": Provider(signatures.verify_sns, readers.ses, content_types=[*JSON, "text/plain"]),
}
