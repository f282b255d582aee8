"""What a letter's page tells of it: messages, revisions, edited copies, batches, who was faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.urls import reverse

from config.admin.html import STATES
from config.fields import is_uuid
from config.flows import mask_of
from config.letters import Tone
from outbox.audit_log.models import OperatorAction
from outbox.audit_log.reveal import Visibility
from outbox.letters.edit_checks import DiffLine, difference
from outbox.letters.models import DeadLetter, PayloadRevision
from outbox.messages.models import DeliveryAttempt
from outbox.replay_batches.models import ReplayItem
from outbox.replay_batches.subjects import who_took

# -- Who was faster ------------------------------------------------------------------------------------------
NO_ACTIONS = ("reveal", "mask_again", "refused", "export")
LOOKED_AT = 10  # of its newest actions


def who_was_faster(letter: DeadLetter) -> str:
    """`Anna was faster.`; empty where nobody did it, but its own replay."""
    if letter.status == "open":
        return ""
    actions = OperatorAction.objects.about("outbox.deadletter", letter.pk, LOOKED_AT)
    name = actions.exclude(verb__in=NO_ACTIONS).values_list("actor_name", flat=True).first()
    name = name or who_took([letter.pk]).get(letter.pk, "")
    return f"{name} was faster." if name else ""


# -- Edited copies -------------------------------------------------------------------------------------------
# Who, when, why, and the difference with dots until revealed.
MOST = 20  # copies on a page


class ShownCopy(NamedTuple):
    """A copy, and what it changed as far as this reader may see it."""

    revision: PayloadRevision
    lines: Sequence[DiffLine]


def copies_of(row: DeadLetter, sight: Visibility) -> list[ShownCopy]:
    """Newest first; a value that is hidden is dots on both sides, and then no difference."""
    copies = list(PayloadRevision.objects.of_letter(row.pk).reverse()[:MOST])
    mask = mask_of(row.source)
    before = sight.payload(row.payload, *mask) if copies else ""
    return [ShownCopy(copy, difference(before, sight.payload(copy.payload, *mask))) for copy in copies]


# -- The timeline of a letter --------------------------------------------------------------------------------
# To its message, to its earlier and later revisions, and in replay batches: its timeline.
Status = DeadLetter.Status
MOST_BATCHES = 5
MOST_TRIES = 10  # the newest; its message shows all that are kept


class LetterEvent(NamedTuple):
    """One line of the timeline."""

    tone: Tone
    icon: str
    title: str
    at: datetime
    words: str = ""
    url: str = ""
    link: str = ""  # the words of the link


CLOSED: dict[str, tuple[Tone, str, str]] = {
    Status.RESOLVED: ("ok", "tick", "Resolved"),
    Status.FAILED_AGAIN: ("bad", "octagon", "Failed again"),
    Status.DISCARDED: ("idle", "ban", "Discarded"),
}


def history_of(row: DeadLetter, sight: Visibility, items: Sequence[ReplayItem] = ()) -> list[LetterEvent]:
    """Newest first, with the tries of its message and its places in replay batches; errors as far as this reader may see."""
    known = _relatives(row) if row.predecessor or row.successor else {}
    later = [_revision(after, "Later letter") for after in _chain(known, row, "successor")]
    earlier = [_revision(before, "Earlier letter") for before in _chain(known, row, "predecessor")]
    events = [
        *later[::-1],
        *_closed(row, sight),
        *_in_batches(items, sight),
        *_taken(row, sight),
        _arrived(row),
        *_tries(row, sight),
        *earlier,
    ]
    # What has the same time keeps the order above.
    return sorted(events, key=lambda event: event.at, reverse=True)


def items_of(row: DeadLetter) -> list[ReplayItem]:
    """Its places in the newest replay batches, each with its batch."""
    items = ReplayItem.objects.filter(letter=row.pk).select_related("batch")
    return list(items.order_by("-batch_id")[:MOST_BATCHES])


def _in_batches(items: Sequence[ReplayItem], sight: Visibility) -> Iterator[LetterEvent]:
    for item in items:
        batch, note = item.batch, f": {sight.error(item.note)}" if item.note else ""
        words = f"{batch.verb}, {item.get_state_display().lower()}{note}"
        url = reverse("admin:outbox_replaybatch_change", args=[batch.pk])
        yield LetterEvent("info", "redo", str(batch), item.changed_at or batch.created_at, words, url, "Open it")


def _closed(row: DeadLetter, sight: Visibility) -> Iterator[LetterEvent]:
    if row.status in CLOSED:
        # Evidence names receipts, batches and rows; a note may hold the error of an older version.
        words = row.evidence or (sight.error(row.note) if row.requeued_at is None else "")
        words = sight.error(words) if row.status == Status.FAILED_AGAIN else words
        words = "" if words == row.get_status_display().lower() else words  # a discard says no more of itself
        link = "What proves it" if row.evidence_url else ""
        yield LetterEvent(*CLOSED[row.status], row.updated_at, words, row.evidence_url, link)


def _taken(row: DeadLetter, sight: Visibility) -> Iterator[LetterEvent]:
    if row.requeued_at:
        words = sight.error(row.note) if row.note != row.evidence else ""
        waits = " No proof of its effect yet." if row.status == Status.REQUEUED else ""
        yield LetterEvent("info", "redo", "Requeued", row.requeued_at, f"{words}.{waits}" if words else waits.strip())


def message_of(row: DeadLetter) -> str:
    """The key of the message that became this letter; empty for a letter of a record."""
    return row.topic_id if not row.topic and is_uuid(row.topic_id) else ""


def _tries(row: DeadLetter, sight: Visibility) -> Iterator[LetterEvent]:
    """Those of its message, before this letter and after; empty once their days are dropped."""
    key = message_of(row)
    for attempt in DeliveryAttempt.objects.filter(message_id=key).newest_first()[:MOST_TRIES] if key else ():
        state = STATES[attempt.outcome or "running"]
        took = f", {(attempt.finished_at - attempt.started_at).total_seconds():.1f} s" if attempt.finished_at else ""
        said = f": {sight.error(attempt.error)}" if attempt.error else ""
        title = f"Try {attempt.number}: {state.word.lower() if attempt.outcome else 'no end yet'}"
        yield LetterEvent(state.tone, state.icon, title, attempt.started_at, f"{attempt.channel}{took}{said}")


def _arrived(row: DeadLetter) -> LetterEvent:
    words = f"failed at the step “{row.step}”"
    return LetterEvent("bad", "octagon", "Became a dead letter", row.created_at, words)


def _relatives(row: DeadLetter) -> dict[UUID, DeadLetter]:
    """The letters next to it, and the others of its record or message: two queries, however many revisions there are.

    A record's have its position, a message's its aggregate, which has an index, and its id.
    """
    about = {"business_key": row.business_key, "topic_id": row.topic_id}
    place = {"topic": row.topic, "partition": row.partition, "offset": row.offset}
    columns = ("pk", "created_at", "revision", "status", "step", "predecessor", "successor")
    near = [pk for pk in (row.predecessor, row.successor) if pk]
    same = about if row.business_key and (not row.topic or row.partition == -1) else place
    queries = [DeadLetter.objects.filter(pk__in=near), DeadLetter.objects.filter(**same).order_by()]
    return {letter.pk: letter for rows in queries for letter in rows.only(*columns)}


def _chain(known: dict[UUID, DeadLetter], row: DeadLetter, link: str) -> Iterator[DeadLetter]:
    """The revisions that follow each other by this link, the nearest first."""
    while (following := known.pop(getattr(row, link), None)) is not None:
        yield following
        row = following


def _revision(letter: DeadLetter, title: str) -> LetterEvent:
    url = reverse("admin:outbox_deadletter_change", args=[letter.pk])
    words = f"{letter.get_status_display().lower()}, failed at the step “{letter.step}”"
    return LetterEvent("idle", "octagon", title, letter.created_at, words, url, "Open it")
