"""A letter as the command shows it: with dots for what its flow does not name, or revealed for a reason."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import transaction

from config.admin.levers import fault_of_reason, operator_of_terminal
from config.flows import Refusal, mask_of
from config.kafka.format.headers import shown
from config.telemetry.masks import DOTS, masked, masked_error
from config.telemetry.visible import on_one_line
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.letters.terminal import CHUNK, as_data
from outbox.trail.audit import record
from outbox.trail.reveal import LEAST_REASON, REVEAL

CUT = "Only the first {} letters are shown: narrow it by --group, --source, --status, --before or ids."


def show(chosen: Filter, options: Mapping[str, Any]) -> Iterator[str]:
    """Everything about the chosen letters; with the option `reveal` what is hidden, too, for the `reason`.

    Raises Refusal for a reason that is none, and behind the last letter when there are more than are shown.
    """
    whole = options["reveal"]
    if whole and (fault := fault_of_reason(options["reason"], LEAST_REASON)):
        raise Refusal(f'--reveal --reason "…": {fault}')
    rows = chosen.letters("show")
    ids = list(rows.order_by("pk").values_list("pk", flat=True)[: CHUNK + 1])
    if whole:
        _record(ids[:CHUNK], options["reason"])
    for letter in islice(rows.filter(pk__in=ids).one_by_one(), CHUNK):
        data = as_data(letter) | (_revealed(letter) if whole else _hidden(letter))
        yield from [json.dumps(data)] if options["json"] else [*_lines(data), ""]
    if len(ids) > CHUNK:
        raise Refusal(CUT.format(CHUNK))


def record_export(chosen: Filter, reason: str) -> None:
    """`list --json` writes payloads out: one action says who did, and of which letters."""
    with transaction.atomic():
        record(
            operator_of_terminal(), "export", f"Dead letters: {chosen.words()}", reason=reason,
            detail={"filter": chosen.stored()}, rows=len(chosen.ids), subject_type="outbox.deadletter",
            subject_ids=chosen.ids,
        )  # fmt: skip


def _hidden(letter: DeadLetter) -> dict[str, Any]:
    """What of a letter is masked, as its page masks it."""
    texts = {"error": masked_error(letter.error), "note": masked_error(letter.note), "key": letter.key and DOTS}
    return texts | {"payload_b64": DOTS, "payload": masked(letter.payload, *mask_of(letter.source))}


def _revealed(letter: DeadLetter) -> dict[str, Any]:
    payload = None if letter.payload is None else bytes(letter.payload).decode("utf-8", "backslashreplace")
    return {"payload": payload, "headers": letter.headers, "traceback": letter.traceback}


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    """For people: one field a line, a header each, and of a long payload what fits on a screen."""
    several = {"headers", "traceback"}
    yield from (f"{name:14}{on_one_line(value)}" for name, value in data.items() if name not in {*several, "payload"})
    if data["payload"] is not None:
        yield f"{'payload':14}{data['payload'][:2000]}"
    headers = shown(data.get("headers", ()))
    yield from (f"{'header':14}{on_one_line(f'{name}: {value}')}" for name, value in headers)
    yield from data.get("traceback", "").splitlines()


def _record(ids: Sequence[UUID], reason: str) -> None:
    """One action about all the letters that are shown."""
    with transaction.atomic():
        record(
            operator_of_terminal(), REVEAL, f"{len(ids)} letters", reason=reason, rows=len(ids),
            subject_type="outbox.deadletter", subject_ids=ids,
        )  # fmt: skip
