"""The command `dead_letters`: lists and shows letters."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from config.telemetry.visible import on_one_line
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter

CHUNK = 500


def list_lines(chosen: Filter, as_json: bool) -> Iterator[str]:
    """One line a letter: JSON for every status, or a table of the open ones, unless a status is asked for."""
    letters = chosen.letters("list").order_by("pk")
    letters = letters if as_json or chosen.status else letters.filter(status="open")
    shown = 0
    for letter in letters.one_by_one():
        shown += 1
        yield json.dumps(as_data(letter)) if as_json else _line(letter)
    if not shown and not as_json:
        yield f"No {chosen.status or 'open'} dead letters."


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


def _line(letter: DeadLetter) -> str:
    key = on_one_line(letter.business_key or letter.position)
    return f"{letter.pk}  {letter.created_at:%F %T}  {letter.source}  {letter.reason}  {key}"


def _text(key: bytes | memoryview | None) -> str | None:
    return None if key is None else bytes(key).decode("utf-8", "backslashreplace")
