"""What of a batch stands in the operators' trail: one action for the batch, one for each of its levers."""

from __future__ import annotations

from typing import Any

from config.admin import humanize
from config.admin.levers import Operator
from outbox.letters.filters import Filter
from outbox.replay.batches.models import ReplayBatch
from outbox.trail import audit

NO_REASON = "–"


def record(
    batch: ReplayBatch, operator: Operator, verb: str, reason: str, result: str, rows: int = 0, before: str = ""
) -> None:
    """Insert an action about a batch, in the transaction of the deed; `before` is the state that it has left."""
    subject = f"{batch}: {batch.verb} {Filter.of(batch.filter).words()}"
    detail = {"batch": batch.pk, "filter": batch.filter}
    words = {"reason": reason or NO_REASON, "result": result, "url": page_of(batch)}
    states: dict[str, Any] = {"before": {"state": before} if before else None, "after": {"state": batch.state}}
    audit.record(
        operator, verb, subject, rows=rows, detail=detail, subject_type="outbox.replaybatch", subject_id=batch.pk,
        **words, **states,
    )  # fmt: skip


def record_deed(batch: ReplayBatch, operator: Operator) -> None:
    """The batch itself: who asked for it, why, and how many letters it is about to act on."""
    result = f"{humanize.plural(batch.eligible, 'letter', 'letters')} to {batch.verb}"
    record(batch, operator, batch.verb, batch.reason, result, batch.eligible)


def page_of(batch: ReplayBatch) -> str:
    """Where the batch is shown."""
    return f"/admin/outbox/replaybatch/{batch.pk}/change/"
