"""The outbox in numbers: for /metrics, and as home draws it, with what needs a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, partial
from typing import get_args

from django.conf import settings
from django.urls import reverse
from django.utils.text import Truncator

from config.admin import humanize
from config.causes import BREAKER, KAFKA_BREAKER, PAUSED, WAITING, Fact, fact
from config.flows import HomeRow, Need, Reading, Stage
from config.kafka import topic_name
from config.letters import Tone
from config.telemetry import metrics
from config.telemetry.redaction import masked_error
from outbox.bookkeeping import progress
from outbox.bookkeeping.models import UNSEEN
from outbox.bookkeeping.progress import LONG, Progress, Trends, away_need, position_needs
from outbox.channels.handlers import Kind, handlers, silent_there
from outbox.channels.kafka import KafkaHandler
from outbox.channels.models import ChannelState
from outbox.channels.permits import ITSELF
from outbox.delivery.candidates import find_due
from outbox.letters import overview
from outbox.letters.overview import letter_counts, letter_needs, rising_needs
from outbox.messages.models import FLOW, IdempotencyKey, OutboxMessage
from outbox.notices.incidents import notice_gauges
from outbox.processes import overview as processes
from outbox.replay_batches.lifecycle import batch_needs
from outbox.sign_in.passwords import break_glass_needs
from outbox.workers.change_capture import CDC_GROUP, cdc_lag

# -- Numbers of the outbox for home and /metrics -------------------------------------------------------------
# Counters, and bounded look-ups in the small partial indexes.
MOST = 100_000


def gauges(now: datetime) -> Iterator[Reading]:
    """What /metrics says of the outbox."""
    numbers = OutboxNumbers(now)
    yield Reading(metrics.OUTBOX_PENDING, numbers.pending)
    yield Reading(metrics.OUTBOX_STUCK, numbers.stuck)
    yield Reading(metrics.OUTBOX_HELD, len(numbers.held))
    yield Reading(metrics.KEYS_OVERDUE, numbers.keys_overdue.total_seconds())
    if numbers.cdc_lag is not None:
        yield Reading(metrics.CDC_LAG, numbers.cdc_lag)
    for name in numbers.channel_names:
        waited = now - numbers.first_due.get(name, now)
        yield Reading(metrics.OUTBOX_OLDEST_PENDING, waited.total_seconds(), {"channel": name})
    for state in numbers.channels:
        yield Reading(metrics.CHANNEL_CLOSED, bool(state.why_closed(now)), {"channel": state.name})
        yield Reading(metrics.BREAKER_OPEN, state.breaker == ChannelState.Breaker.OPEN, {"channel": state.name})
        by_itself = state.paused and state.paused_by == ITSELF.name
        yield Reading(metrics.CHANNEL_PAUSED, by_itself, {"channel": state.name, "by": "spillway"})
        yield Reading(metrics.CHANNEL_PAUSED, state.paused and not by_itself, {"channel": state.name, "by": "person"})
    yield from overview.gauges([FLOW])
    yield from processes.gauges(now)
    yield from notice_gauges(now)
    yield from progress.gauges(numbers.progress)


@dataclass
class OutboxNumbers(Trends):
    """The numbers of one page or scrape; each is read once."""

    names: Sequence[str] = (FLOW,)
    channel_names: Sequence[str] = field(default_factory=lambda: sorted(handlers()))

    @cached_property
    def pending(self) -> int:
        return OutboxMessage.objects.pending().order_by()[:MOST].count()

    @cached_property
    def first_due(self) -> dict[str, datetime]:
        """When the message of each channel became due that has been waiting longest there."""
        return {
            name: first
            for name in self.channel_names
            for first in find_due(OutboxMessage.objects.due(name, self.now).values_list("available_at", flat=True)[:1])
        }

    @property
    def due_since(self) -> datetime | None:
        return min(self.first_due.values(), default=None)

    @property
    def overdue(self) -> timedelta:
        return max(timedelta(0), self.now - self.due_since) if self.due_since else timedelta(0)

    @property
    def neglected_since(self) -> datetime | None:
        """Since when a message could have been sent: none behind a closed channel, and from when that opened on."""
        closed = {state.name for state in self.channels if state.why_closed(self.now) or self.stands(state)}
        opened = {state.name: state.open_since for state in self.channels}
        due = {name: first for name, first in self.first_due.items() if name not in closed}
        return min((max(first, opened.get(name) or first) for name, first in due.items()), default=None)

    def throttled_since(self, state: ChannelState) -> datetime | None:
        """Since when a message waits for longer than an hour because the other side says so; None where none does.

        One look a wait tells whether the limit has ended: shortly after its end the channel counts as told to wait.
        """
        due = self.first_due.get(state.name)
        told = state.wait_until and state.wait_until > self.now - LATE
        return due if told and due and self.now - due > THROTTLED_FOR else None

    @cached_property
    def processing(self) -> int:
        return OutboxMessage.objects.filter(state="processing").order_by()[:MOST].count()

    @cached_property
    def stuck(self) -> int:
        """Messages whose lease ran out a minute ago, and that recovery has not found."""
        return OutboxMessage.objects.lost(self.now - timedelta(seconds=60)).order_by()[:MOST].count()

    @cached_property
    def uncertain(self) -> list[datetime]:
        """When each uncertain message is (or was) to be decided, oldest first; at most a thousand."""
        messages = OutboxMessage.objects.uncertain().order_by("available_at")
        return list(messages.values_list("available_at", flat=True)[:1000])

    @property
    def refusals_burst(self) -> bool:
        """Whether over 20 tries of the last ten minutes were refused for good, and over a tenth of all: somebody gets up."""
        refused, tries = (sum(self.history(*kinds, minutes=10)) for kinds in (["permanent"], get_args(Kind)))
        return refused > 20 and refused > 0.1 * tries

    @property
    def held(self) -> list[datetime]:
        """Uncertain messages whose time is over: they wait for a person."""
        return [at for at in self.uncertain if at < self.now - timedelta(seconds=60)]

    @property
    def keys_overdue(self) -> timedelta:
        """How late the daily sweep of keys is."""
        oldest = IdempotencyKey.objects.order_by("created_at").values_list("created_at", flat=True).first()
        window = timedelta(days=settings.OUTBOX_IDEMPOTENCY_DAYS)
        return max(timedelta(0), self.now - oldest - window) if oldest else timedelta(0)

    @cached_property
    def channels(self) -> list[ChannelState]:
        return list(ChannelState.objects.order_by("name"))

    @cached_property
    def progress(self) -> Progress:
        return Progress.of(topic_name(CDC_GROUP), [topic_name(settings.OUTBOX_CDC_TOPIC)], self.now)

    @cached_property
    def kafka_away(self) -> datetime | None:
        """Since when Kafka does not answer: also where nothing listens to a topic, a channel may lead there."""
        return progress.kafka_away(self.now)

    def stands(self, state: ChannelState) -> bool:
        """Whether the channel leads to Kafka, and that does not answer."""
        return bool(self.kafka_away) and isinstance(handlers().get(state.name), KafkaHandler)

    @cached_property
    def cdc_lag(self) -> float | None:
        """Seconds; None while no listener was ever started."""
        return cdc_lag(self.now) if self.progress.rows else None


# -- The outbox as home draws it -----------------------------------------------------------------------------
# Written, found by two paths, delivered by channels; and what needs a person.
LETTERS = ("parked", "buried", "given_up", "expired")  # counters of what became a letter
LATE = timedelta(seconds=90)  # the poller's promise
LATELY = timedelta(minutes=10)  # in which a group of the burst got a letter
THROTTLED_FOR = timedelta(hours=1)  # as long as one wait for a quota; who sends too fast for a moment waits less
LIST = "admin:outbox_outboxmessage_changelist"
CHANNELS = "admin:outbox_channelstate_changelist"
OPEN = ChannelState.Breaker.OPEN


def home_row(numbers: OutboxNumbers) -> HomeRow:
    """Home's row of the outbox."""
    return HomeRow(
        name="Outbox",
        purpose="What was promised arrives",
        stages=_stages(numbers),
        needs=list(_needs(numbers)),
        **letter_counts([FLOW]),
        letters_last_hour=numbers.in_last_hour(*LETTERS),
        url=reverse(LIST),
        letters_url=reverse("admin:outbox_failuregroup_changelist"),
    )


