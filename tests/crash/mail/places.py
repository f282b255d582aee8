"""Where the mails go: an SMTP sink, or a provider that honours keys, both real servers that misbehave."""

from __future__ import annotations

from typing import Any

from tests.crash.mail.oracle import plain
from tests.notifications.provider import Provider
from tests.notifications.smtp_sink import Sink

TIMEOUT = 1.5  # seconds that the channel waits for an answer
# Accepted, and the answer is withheld or comes too late.
SILENCES = {"dot:drop", "dot:slow:4"}
SMTP_TROUBLES = [
    "connect:421", "data:drop", "data:hangup", "dot:421", "dot:lose", "rcpt:slow:0.3", "data:slow:4", *SILENCES,
]  # fmt: skip
# A server that answers so is asked again after a minute (greylisting): not for a run that must be short.
GREY = ["mail:451", "rcpt:450", "dot:451"]
API_TROUBLES = [
    "429:1", "500", "503", "drop_before", "drop_after", "hang_before:3", "hang_after:3", "slow:0.3",
]  # fmt: skip


class SmtpPlace:
    """Plain SMTP: nobody drops what comes twice."""

    honours_keys = False

    def __init__(self, trouble: float, seed: int, grey: bool) -> None:
        self.server = Sink(trouble=trouble, seed=seed)
        self.server.troubles = [*SMTP_TROUBLES, *(GREY if grey else ())]

    @property
    def environment(self) -> dict[str, str]:
        return {"EMAIL_CHANNEL": "smtp", "EMAIL_URL": f"smtp://127.0.0.1:{self.server.port}"}

    @property
    def accepted(self) -> list[str]:
        return [mail["message_id"] for mail in list(self.server.accepted)]

    @property
    def silences(self) -> int:
        return sum(self.server.happened[trouble] for trouble in SILENCES)

    @property
    def happened(self) -> dict[str, int]:
        return dict(sorted(self.server.happened.items()))

    def refuse_us(self) -> None:
        """Our credentials are no longer good, for a while."""
        self.server.script.extend(["mail:535"] * 2)


class ApiPlace:
    """A provider that drops a second mail with the same key."""

    honours_keys = True

    def __init__(self, trouble: float, seed: int, grey: bool) -> None:
        self.server = Provider(honours_keys=True, trouble=trouble, seed=seed)
        self.server.troubles = API_TROUBLES

    @property
    def environment(self) -> dict[str, str]:
        return {
            "EMAIL_CHANNEL": "anymail", "EMAIL_ESP": "resend", "ANYMAIL_RESEND_API_KEY": "k",
            "ANYMAIL_RESEND_API_URL": self.server.url,
        }  # fmt: skip

    @property
    def accepted(self) -> list[str]:
        return [plain(mail["message_id"]) for mail in list(self.server.accepted)]

    silences = 0

    @property
    def happened(self) -> dict[str, int]:
        return {name: times for name, times in sorted(self.server.happened.items()) if name != "ok"}

    def refuse_us(self) -> None:
        self.server.script.extend(["401"] * 3)


PLACES: dict[str, Any] = {"smtp": SmtpPlace, "keys": ApiPlace}
