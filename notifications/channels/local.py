"""Channels that send nothing: mails in memory for the demo and tests, or on standard output."""

from __future__ import annotations

import sys
import threading
from typing import ClassVar

from config.telemetry.redaction import visible
from notifications.channels import Channel
from notifications.mail.content import Mail, mime
from outbox.channels.handlers import Outcome

MOST_KEPT = 10_000
# What a server answers, by the domain of the recipient: sample shoppers have such addresses now and then.
REFUSED = {
    "nobody.example": "RCPT: 550 5.1.1 The email account that you tried to reach does not exist",
    "full.example": "RCPT: 552 5.2.2 The mailbox is full",
}


class Memory(Channel):
    """Keeps what was sent, for the demo and tests. With `keys_last` set it drops a second mail with a known key."""

    provider = "memory"
    sent: ClassVar[list[tuple[str, Mail]]] = []
    script: ClassVar[list[Outcome]] = []  # the outcomes of the next tries, which send nothing
    lock: ClassVar[threading.Lock] = threading.Lock()

    def send(self, mail: Mail, key: str) -> Outcome:
        with self.lock:
            if self.script:
                return self.script.pop(0)
            if answer := REFUSED.get(mail.to.rpartition("@")[2]):
                return Outcome("permanent", answer)
            if not self.keys_last or key not in {known for known, _ in self.sent}:
                self.sent.append((key, mail))
                del self.sent[:-MOST_KEPT]
            return Outcome("sent", receipt=f"memory-{key}")

    @classmethod
    def clear(cls) -> None:
        cls.sent.clear()
        cls.script.clear()


class Console(Channel):
    """Writes mails on standard output: to look at while developing."""

    provider = "console"

    def send(self, mail: Mail, key: str) -> Outcome:
        text = mime(mail).decode("utf-8", "backslashreplace").replace("\r\n", "\n")
        sys.stdout.write(f"{'-' * 80}\n{visible(text)}\n")
        sys.stdout.flush()
        return Outcome("sent", receipt=f"console-{key}")