# -- Stages ------------------------------------------------------------------------------------------------
def _stages(numbers: OutboxNumbers) -> Sequence[Stage | Sequence[Stage]]:
    channels = [_channel(numbers, state) for state in numbers.channels]
    middle: list[Stage | Sequence[Stage]] = [channels if len(channels) > 1 else channels[0]] if channels else []
    return [_outbox(numbers), [_capture(numbers), _poller(numbers)], _deliver(numbers), *middle, _sent(numbers)]


def _outbox(numbers: OutboxNumbers) -> Stage:
    late = numbers.overdue > LATE
    age = f"oldest {humanize.length(numbers.overdue.total_seconds())}" if numbers.due_since else "nothing is due"
    value, url = humanize.bounded(numbers.pending, MOST - 1), reverse(LIST) + "?state=pending"
    stage = partial(Stage, "Outbox", value, "pending", [age], url)
    return stage("warn", "Waiting") if late else stage()


def _capture(numbers: OutboxNumbers) -> Stage:
    url = numbers.progress.url
    lag = numbers.cdc_lag
    if lag is None:
        return Stage("Change capture", "off", "", url=url)
    if numbers.progress.away:
        return Stage("Change capture", humanize.UNKNOWN, "", url=url, tone="bad", word="No answer")
    stopped, late = (bool(numbers.progress.stopped), lag > settings.OUTBOX_GRACE_SECONDS or numbers.progress.unseen)
    tone: Tone = "bad" if stopped else "warn" if late else "idle"
    word = "Stopped" if stopped else "Behind" if late else ""
    return Stage("Change capture", f"{humanize.length(lag)}", "behind", url=url, tone=tone, word=word)


