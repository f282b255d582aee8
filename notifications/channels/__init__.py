"""How the mails of the outbox's channel `email` leave: a class for each way, named in CHANNELS; EMAIL_CHANNEL chooses one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from django.conf import settings
from django.utils.module_loading import import_string

from config.environment.env import BadSetting
from config.telemetry.redaction import without_addresses
from notifications.mail.content import Mail
from outbox.channels.handlers import Outcome

Kept = TypeVar("Kept")

# Seconds. Greylisting servers want to be asked again after minutes, not at once, and some only after a quarter of an hour.
LEAST_WAIT, RETRIES_LAST = 60.0, 1200.0
LONGEST_ERROR = 300


class Channel:
    """Tries one mail, with one of seven outcomes; a subclass and one line in CHANNELS make one. Used from several threads at once."""

    provider = ""  # what `Delivery.provider` says
    # For how many seconds the provider drops a second mail with the same key; 0: it does not.
    keys_last = 0.0

    @property
    def timeout(self) -> float:
        """The most seconds that `send` takes."""
        return float(settings.EMAIL_TIMEOUT_SECONDS)

    @property
    def where(self) -> str:
        """Who is asked to take a mail, without credentials; "" says nothing."""
        return ""

    def send(self, mail: Mail, key: str) -> Outcome:
        """Try once. `key` is the message's id: the same on every try of it, another for every other mail."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connections that are kept."""


class Pool(Generic[Kept]):
    """Keeps connections; each is used by one try at a time, from any thread."""

    def __init__(self, make: Callable[[], Kept]) -> None:
        self._make = make
        # append and pop are atomic; the one used last is the likeliest to be open
        self._free: list[Kept] = []

    @contextmanager
    def one(self) -> Iterator[Kept]:
        try:
            kept = self._free.pop()
        except IndexError:
            kept = self._make()
        try:
            yield kept
        finally:
            self._free.append(kept)

    def empty(self) -> list[Kept]:
        """All that are free, for whoever closes them."""
        free, self._free = self._free, []
        return free


def configured() -> Channel:
    """The channel that EMAIL_CHANNEL names. Raises BadSetting when it cannot be made."""
    try:
        channel: Channel = import_string(settings.CHANNELS[settings.EMAIL_CHANNEL])()
    except ImportError as error:
        raise BadSetting(f"CHANNELS[{settings.EMAIL_CHANNEL!r}]: {error}") from error
    return channel


def error_line(text: object) -> str:
    """An error in one line without anybody's address: it goes into logs, letters and the console.

    Cut at the end of a word: half of a server's id may hold no digit, and would be another cause.
    """
    line = without_addresses(" ".join(str(text).split()))
    return line if len(line) <= LONGEST_ERROR else line[:LONGEST_ERROR].rpartition(" ")[0] or line[:LONGEST_ERROR]
