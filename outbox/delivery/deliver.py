"""Delivery: sends claimed messages in the order of their aggregates, within the lease, and settles each outcome."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.conf import settings

from config.database.queries import batched
from config.fields import storable
from config.processes.worker import awaited_at_the_end
from config.telemetry import metrics, tracing
from config.telemetry.logs import log
from config.telemetry.redaction import error_text, masked_error, trace_of, without_addresses
from outbox.channels.handlers import Message, MessageHandler, Outcome, send_budget
from outbox.delivery.candidates import in_waves
from outbox.delivery.claim import Claim
from outbox.delivery.settle import LONGEST_RECEIPT, Call, Settlement, open_attempts, release, settle
from outbox.letters.burial import LONGEST_ERROR

MOST_LINKS = 25  # of a call with many messages: a link costs 13 us, and such a message 70


@dataclass
class DeliveryRun:
    """The delivery of one claim. `released`: messages given back; `blocked`: aggregates with a message not sent."""

    claim: Claim
    handler: MessageHandler
    stop: threading.Event
    sent: int = 0
    halt: str = ""
    released: list[tuple[Message, datetime]] = field(default_factory=list)
    blocked: dict[str, datetime] = field(default_factory=dict)
    tried: list[Message] = field(default_factory=list)

    def run(self) -> int:
        """Send what can be sent; returns how many were accepted."""
        try:
            for wave in in_waves(self.claim.messages):
                for chunk in batched(self._unblocked(wave), self.handler.chunk):
                    if self._must_stop():
                        return self.sent
                    self._send(chunk)
        finally:
            # Also after an error: what was not tried must not wait for the end of the lease.
            if len(self.tried) < len(self.claim.messages):
                self._release_untried()
        return self.sent

    def _release_untried(self) -> None:
        """Those behind one that was not sent with the time they wait for, the others as they were."""
        done = {message.id for message in [*self.tried, *(message for message, _ in self.released)]}
        rest = [(message, message.available_at) for message in self.claim.messages if message.id not in done]
        why = self.halt or "an earlier message of the aggregate waits"
        release(self.claim, [*self.released, *rest], why, self.stop)

    def _unblocked(self, wave: Sequence[Message]) -> Sequence[Message]:
        if not self.blocked:
            return wave
        free: list[Message] = []
        for message in wave:
            until = None if message.times_revived else self.blocked.get(message.aggregate)
            if until is None:
                free.append(message)
            else:
                self.released.append((message, max(until, message.available_at)))
        return free

    def _must_stop(self) -> bool:
        if not self.halt and self.stop.is_set():
            self.halt = "the worker stops"
        if not self.halt and self.claim.lease_left < send_budget(self.handler):
            self.halt = "the lease is nearly over"
        return bool(self.halt)

    def _send(self, chunk: Sequence[Message]) -> None:
        claim, handler = self.claim, self.handler
        started = claim.clock()
        screened = handler.screen(chunk)
        opened: dict[uuid.UUID, str] | None = None
        if handler.opens_attempts:
            opened = open_attempts(claim, chunk, started, self.stop)
            if len(opened) < len(chunk):
                chunk = self._without_lost(chunk, opened)
        # It may have taken long. What is not tried after all is released, and its attempt with it.
        if not chunk or self._must_stop():
            return
        self.tried += chunk
        before = time.perf_counter()
        with awaited_at_the_end(handler.timeout) if opened else nullcontext():
            outcomes = call(handler, chunk, screened)
        metrics.DELIVERY_SECONDS.labels(claim.channel).observe(time.perf_counter() - before)
        results = list(zip(chunk, outcomes, strict=True))
        settlement = settle(claim, handler, Call(results, started, opened), self.stop)
        self._learn(results, settlement)

    def _without_lost(self, chunk: Sequence[Message], opened: Mapping[uuid.UUID, str]) -> Sequence[Message]:
        """Those whose attempt is on record. Another worker decides about the others, and so about those after them."""
        for message in chunk:
            if message.id not in opened:
                self.tried.append(message)
                self.blocked[message.aggregate] = message.available_at
        return [message for message in chunk if message.id in opened]

    def _learn(self, results: Sequence[tuple[Message, Outcome]], settlement: Settlement) -> None:
        self.halt = self.halt or settlement.halt
        if all(outcome.ok for _, outcome in results):
            self.sent += len(results)
            return
        for message, outcome in results:
            after = settlement.next_states.get(message.id)
            if outcome.ok:
                self.sent += 1
            elif after is not None and not after.ends and not message.times_revived:
                self.blocked[message.aggregate] = after.available_at
            elif after is None:
                # Another worker holds this message now, and so decides about those after it.
                self.blocked[message.aggregate] = message.available_at


def deliver(claim: Claim, handler: MessageHandler, stop: threading.Event) -> int:
    """Deliver a claim outside any transaction; returns how many messages were accepted."""
    return DeliveryRun(claim, handler, stop).run() if claim.messages else 0


def call(
    handler: MessageHandler, chunk: Sequence[Message], screened: Mapping[uuid.UUID, Outcome] | None = None
) -> list[Outcome]:
    """One outcome a message, also when the handler raises; screened messages are not tried."""
    if screened:
        tried = [message for message in chunk if message.id not in screened]
        outcomes = iter(call(handler, tried) if tried else ())
        return [screened.get(message.id) or next(outcomes) for message in chunk]
    calls = handler.per_call(chunk)
    if len(calls) == 1:
        return _traced(handler, chunk)
    with ThreadPoolExecutor(len(calls), thread_name_prefix=f"{handler.name}-send") as pool:
        done = [pool.submit(_traced, handler, messages) for messages in calls]
    return [outcome for one in done for outcome in one.result()]


def _traced(handler: MessageHandler, chunk: Sequence[Message]) -> list[Outcome]:
    """One message goes on with the trace that it was promised in; several in one call are links of a span of their own."""
    name, first = f"deliver {handler.name}", chunk[0]
    if len(chunk) > 1:
        links = (message.traceparent for message in chunk[:MOST_LINKS])
        with tracing.span(name, "", links=links, kind="consumer", messages=len(chunk)):
            outcomes = _guarded(handler, chunk)
            if failed := Counter(outcome.kind for outcome in outcomes if not outcome.ok):
                tracing.annotate(failed=failed.total())
                tracing.fail(failed.most_common(1)[0][0])
            return outcomes
    with tracing.span(name, first.traceparent, kind="consumer", message_id=str(first.id), attempt=first.attempts):
        outcomes = _guarded(handler, chunk)
        tracing.annotate(outcome=outcomes[0].kind)
        if not outcomes[0].ok:
            tracing.fail(outcomes[0].kind)
        return outcomes


def _guarded(handler: MessageHandler, chunk: Sequence[Message]) -> list[Outcome]:
    try:
        outcomes = list(handler.send(chunk))
        if len(outcomes) != len(chunk):
            raise TypeError(f"{len(outcomes)} outcomes for {len(chunk)} messages")
    except Exception as error:  # noqa: BLE001 (the outcome is `when_broken`, whatever was raised)
        # What it stumbled over may be the mail. Pages mask it; more people read a log.
        log.error("handler_failed", channel=handler.name, exception=trace_of(error, masked_error))
        text = f"{type(error).__name__}: {without_addresses(error_text(error))}"[:500]
        outcomes = [Outcome(handler.when_broken, text) for _ in chunk]
    return [_storable(outcome) for outcome in outcomes]


def _storable(outcome: Outcome) -> Outcome:
    """What the other side said, as columns take it: without NUL, and without a wait for centuries."""
    asked = (outcome.retry_after, outcome.least_wait, outcome.retries_last)
    retry_after, least_wait, retries_last = (min(max(0.0, wait), settings.OUTBOX_EXPIRES_SECONDS) for wait in asked)
    return replace(
        outcome,
        error=storable(outcome.error, LONGEST_ERROR),
        receipt=storable(outcome.receipt, LONGEST_RECEIPT),
        reason=storable(outcome.reason, 100),
        retry_after=retry_after,
        least_wait=least_wait,
        retries_last=retries_last,
    )