def _poller(numbers: OutboxNumbers) -> Stage:
    grace = settings.OUTBOX_GRACE_SECONDS
    waits = numbers.cdc_lag is not None and numbers.cdc_lag <= grace and not numbers.progress.unseen
    return Stage("Poller", f"{grace:g} s" if waits else "at once", "behind capture" if waits else "", url=reverse(LIST))


def _deliver(numbers: OutboxNumbers) -> Stage:
    stuck = numbers.stuck
    return Stage(
        "Deliver",
        humanize.bounded(numbers.processing, MOST - 1),
        "in work",
        [f"{stuck:,} stuck" if stuck else "none stuck", f"{len(numbers.uncertain):,} uncertain"],
        reverse(LIST) + "?state=processing",
        tone="warn" if stuck else "idle",
        word="Stuck" if stuck else "",
        trend=numbers.history("transient", "unreachable", "throttled", "ambiguous")[:-1],
    )


def _channel(numbers: OutboxNumbers, state: ChannelState) -> Stage:
    url = reverse("admin:outbox_channelstate_change", args=[state.pk])
    if state.paused:
        return Stage(state.name, "0", "/s", [Truncator(state.pause_reason).chars(20)], url, tone="bad", word="Paused")
    if numbers.stands(state):
        return Stage(state.name, humanize.UNKNOWN, "", ["nobody answers"], url, tone="bad", word="No answer")
    if state.breaker == OPEN:
        return Stage(state.name, "0", "/s", ["nobody answers"], url, tone="bad", word="Breaker")
    if state.why_closed(numbers.now):
        return Stage(state.name, "0", "/s", ["told to wait"], url, tone="warn", word="Waits")
    return Stage(state.name, "sending", "", ["breaker closed"], url)


def _sent(numbers: OutboxNumbers) -> Stage:
    trend = numbers.history("sent")
    today = numbers.in_last_hour("sent")
    value, url = humanize.rate(numbers.per_second(trend)), reverse(LIST) + "?state=sent"
    return Stage("Sent", value, "/s", [f"{today:,} in 1 h"], url, trend=trend[:-1])


# -- Needs -------------------------------------------------------------------------------------------------
def _needs(numbers: OutboxNumbers) -> Iterator[Need]:
    yield from processes.process_needs(numbers.now)
    yield from break_glass_needs(numbers.now)
    yield from position_needs(numbers.progress, "Change capture", "listen_outbox", [FLOW])
    yield from letter_needs([FLOW], ["deliver"] if numbers.refusals_burst else (), numbers.now - LATELY)
    yield from rising_needs(numbers.now)
    yield from batch_needs(numbers.now)
    troubled = [state for state in numbers.channels if state.paused or state.breaker == OPEN or numbers.stands(state)]
    for state in troubled:
        if (away := numbers.kafka_away) and not state.paused and numbers.stands(state):
            yield away_need(away, numbers.now)
        if state.paused:
            yield _closed_channel(numbers, state, paused=True)
        if state.breaker == OPEN:
            yield _closed_channel(numbers, state, paused=False)
    for state in numbers.channels:
        since = numbers.throttled_since(state)
        if since and state not in troubled:
            yield _throttled(numbers, state, since)
    if numbers.stuck:
        yield _stuck(numbers)
    if numbers.held:
        yield _held(numbers)
    since = numbers.neglected_since
    if since and numbers.now - since > LATE:
        yield _waiting(numbers, since)


