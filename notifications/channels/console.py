"""Mails on standard output: to look at while developing."""

from __future__ import annotations

import sys

from config.telemetry.visible import visible
from notifications.channels.base import Channel
from notifications.mail.content import Mail, mime
from outbox.channels.handlers import Outcome


class Console(Channel):
    provider = "console"

    def send(self, mail: Mail, key: str) -> Outcome:
        text = mime(mail).decode("utf-8", "backslashreplace").replace("\r\n", "\n")
        sys.stdout.write(f"{'-' * 80}\n{visible(text)}\n")
        sys.stdout.flush()
        return Outcome("sent", receipt=f"console-{key}")
