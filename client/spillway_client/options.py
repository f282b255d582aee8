"""What the setting SPILLWAY_CLIENT says, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

KEY_LENGTH = 200  # of a key in Spillway, behind the name of who promised it
GIVEN = {"acks", "bootstrap_servers", "enable_idempotence"}  # by the relay, to its producer
LEAST = {"MAX_BYTES": 1000, "BATCH": 1, "LEASE_SECONDS": 1, "POLL_SECONDS": 0.01, "RETENTION_DAYS": 0}


class Options(NamedTuple):
    """The options by their names in the setting."""

    BOOTSTRAP_SERVERS: str = ""
    TOPIC: str = "messages-in"  # its full name on the broker
    PRODUCER: str = ""  # as MESSAGES_IN of Spillway names this service
    KAFKA: Mapping[str, Any] = {}  # further options of kafka-python's KafkaProducer
    DEBEZIUM: bool = False  # whether a connector reads the table, and no relay sends
    MAX_BYTES: int = 500_000  # of a payload; OUTBOX_MAX_BYTES of Spillway
    BATCH: int = 200  # promises that a relay claims at once
    LEASE_SECONDS: float = 60  # after which another relay may take over what one has claimed
    POLL_SECONDS: float = 1  # between two looks at an empty table
    RETENTION_DAYS: float = 7  # that sent promises are kept

    @property
    def longest_key(self) -> int:
        """Characters of an idempotency key, so that Spillway stores it behind `topic@producer/`."""
        return KEY_LENGTH - len(f"{self.TOPIC}@{self.PRODUCER}/")

    @property
    def patience(self) -> float:
        """Seconds that sending may take: a part of the lease, and never long enough to look like a hang."""
        return min(self.LEASE_SECONDS / 3, 20.0)


def read_options() -> Options:
    """Raises ImproperlyConfigured with one line that names the option, never its value."""
    given = getattr(settings, "SPILLWAY_CLIENT", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured("SPILLWAY_CLIENT: a dict of options is needed")
    if unknown := sorted(map(str, set(given) - set(Options._fields))):
        raise ImproperlyConfigured(
            f"SPILLWAY_CLIENT: {unknown[0]} is no option; there are {', '.join(Options._fields)}"
        )
    options = Options(**given)
    for name, value in given.items():
        if fault := _fault(name, value):
            raise ImproperlyConfigured(f'SPILLWAY_CLIENT["{name}"]: {fault}')
    if options.longest_key < 1 or not options.TOPIC:
        raise ImproperlyConfigured('SPILLWAY_CLIENT["TOPIC"]: a name of 1 to 190 characters is needed, with PRODUCER')
    return options


def _fault(name: str, value: object) -> str:
    if (least := LEAST.get(name)) is not None:
        number = isinstance(value, (int, float)) and not isinstance(value, bool) and value >= least
        return "" if number else f"a number of {least} or more is needed"
    kind: type = Mapping if name == "KAFKA" else type(Options._field_defaults[name])
    if not isinstance(value, kind):
        return f"{kind.__name__} is needed"
    if isinstance(value, Mapping) and (twice := sorted(GIVEN & set(value))):
        return f"{twice[0]} is set by the relay"
    return ""
