"""The command `replay_topic`: its arguments, its progress, its result."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from config.admin import humanize
from config.admin.levers import NO_REASON, fault_of_reason, operator_of_terminal
from config.flows import Refusal
from config.kafka.client import KafkaError
from outbox.replay.journal import COUNTS, Journal
from outbox.replay.models import TopicReplay
from outbox.replay.requests import LEAST_REASON, cancel, moment, request, span
from outbox.replay.run import carry_out, fail

Say = Callable[[str], Any]
EVERY = 2.0  # seconds between two lines of progress
LABELS = {"already": "already applied", "outside": "older than retention"}


def replay(topic: str, options: dict[str, Any], stop: threading.Event, say: Say) -> Iterator[str]:
    """Request a replay and carry it out; yields the result line by line. Raises Refusal or KafkaError."""
    since, until = (_moment(options[name], f"--{name}", say) for name in ("from", "to"))
    operator = operator_of_terminal()
    token = uuid.uuid4()
    slack, reason = span(options["slack"]), _reason(options["reason"], say)
    found = request(topic, since, until, slack, operator, reason, dry_run=options["dry_run"], token=token)
    try:
        ended = carry_out(found, token, stop, ProgressPrinter(say))
    except (Refusal, KafkaError) as error:
        fail(found, str(error))
        raise
    found.refresh_from_db()
    if not ended and stop.is_set():
        cancel([found.pk], operator, "interrupted")
    yield from account(found)
    if not ended:
        raise Refusal(f"the replay was not finished; what was applied stays ({found.note or 'interrupted'})")
    if not found.read:
        raise Refusal(f"{found.topic}: no record between {since:%FT%TZ} and {until:%FT%TZ}")


def account(found: TopicReplay) -> Iterator[str]:
    """Counts of records, one line each, and what they mean."""
    for name in COUNTS:
        yield f"{LABELS.get(name, name):24}{getattr(found, name):>12,}"
    missing = found.applied + found.parked
    if found.dry_run:
        yield "Dry run: nothing was changed."
    elif found.read and not missing:
        yield "Nothing was missing: nothing has changed."


class ProgressPrinter:
    """Percent, rate and time to go, on one line every two seconds."""

    def __init__(self, say: Say) -> None:
        self.say = say
        self.started = self.said = time.monotonic()

    def __call__(self, journal: Journal) -> None:
        now = time.monotonic()
        if now - self.said < EVERY:
            return
        self.said = now
        elapsed, done, total = now - self.started, journal.looked_at, journal.replay.total
        rate = done / elapsed
        left = f", {humanize.length((total - done) / rate, coarse=True)} to go" if rate else ""
        percent = 100 * done / total if total else 100
        self.say(f"{percent:3.0f} %   {journal.counts['read']:,} read, {rate:,.0f}/s{left}")


def _reason(text: str, say: Say) -> str:
    """As long as the admin asks for; scripts may go without one, and the trail says so."""
    if not text.strip():
        say(f'no --reason "…": it is recorded as "{NO_REASON}"')
        return NO_REASON
    if fault := fault_of_reason(text, LEAST_REASON):
        raise Refusal(f"--reason: {fault}")
    return text


def _moment(text: str, option: str, say: Say) -> Any:
    try:
        when, assumed = moment(text)
    except Refusal as refusal:
        raise Refusal(f"{option}: {refusal}") from None
    if assumed:
        say(f"{option} {text} names no zone: taken as UTC")
    return when
