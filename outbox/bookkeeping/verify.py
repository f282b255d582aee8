"""The check that every flow shares: each record has an outcome."""

from __future__ import annotations

from collections.abc import Sequence

from config.flows import Check
from outbox.bookkeeping import counters

OFFENDERS = 20


def every_record_has_an_outcome(flow: str, outcomes: Sequence[str]) -> Check:
    """In each partition the records read and replayed are as many as the outcomes counted."""
    came = went = 0
    offenders = []
    for scope, counts in sorted(counters.by_scope(flow).items()):
        read = counts.get("read", 0) + counts.get("replayed", 0)
        accounted = sum(counts.get(name, 0) for name in outcomes)
        came += read
        went += accounted
        if read != accounted:
            offenders.append({"partition": scope, **counts})
    return Check(f"{flow}: read + replayed = {' + '.join(outcomes)}", came, went, offenders[:OFFENDERS])
