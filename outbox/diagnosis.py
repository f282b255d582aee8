"""What `doctor` asks of the outbox: do its workers work, and does anything leave by its channels?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db.models import Max, Q

from config.admin import humanize
from config.telemetry.redaction import masked_error
from outbox.bookkeeping.models import JobLease
from outbox.channels.handlers import handlers
from outbox.channels.models import ChannelState
from outbox.messages.models import DeliveryAttempt
from outbox.picture import Numbers
from outbox.replay_batches.models import ReplayBatch

LATE = timedelta(seconds=90)  # the poller's promise
SILENT = timedelta(minutes=5)  # beat has jobs for every minute
ORPHANED = timedelta(minutes=2)  # a worker that lives has renewed its lease
LATELY = timedelta(hours=1)
NEWEST = 1000  # tries that are looked at
ENOUGH = 10  # tries of which one should have been accepted

Line = tuple[str, bool, str]


def workers_diagnosis(now: datetime) -> Iterator[Line]:
    """The workers that report by what they do: the relay, the worker of replay batches, beat."""
    numbers = Numbers(now)
    closed = {state.name for state in numbers.channels if state.paused or state.breaker == ChannelState.Breaker.OPEN}
    opened = {state.name: state.open_since or now for state in numbers.channels if state.name not in closed}
    firsts = {name: due for name, due in numbers.first_due.items() if name not in closed}
    since = min((max(due, opened.get(name, due)) for name, due in firsts.items()), default=now)
    waits = f"due messages wait since {humanize.clock_in_zone(since, now)}: is relay_outbox running?"
    yield "relay", now - since <= LATE, "no due message waits" if now - since <= LATE else waits
    left = _orphaned(now)
    words = f"{humanize.plural(left, 'batch is', 'batches are')} left by its worker: is replay_letters running?"
    yield "replay batches", not left, words if left else "none is left by its worker"
    ran = JobLease.objects.filter(token=None).aggregate(ran=Max("until"))["ran"]
    if ran is None:
        yield "beat", True, "no job has run yet"
    else:
        silent = now - ran > SILENT
        yield "beat", not silent, f"a job ended {humanize.ago(ran, now)}{': is beat running?' if silent else ''}"


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
        yield f"channel {state.name}", not trouble, trouble or "open"


def _trouble(state: ChannelState, tries: list[tuple[str, str]]) -> str:
    if state.paused:
        return f"paused: {state.pause_reason}"
    if state.breaker == ChannelState.Breaker.OPEN:
        return f"nobody answers: {masked_error(state.last_error)}"
    if len(tries) < ENOUGH or any(outcome == "sent" for outcome, _ in tries):
        return ""
    (outcome, error), _number = Counter(tries).most_common(1)[0]
    return (
        f"accepts nothing: of the last {len(tries):,} tries none was sent, most often {outcome}: {masked_error(error)}"
    )