def _closed_channel(numbers: OutboxNumbers, state: ChannelState, *, paused: bool) -> Need:
    if paused:
        title, why = f"Channel {state.name} is paused", state.pause_reason
        since, lever = state.paused_at, "Show channel"
    else:
        at = f" since {humanize.clock(state.opened_at, numbers.now).rpartition(':')[0]}" if state.opened_at else ""
        title = f"Nobody answers at {state.name}{at}"
        why = f"{silent_there(state.name, masked_error(state.last_error))}. It is tried again by itself."
        since, lever = state.opened_at, "Show channel"
    lasts = paused or (state.opened_at and numbers.now - state.opened_at > UNSEEN)
    return Need(
        "now" if lasts else "soon",
        title,
        f"{why} Messages wait, no attempt is used up.",
        reverse("admin:outbox_channelstate_change", args=[state.pk]),
        lever,
        amount=numbers.pending,
        unit=humanize.word(numbers.pending, "message waits", "messages wait"),
        since=since,
        rank=1,
        kind="channel",
        key=f"{state.name} {'paused' if paused else 'away'}",
        runbook=f"alerts.md#spillway{'channelpaused' if paused else 'breakeropen'}",
        fact=state_fact(state, paused=paused),
    )


def state_fact(state: ChannelState, *, paused: bool) -> Fact:
    """What a closed channel is among causes."""
    leads_to_kafka = isinstance(handlers().get(state.name), KafkaHandler)
    return fact(PAUSED if paused else KAFKA_BREAKER if leads_to_kafka else BREAKER, state.name)


def _throttled(numbers: OutboxNumbers, state: ChannelState, since: datetime) -> Need:
    return Need(
        "soon",
        f"{state.name} is told to wait, and its messages have waited for over an hour",
        "The other side limits how much is sent: a quota that is used up, or a rate below what is promised here. No attempt is used up, messages can expire.",
        reverse("admin:outbox_channelstate_change", args=[state.pk]),
        "Show channel",
        amount=numbers.pending,
        unit=humanize.word(numbers.pending, "message waits", "messages wait"),
        since=since,
        rank=1,
        kind="channel",
        key=f"{state.name} told to wait",
        runbook="email.md",
    )


def _stuck(numbers: OutboxNumbers) -> Need:
    return Need(
        "now",
        "Messages are stuck with workers that are gone",
        "Their leases ended and recovery has not run: recover_claims does it, beat should.",
        reverse(LIST) + "?state=processing",
        "Open list",
        amount=numbers.stuck,
        unit=humanize.word(numbers.stuck, "message held", "messages held"),
        rank=1,
        kind="stuck",
        key="leases",
        runbook="alerts.md#spillwayoutboxstuck",
        fact=fact(WAITING, "beat"),
    )


def _held(numbers: OutboxNumbers) -> Need:
    return Need(
        "soon",
        "Messages that may have been sent wait for a decision",
        "The other side never answered. Look there, then say “it was sent” or send it again.",
        reverse(LIST) + "?state=uncertain",
        "Open list",
        amount=len(numbers.held),
        unit="uncertain",
        since=numbers.held[0],
        rank=1,
        kind="stuck",
        key="uncertain",
        runbook="alerts.md#spillwayuncertainheld",
    )


def _waiting(numbers: OutboxNumbers, since: datetime) -> Need:
    return Need(
        "now" if numbers.now - since > LONG else "soon",
        "Due messages are not being sent",
        "No relay takes them: relay_outbox and listen_outbox do not run, or cannot keep up. Nothing is lost.",
        reverse(LIST) + "?state=pending",
        "Open list",
        amount=numbers.pending,
        unit=humanize.word(numbers.pending, "message waits", "messages wait"),
        since=since,
        rank=1,
        kind="stuck",
        key="due",
        runbook="alerts.md#spillwayoutboxlate",
        fact=fact(WAITING, "relay_outbox"),
    )
