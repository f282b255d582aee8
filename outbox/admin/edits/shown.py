"""The edited copies of a letter as its page shows them: who, when, why, and the difference with dots until revealed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from config.flows import mask_of
from outbox.edits.difference import DiffLine, difference
from outbox.letters.models import DeadLetter, PayloadRevision
from outbox.trail.reveal import Sight

MOST = 20  # copies on a page


class ShownCopy(NamedTuple):
    """A copy, and what it changed as far as this reader may see it."""

    revision: PayloadRevision
    lines: Sequence[DiffLine]


def copies_of(row: DeadLetter, sight: Sight) -> list[ShownCopy]:
    """Newest first; a value that is hidden is dots on both sides, and then no difference."""
    found = list(PayloadRevision.objects.of_letter(row.pk).reverse()[:MOST])
    mask = mask_of(row.source)
    before = sight.payload(row.payload, *mask) if found else ""
    return [ShownCopy(copy, difference(before, sight.payload(copy.payload, *mask))) for copy in found]
