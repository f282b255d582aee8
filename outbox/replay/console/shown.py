"""A letter as the command shows it: with dots for what its flow does not name, or revealed for a reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from django.db import transaction

from config.admin.levers import fault_of_reason, operator_of_terminal
from config.flows import Refusal, mask_of
from config.telemetry.masks import DOTS, masked, masked_error
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.letters.terminal import CHUNK, as_data
from outbox.trail.audit import record
from outbox.trail.reveal import LEAST_REASON, REVEAL


def show(chosen: Filter, options: Mapping[str, Any]) -> Iterator[str]:
    """Everything about the chosen letters; with the option `reveal` what is hidden, too, for the `reason`.

    Raises Refusal for a reason that is none.
    """
    whole = options["reveal"]
    if whole:
        _record(chosen, options["reason"])
    for letter in islice(chosen.letters("show").one_by_one(), CHUNK):
        data = as_data(letter) | ({} if whole else _hidden(letter))
        yield from (f"{name:14}{value}" for name, value in data.items())
        if whole:
            yield from _content(letter)
        yield ""


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


def _content(letter: DeadLetter) -> Iterator[str]:
    if letter.payload is not None:
        yield f"{'payload':14}{bytes(letter.payload).decode('utf-8', 'backslashreplace')[:2000]}"
    yield from (f"{'header':14}{name}: {value}" for name, value in letter.headers)
    yield from letter.traceback.splitlines()


def _record(chosen: Filter, reason: str) -> None:
    """One action about all the letters that are shown."""
    if fault := fault_of_reason(reason, LEAST_REASON):
        raise Refusal(f'--reveal --reason "…": {fault}')
    ids = list(chosen.letters("show").order_by("pk").values_list("pk", flat=True)[:CHUNK])
    with transaction.atomic():
        record(
            operator_of_terminal(), REVEAL, f"{len(ids)} letters", reason=reason, rows=len(ids),
            subject_type="outbox.deadletter", subject_ids=ids,
        )  # fmt: skip
