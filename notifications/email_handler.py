"""The handler of e-mail messages: checks suppression, then sends through the channel that EMAIL_CHANNEL names."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from django.conf import settings

from config.environment import mailbox
from config.letters import PayloadForm
from config.telemetry import tracing
from notifications import channels
from notifications.channels import faults
from notifications.mail import content, deliveries, suppression
from notifications.mail.content import Mail
from outbox.channels.handlers import Message, MessageHandler, Outcome

SUPPRESSED = "The address is suppressed ({}). It fails again until that is lifted."


class EmailHandler(MessageHandler):
    """HANDLERS["email"]. Mails are tried one by one, EMAIL_WINDOW of them at once."""

    acknowledges = "each"

    def __init__(self) -> None:
        self.channel = channels.configured()
        self.window = settings.EMAIL_WINDOW
        # Keys that the provider forgets before the message expires are sent, but not relied on.
        self.honours_keys = self.channel.keys_last >= settings.OUTBOX_EXPIRES_SECONDS
        # No timeout covers the look-up of names and the tries of a server's further addresses.
        self.timeout = 2 * self.channel.timeout

    def screen(self, messages: Sequence[Message]) -> dict[uuid.UUID, Outcome]:
        """Suppressed recipients, in one query."""
        addresses = {message.id: address_in(message.payload) for message in messages}
        stopped = suppression.reasons(addresses.values())
        return {
            message_id: Outcome("permanent", f"suppressed: {stopped[address]}", reason="suppressed")
            for message_id, address in addresses.items()
            if address in stopped
        }

    def send(self, messages: Sequence[Message]) -> list[Outcome]:
        return [self._send_one(message) for message in messages]

    def _send_one(self, message: Message) -> Outcome:
        try:
            mail = content.decode(message.payload)
        except ValueError as error:
            return Outcome("permanent", f"not a mail: {channels.error_line(error)}")
        with tracing.span(f"send {self.channel.provider}", kind="client"):
            outcome = self.channel.send(mail, str(message.id))
            if not outcome.ok:
                tracing.fail(outcome.kind)
            return outcome

    def settled(self, results: Sequence[tuple[Message, Outcome]], now: datetime) -> None:
        deliveries.accept([pair for pair in results if pair[1].ok], self.channel.provider, now)

    def where(self) -> str:
        return self.channel.where

    def recipient(self, message: Message) -> str:
        return address_in(message.payload).casefold()

    def in_vain(self, failed: Sequence[tuple[str, bytes]]) -> list[str]:
        """Of suppressed addresses, in one query, and of refusals for good."""
        addresses = [address_in(payload) for _error, payload in failed]
        stopped = suppression.reasons(addresses)
        return [
            SUPPRESSED.format(stopped[address]) if address in stopped else faults.in_vain(error)
            for address, (error, _payload) in zip(addresses, failed, strict=True)
        ]

    def rate(self) -> float:
        return float(settings.EMAIL_RATE_PER_SECOND)

    def when_uncertain(self) -> Literal["retry", "hold"]:
        return "hold" if settings.EMAIL_UNCERTAIN == "hold" else "retry"

    def readdressed(self, payload: Any, address: str) -> object:
        return {**payload, "to": mailbox.check(address)}

    def complete(self, payload: dict[str, object], key: str, at: float) -> dict[str, object]:
        return content.complete(payload, key, datetime.fromtimestamp(at, UTC))

    def renewed(self, payload: object, key: str, at: float) -> object:
        return content.renewed(payload, key, datetime.fromtimestamp(at, UTC))

    def faults(self, payload: object) -> list[str]:
        return content.faults(payload)

    def form(self, payload: object) -> PayloadForm | None:
        return content.form_of(payload)

    def check(self, payload: object) -> None:
        try:
            if not isinstance(payload, Mail):
                content.mail_of(payload)
        except msgspec.ValidationError as error:
            fault = next(iter(content.faults(payload)), str(error))  # which says where it is
            raise ValueError(f"not a mail: {fault}") from error


def address_in(payload: str | bytes) -> str:
    """The recipient of a mail; empty where the payload is none."""
    try:
        return content.decode(payload).to
    except ValueError:
        return ""  # `send` reports what is wrong with the payload
