"""The transactional outbox as the rest of Spillway sees it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, Max, Q

from config.admin import humanize
from config.causes import WAITING, Line, fact
from config.database.clock import database_now
from config.flows import Check, Flow, HomeRow, Reading, Worker
from config.kafka import topic_name
from config.letters import Letters
from config.telemetry.redaction import masked_error
from outbox import verify
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import JobLease, Watermark
from outbox.channels.handlers import handlers, silent_there
from outbox.channels.models import ChannelState
from outbox.delivery.message_letters import MessageLetters
from outbox.home import OutboxNumbers, gauges, home_row, state_fact
from outbox.letters.overview import groups_still_so, letters_diagnosis, letters_ever
from outbox.messages.models import FLOW, DeliveryAttempt, OutboxMessage
from outbox.messages.retention import sweep_keys, sweep_resends
from outbox.notices.incidents import notices_diagnosis
from outbox.processes.overview import processes_diagnosis, still_troubled
from outbox.replay_batches.lifecycle import batches_still_stopped
from outbox.replay_batches.models import ReplayBatch
from outbox.sign_in.passwords import break_glass_diagnosis
from outbox.workers.change_capture import CDC_GROUP, HintLetters


class Outbox(Flow):
    """Messages that were published in a transaction, delivered after it."""

    name = FLOW
    headline = ("messages sent",)

    def workers(self) -> Sequence[Worker]:
        return [Worker("relay_outbox")]

    def readers(self) -> Mapping[str, str]:
        return {topic_name(CDC_GROUP): "listen_outbox"}

    def home_row(self, now: datetime) -> HomeRow | None:
        return home_row(OutboxNumbers(now))

    def still_so(self, kind: str, keys: Collection[str], now: datetime) -> Collection[str]:
        if kind == "failure_group":
            return groups_still_so(keys, now)
        if kind == "worker":
            return still_troubled(keys, now)
        return batches_still_stopped(keys) if kind == "batch" else ()

    def gauges(self, now: datetime) -> Iterator[Reading]:
        return gauges(now)

    def verify(self) -> Iterator[Check]:
        return verify.checks()

    def verify_payloads(self) -> Iterator[Check]:
        return verify.payload_checks()

    def verify_kafka(self) -> Iterator[Check]:
        return verify.kafka_checks()

    def waiting(self) -> Sequence[tuple[str, int]]:
        rows = OutboxMessage.objects.unfinished().order_by("channel").values_list("channel")
        return [(f"{channel} pending", number) for channel, number in rows.annotate(number=Count("pk"))]

    def summary(self) -> Sequence[tuple[str, int]]:
        totals = counters.totals(FLOW)
        return [
            ("messages sent", totals.get("sent", 0)),
            ("tries that failed", sum(totals.get(kind, 0) for kind in ("transient", "unreachable", "ambiguous"))),
            ("dead letters of messages", letters_ever(self.sources())),
        ]

    def diagnose(self) -> Iterator[tuple[str, bool, str]]:
        now = database_now()
        yield Watermark.objects.of_topic(settings.OUTBOX_CDC_TOPIC).diagnosis("change capture", "listen_outbox", now)
        yield from processes_diagnosis(now)
        yield from workers_diagnosis(now)
        yield from channels_diagnosis(now)
        yield from letters_diagnosis(now)
        yield from notices_diagnosis(now)
        yield from break_glass_diagnosis()

    def sweep(self, now: datetime) -> int:
        return sweep_keys(now) + sweep_resends(now)

    def letters(self) -> Sequence[Letters]:
        return [MessageLetters(FLOW), HintLetters(FLOW)]


# -- What doctor asks: do the workers work, and does anything leave by the channels --------------------------
LATE = timedelta(seconds=90)  # the poller's promise
SILENT = timedelta(minutes=5)  # beat has jobs for every minute
ORPHANED = timedelta(minutes=2)  # a worker that lives has renewed its lease
LATELY = timedelta(hours=1)
NEWEST = 1000  # tries that are looked at
ENOUGH = 10  # tries of which one should have been accepted


def workers_diagnosis(now: datetime) -> Iterator[Line]:
    """The workers that report by what they do: the relay, the worker of replay batches, beat."""
    numbers = OutboxNumbers(now)
    since = numbers.neglected_since or now
    waits = f"due messages wait since {humanize.clock_in_zone(since, now)}: is relay_outbox running?"
    said = "no due message waits" if now - since <= LATE else waits
    yield Line("relay", now - since <= LATE, said, fact(WAITING, "relay_outbox"))
    left = _orphaned(now)
    words = f"{humanize.plural(left, 'batch is', 'batches are')} left by its worker: is replay_letters running?"
    said = words if left else "none is left by its worker"
    yield Line("replay batches", not left, said, fact(WAITING, "replay_letters"))
    # `notify_people` leases its look as well, every ten seconds: that says nothing of beat.
    jobs = [entry["task"].rpartition(".")[2] for entry in settings.CELERY_BEAT_SCHEDULE.values()]
    ran = JobLease.objects.filter(token=None, job__in=jobs).aggregate(ran=Max("until"))["ran"]
    if ran is None:
        yield Line("beat", True, "no job has run yet")
    else:
        silent = now - ran > SILENT
        said = f"a job ended {humanize.ago(ran, now)}{': is beat running?' if silent else ''}"
        yield Line("beat", not silent, said, fact(WAITING, "beat"))


def _orphaned(now: datetime) -> int:
    before = now - ORPHANED
    nobody = Q(lease_until__lt=before) | Q(lease_until=None, state="counting", created_at__lt=before)
    return ReplayBatch.objects.filter(nobody, state__in=("counting", "running")).count()


def channels_diagnosis(now: datetime) -> Iterator[Line]:
    """Each channel: is it open, does anybody answer, and has the other side accepted anything lately?"""
    tries = DeliveryAttempt.objects.since(now - LATELY).exclude(outcome="").order_by("-id")
    lately: dict[str, list[tuple[str, str]]] = {}
    for channel, outcome, error in tries.values_list("channel", "outcome", "error")[:NEWEST]:
        lately.setdefault(channel, []).append((outcome, error))
    for state in ChannelState.objects.filter(name__in=handlers()).order_by("name"):
        trouble = _trouble(state, lately.get(state.name, []))
        closed = (
            state_fact(state, paused=state.paused)
            if state.paused or state.breaker == ChannelState.Breaker.OPEN
            else None
        )
        yield Line(f"channel {state.name}", not trouble, trouble or "open", closed)


def _trouble(state: ChannelState, tries: list[tuple[str, str]]) -> str:
    if state.paused:
        return f"paused: {state.pause_reason}"
    if state.breaker == ChannelState.Breaker.OPEN:
        return f"nobody answers: {silent_there(state.name, masked_error(state.last_error))}"
    if len(tries) < ENOUGH or any(outcome == "sent" for outcome, _ in tries):
        return ""
    (outcome, error), _number = Counter(tries).most_common(1)[0]
    return (
        f"accepts nothing: of the last {len(tries):,} tries none was sent, most often {outcome}: {masked_error(error)}"
    )
