"""Requests and cancels topic replays, for the admin and the command `replay_topic`."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo

from django.conf import settings
from django.db import transaction

from config.admin import humanize
from config.admin.levers import NO_REASON, Operator, fault_of_reason, operator_of_terminal
from config.database.clock import database_now
from config.kafka.client import KafkaError
from config.letters import Refusal
from config.processes.worker import Options
from config.telemetry.logs import log_committed
from outbox.topic_replay.models import LEASE, TopicReplay
from outbox.topic_replay.run import COUNTS, Journal, audit_end, carry_out, fail, replayable, unknown_topic

# -- Requests and cancels replays, for the admin and the command ---------------------------------------------
LEAST_REASON = 10  # characters
LONGEST_SLACK = timedelta(days=30)
SPAN = re.compile(r"(\d{1,6})([smhd])")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def request(
    topic: str, since: datetime, until: datetime, slack: timedelta, operator: Operator, reason: str,
    *, dry_run: bool, token: uuid.UUID | None = None,
) -> TopicReplay:  # fmt: skip
    """Store a replay; with a `token` the caller carries it out, otherwise the next free worker.

    Raises Refusal with the reason in one line.
    """
    name = contract_name(topic)
    if since >= until:
        raise Refusal(f"the start {since:%FT%TZ} is not before the end {until:%FT%TZ}")
    if not timedelta(0) <= slack <= LONGEST_SLACK:
        raise Refusal(f"slack {slack}: between 0 and {LONGEST_SLACK.days} days")
    with transaction.atomic():
        now = database_now()
        frame = {"since": since, "until": until, "slack_seconds": int(slack.total_seconds())}
        who = {"requested_by": operator.name[:150], "user": operator.user, "reason": reason}
        mine: dict[str, object] = {"state": TopicReplay.State.RUNNING, "lease_token": token, "lease_until": now + LEASE}
        more = {**frame, **who, **(mine if token else {})}
        replay = TopicReplay.objects.create(topic=name, dry_run=dry_run, created_at=now, **more)
        log_committed("replay_asked_for", replay=replay.pk, topic=name, dry_run=dry_run, by=operator.name)
        if not dry_run:
            audit_end(replay, 0, "asked for")
    return replay


def contract_name(topic: str) -> str:
    """The topic without the prefix; raises Refusal when no flow replays it."""
    known = replayable()
    bare = topic.removeprefix(settings.KAFKA_TOPIC_PREFIX) if topic not in known else topic
    if bare not in known:
        raise Refusal(unknown_topic(topic))
    return bare


def cancel(ids: Sequence[int], operator: Operator, reason: str) -> int:
    """Cancel unfinished replays; what they applied stays. Returns how many."""
    ended = 0
    for replay in TopicReplay.objects.filter(pk__in=ids).order_by("pk"):
        with transaction.atomic():
            note = f"cancelled by {operator.name}: {reason}"[:500]
            done = TopicReplay.objects.filter(pk=replay.pk).finish(
                TopicReplay.State.CANCELLED, database_now(), note=note
            )
            if done:
                log_committed("replay_cancelled", replay=replay.pk, topic=replay.topic, by=operator.name)
                replay.refresh_from_db()
                replay.requested_by, replay.user, replay.reason = operator.name, operator.user, reason
                audit_end(replay, replay.applied, "cancelled")
            ended += done
    return ended


def apply_missing(ids: Sequence[int], operator: Operator, reason: str) -> int:
    """For each finished dry run, a real run over the same timeframe; returns how many."""
    previews = TopicReplay.objects.previewed().filter(pk__in=ids).order_by("pk")
    for preview in previews:
        slack = timedelta(seconds=preview.slack_seconds)
        request(preview.topic, preview.since, preview.until, slack, operator, reason, dry_run=False)
    return len(previews)


def moment(text: str, zone: tzinfo = UTC) -> tuple[datetime, bool]:
    """An ISO time, in UTC, and whether its zone had to be assumed: then it is `zone`. Raises Refusal."""
    try:
        when = datetime.fromisoformat(text.strip())
        return (when if when.tzinfo else when.replace(tzinfo=zone)).astimezone(UTC), not when.tzinfo
    except (ValueError, OverflowError):  # the latter: in UTC it is before the year 1 or after 9999
        raise Refusal(f"{text!r} is no ISO time (2026-02-12T10:00:00Z)") from None


def span(text: str) -> timedelta:
    """`90s`, `30m`, `1h`, `2d`. Raises Refusal."""
    match = SPAN.fullmatch(text.strip())
    if not match:
        raise Refusal(f"{text!r} is no length of time (90s, 30m, 1h, 2d)")
    return timedelta(**{UNITS[match[2]]: int(match[1])})


# -- The command `replay_topic`: its arguments, its progress, its result -------------------------------------
Say = Callable[[str], object]
EVERY = 2.0  # seconds between two lines of progress
LABELS = {"already": "already applied", "outside": "older than retention"}


def replay(topic: str, options: Options, stop: threading.Event, say: Say) -> Iterator[str]:
    """Request a replay and carry it out; yields the result line by line. Raises Refusal or KafkaError."""
    since, until = (_moment(options[name], f"--{name}", say) for name in ("from", "to"))
    operator = operator_of_terminal()
    token = uuid.uuid4()
    slack, reason = span(options["slack"]), _reason(options["reason"], say)
    requested = request(topic, since, until, slack, operator, reason, dry_run=options["dry_run"], token=token)
    try:
        ended = carry_out(requested, token, stop, ProgressPrinter(say))
    except (Refusal, KafkaError) as error:
        fail(requested, token, str(error))
        raise
    requested.refresh_from_db()
    if not ended and stop.is_set():
        cancel([requested.pk], operator, "interrupted")
    yield from account(requested)
    if not ended:
        raise Refusal(f"the replay was not finished; what was applied stays ({requested.note or 'interrupted'})")
    if not requested.read:
        raise Refusal(f"{requested.topic}: no record between {since:%FT%TZ} and {until:%FT%TZ}")


def account(topic_replay: TopicReplay) -> Iterator[str]:
    """Counts of records, one line each, and what they mean."""
    for name in COUNTS:
        yield f"{LABELS.get(name, name):24}{getattr(topic_replay, name):>12,}"
    missing = topic_replay.applied + topic_replay.parked
    if topic_replay.dry_run:
        yield "Dry run: nothing was changed."
    elif topic_replay.read and not missing:
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


def _moment(text: str, option: str, say: Say) -> datetime:
    try:
        when, assumed = moment(text)
    except Refusal as refusal:
        raise Refusal(f"{option}: {refusal}") from None
    if assumed:
        say(f"{option} {text} names no zone: taken as UTC")
    return when
