"""Where the newest letters of a group come from: what many of them have in common."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import BinaryField, F, Func, QuerySet, Value

from config.kafka.format.headers import shown
from outbox.letters.models import DeadLetter

NEWEST = 1000  # letters that are looked at
SHOWN = 3  # values of each kind
LEAST = 2  # letters that must share a value before it is said: one alone would be about one person
HEAD = 2048  # bytes of a mail that are read for its recipient
RECIPIENT = re.compile(rb'"to"\s*:\s*"[^"@\\]*@([^"@\\]{1,100})"')
# What a header of a letter says about where it comes from, in the words of the page.
HEADERS = {"event_type": "events", "channel": "channels"}


@dataclass(frozen=True)
class Origins:
    """The values of one kind, the most common first; `others` letters have `kinds` other values."""

    kind: str
    values: Sequence[tuple[str, int]]
    kinds: int = 0
    others: int = 0


@dataclass(frozen=True)
class Found:
    """What `looked_at` letters have in common; `standing_out` is the one fact about most of them."""

    looked_at: int
    origins: Sequence[Origins]

    @property
    def bounded(self) -> bool:
        return self.looked_at >= NEWEST

    @property
    def standing_out(self) -> tuple[str, int] | None:
        """A value that more than half share beside others."""
        for found in self.origins:
            value, number = found.values[0]
            if found.kinds + len(found.values) > 1 and number * 2 > self.looked_at:
                return value, number
        return None


def origins_of(group_id: int) -> Found:
    """Of the newest open letters of a group; of all its letters where none is open."""
    letters = DeadLetter.objects.of_group(group_id)
    ids = _newest(letters.open()) or _newest(letters)
    counters: dict[str, Counter[str]] = {}
    for kind, value in _traits(DeadLetter.objects.filter(pk__in=ids).order_by()):
        counters.setdefault(kind, Counter())[value] += 1
    return Found(len(ids), [found for kind, counter in counters.items() if (found := _told(kind, counter))])


def head_of_payload() -> Func:
    """The first bytes of the payload: a letter may hold megabytes."""
    return Func(F("payload"), Value(1), Value(HEAD), function="SUBSTR", output_field=BinaryField())


def _newest(letters: QuerySet) -> list[Any]:
    return list(letters.order_by("-id").values_list("pk", flat=True)[:NEWEST])


def _traits(letters: QuerySet) -> Iterator[tuple[str, str]]:
    """(kind, value) of each letter: the partition that it came from, or what its message says."""
    promised = False
    for topic, partition in letters.values_list("topic", "partition"):
        if topic and (partition or 0) >= 0:
            yield "partitions", f"{topic}/{partition}"
        promised = promised or not topic
    if promised:  # of a record from Kafka neither headers nor payload are read
        for headers, head in letters.filter(topic="").values_list("headers", head_of_payload()):
            yield from _of_message(headers, bytes(head or b""))


def _of_message(headers: Iterable[Sequence[str]], head: bytes) -> Iterator[tuple[str, str]]:
    if found := RECIPIENT.search(head):
        yield "domains", found[1].decode("utf-8", "replace").lower()
    for name, value in shown(headers):
        if name in HEADERS and value:
            yield HEADERS[name], value


def _told(kind: str, counter: Counter[str]) -> Origins | None:
    """None where nothing is shared."""
    common = [(value, number) for value, number in counter.most_common(SHOWN) if number >= LEAST]
    rest = len(counter) - len(common)
    others = sum(counter.values()) - sum(number for _, number in common)
    return Origins(kind, common, rest, others) if common else None
