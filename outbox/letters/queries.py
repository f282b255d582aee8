"""Queries about dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from uuid import UUID

from django.db import models
from django.db.models.functions import Length

LISTED = 50  # letters of a query: each has up to four megabytes
MOST_BYTES = 32 * 1024 * 1024  # of payloads that are in memory at once
# What no flow asks for when it judges a letter: what people read, and what levers have written.
NOT_JUDGED = (
    "group", "error", "error_class", "traceback", "consumer_group", "payload_sha256",
    "created_at", "updated_at", "requeued_at", "note", "code", "evidence", "evidence_url", "predecessor", "successor",
)  # fmt: skip


def fitting(sizes: Iterable[int], portions: int = 1) -> int:
    """How many payloads of these sizes, in bytes, may be in memory at once: the first ones, and at least one.

    `portions`: as many as these are there at once.
    """
    number = total = 0
    for size in sizes:
        total += size
        if number and total > MOST_BYTES // portions:
            break
        number += 1
    return number


class DeadLetterQuerySet(models.QuerySet):
    """Dead letters."""

    def open(self) -> DeadLetterQuerySet:
        return self.filter(status="open")

    def requeued(self) -> DeadLetterQuerySet:
        """Taken back, without proof of their effect."""
        return self.filter(status="requeued")

    def of_source(self, source: str) -> DeadLetterQuerySet:
        return self.filter(source=source)

    def of_group(self, group_id: int) -> DeadLetterQuerySet:
        return self.filter(group_id=group_id)

    def one_by_one(self) -> Iterator[Any]:
        """By rising id, a short query a chunk: the driver of MariaDB and MySQL holds the whole result of a query."""
        found: list[Any] = list(self.order_by("id")[:LISTED])
        while found:
            yield from found
            found = list(self.filter(pk__gt=found[-1].pk).order_by("id")[:LISTED])

    def to_judge(self) -> DeadLetterQuerySet:
        """Only the columns that judgements need: making objects of the others takes as long as judging them."""
        return self.defer(*NOT_JUDGED)

    def sizes(self) -> models.QuerySet:
        """Bytes of their payloads."""
        return self.annotate(size=Length("payload")).values("size")

    def portions(self, ids: Sequence[UUID]) -> Iterator[list[UUID]]:
        """These letters in their order, as many at a time as may be in memory; at least one."""
        sizes = dict(self.filter(pk__in=ids).sizes().values_list("pk", "size"))
        left = list(ids)
        while left:
            number = fitting(sizes.get(pk) or 0 for pk in left)
            yield left[:number]
            left = left[number:]

    def newest_first(self) -> DeadLetterQuerySet:
        return self.order_by("-id")


class PayloadRevisionQuerySet(models.QuerySet):
    """Edited copies."""

    def of_letter(self, letter_id: Any) -> PayloadRevisionQuerySet:
        return self.filter(letter=letter_id).order_by("number")

    def last_number(self, letter_id: Any) -> int:
        """How often the letter was edited."""
        return self.of_letter(letter_id).values_list("number", flat=True).last() or 0

    def in_force(self, letters: Iterable[Any]) -> list[Any]:
        """The same letters; one that was last taken back as an edited copy has the payload of that."""
        letters = list(letters)
        rows: Iterable[Any] = self.filter(letter__in=[letter.pk for letter in letters])
        # A letter that was restored, and taken back as it is, is no copy any more.
        copies = {(row.letter, row.created_at): row for row in rows}
        found = [(letter, copies.get((letter.pk, letter.requeued_at))) for letter in letters]
        return [letter.copy_with(bytes(row.payload), row.number) if row else letter for letter, row in found]
