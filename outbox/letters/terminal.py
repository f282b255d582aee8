"""The command `dead_letters`: selects, lists, shows letters, and pulls the admin's levers on them."""

from __future__ import annotations

import base64
import getpass
import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from config.admin.levers import fault_of_reason
from config.flows import Refusal, flows
from outbox.bookkeeping.audit import Operator
from outbox.letters.levers import LEASTS, discard, requeue, resolve
from outbox.letters.models import DeadLetter, FailureGroup
from outbox.letters.queries import DeadLetterQuerySet

CHUNK = 500


@dataclass(frozen=True)
class Selection:
    """Letters by id, or all that match group and source."""

    ids: Sequence[str]
    group: int | None
    source: str | None
    all: bool = False

    @property
    def names_nothing(self) -> bool:
        """Neither letters nor a filter: a slip must not show, or discard, thousands."""
        return not (self.ids or self.group is not None or self.source or self.all)

    def check(self) -> None:
        """Raises ValueError for a letter, a group or a source that does not exist."""
        wanted = [_uuid(text) for text in self.ids]
        known = set(DeadLetter.objects.filter(pk__in=wanted).values_list("pk", flat=True))
        for letter_id in wanted:
            if letter_id not in known:
                raise ValueError(f"{letter_id}: no such dead letter")
        if self.group is not None and not FailureGroup.objects.filter(pk=self.group).exists():
            raise ValueError(f"--group {self.group}: no such failure group")
        sources = [source for flow in flows() for source in flow.sources()]
        if self.source and self.source not in sources and not DeadLetter.objects.of_source(self.source).exists():
            raise ValueError(f"--source {self.source}: no such source (known: {', '.join(sorted(sources))})")

    def letters(self) -> DeadLetterQuerySet:
        """Raises ValueError for something that is no letter id."""
        found = DeadLetter.objects.order_by("id")
        if self.ids:
            found = found.filter(pk__in=[_uuid(text) for text in self.ids])
        if self.group is not None:
            found = found.of_group(self.group)
        return found.of_source(self.source) if self.source else found


def _uuid(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise ValueError(f"{text}: not the id of a dead letter") from None


def list_lines(selection: Selection, as_json: bool) -> Iterator[str]:
    """One line a letter: JSON for every status, or a table of the open ones."""
    letters = selection.letters() if as_json else selection.letters().open()
    shown = 0
    for letter in letters.iterator(CHUNK):
        shown += 1
        yield json.dumps(as_data(letter)) if as_json else _line(letter)
    if not shown and not as_json:
        yield "No open dead letters."


def as_data(letter: DeadLetter) -> dict[str, Any]:
    """A letter as CONTRACT names its fields; the payload base64-encoded, null for a tombstone."""
    payload = None if letter.payload is None else base64.b64encode(bytes(letter.payload)).decode()
    cause = {"source": letter.source, "step": letter.step, "reason": letter.reason, "error": letter.error}
    state = {"group": letter.group_id, "status": letter.status}
    position = {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset}
    data = {"key": _text(letter.key), "payload_b64": payload, "created_at": letter.created_at.isoformat()}
    more = {"revision": letter.revision, "business_key": letter.business_key, "note": letter.note}
    whole = {"payload_size": letter.payload_size, "payload_sha256": letter.payload_sha256} if letter.is_excerpt else {}
    return {"id": str(letter.pk), **cause, **state, **position, **data, **more, **whole}


def show(selection: Selection) -> Iterator[str]:
    """Everything about the selected letters, payload included."""
    for letter in selection.letters()[:CHUNK]:
        for name, value in as_data(letter).items():
            yield f"{name:14}{value}"
        if letter.payload is not None:
            yield f"{'payload':14}{bytes(letter.payload).decode('utf-8', 'backslashreplace')[:2000]}"
        yield from letter.traceback.splitlines()
        yield ""


def act(verb: str, selection: Selection, reason: str, *, dry_run: bool) -> str:
    """Pull a lever on every open letter selected; returns the result as text.

    Raises ValueError without a reason as long as the admin asks for, and when every letter named is closed already.
    """
    letters = selection.letters().open()
    if dry_run:
        return f"would {verb} {letters.count()} open letters; nothing was changed"
    if fault := fault_of_reason(reason, LEASTS[verb]):
        raise ValueError(f'--reason "…": {fault}')
    if selection.ids and not letters.exists():
        raise ValueError(f"nothing to {verb}: {'; '.join(f'{row.pk} is {row.status}' for row in selection.letters())}")
    operator = Operator(f"{getpass.getuser()}, by command")
    done = 0
    refused: list[tuple[Any, str]] = []
    ids = list(letters.values_list("pk", flat=True))
    for start in range(0, len(ids), CHUNK):
        part = ids[start : start + CHUNK]
        if verb == "requeue":
            result = requeue(part, operator, reason)
            done += result.requeued
            refused += result.refused
        else:
            done += _close_each(discard if verb == "discard" else resolve, part, operator, reason, refused)
    words = {"requeue": "requeued", "discard": "discarded", "resolve": "resolved"}
    lines = [
        f"{done} letters {words[verb]}",
        *[f"refused {getattr(letter, 'pk', letter)}: {why}" for letter, why in refused],
    ]
    return "\n".join(lines)


def _close_each(
    lever: Callable[..., int],
    ids: Sequence[uuid.UUID],
    operator: Operator,
    reason: str,
    refused: list[tuple[Any, str]],
) -> int:
    """Pull a closing lever on each letter alone, so that one refusal spares the others."""
    done = 0
    for letter_id in ids:
        try:
            done += lever([letter_id], operator, reason)
        except Refusal as refusal:
            refused.append((letter_id, str(refusal)))
    return done


def _line(letter: DeadLetter) -> str:
    return f"{letter.pk}  {letter.created_at:%F %T}  {letter.source}  {letter.reason}  {letter.business_key or letter.position}"


def _text(key: bytes | memoryview | None) -> str | None:
    return None if key is None else bytes(key).decode("utf-8", "backslashreplace")
