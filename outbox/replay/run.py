"""Carries out a replay: reads the timeframe and gives it, in batches, to a writer with the flow's own handler."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from config.flows import Refusal, flows
from config.kafka.records import RecordBatch, cut
from config.kafka.runtime.writer import Replayable, Writer
from config.kafka.timeframe import Part, Timeframe
from config.kafka.topics import topic_name
from config.telemetry.logs import log
from outbox.bookkeeping.watermarks import Watermarks
from outbox.replay.journal import COUNTS, Journal
from outbox.replay.models import TopicReplay
from outbox.trail import audit

State = TopicReplay.State
BEAT = 1.0  # seconds between two looks at lease, cancellation and pressure
PATIENCE = 5.0  # seconds that a batch in hand may take when the replay has to stop
REVISION = 1  # not straight from the topic: counted as replayed
Tell = Callable[[Journal], None]


def replayable() -> dict[str, Callable[[], Replayable]]:
    """The handler of every topic whose past can be applied again."""
    return {topic: make for flow in flows() for topic, make in flow.replays().items()}


def carry_out(replay: TopicReplay, token: uuid.UUID, stop: threading.Event, tell: Tell = lambda journal: None) -> bool:
    """Work on a replay that `token` holds; True when it is done.

    False when `stop` was set, or when it was cancelled or taken over. Raises Refusal when it must not run,
    KafkaError when no broker answers; both leave the replay as it is.
    """
    make = replayable().get(replay.topic)
    if make is None:
        raise Refusal(unknown_topic(replay.topic))
    handler = make()
    since, until = _milliseconds(replay.since), _milliseconds(replay.until)
    with Timeframe(topic_name(replay.topic), since, until, replay.slack_seconds * 1000) as frame:
        _begin(replay, token, frame, handler)
        journal = Journal(replay, token, handler)
        run = Run(frame, journal, stop, tell)
        return run.feed() and _finish(replay, token, journal)


class Run:
    """One worker's part in a replay."""

    def __init__(self, frame: Timeframe, journal: Journal, stop: threading.Event, tell: Tell) -> None:
        self.frame, self.journal, self.stop, self.tell = frame, journal, stop, tell
        self.sequence = 0
        self.next_beat = time.monotonic()

    def feed(self) -> bool:
        """Write what is left of the timeframe; False when it was interrupted."""
        self.writer = Writer(self.journal, self.journal, topic_name(self.journal.group))
        try:
            for part in self.frame.parts(self.journal.remaining, settings.KAFKA_POLL_RECORDS):
                if not self._submit_all(part):
                    return False
            while not self.writer.drain(patience=BEAT):
                if not self._goes_on():
                    return False
            return not self.journal.lost
        finally:
            self.writer.close(PATIENCE)

    def _submit_all(self, part: Part) -> bool:
        for records in cut(part.records, settings.KAFKA_POLL_BYTES):
            if not self._submit(records):
                return False
        if not part.records and not self.writer.busy:
            self.journal.rest_at(part.partition, part.position)
        return self._goes_on()

    def _submit(self, records: Sequence[Any]) -> bool:
        batch = RecordBatch(records, {self.frame.topic: self.frame.topic_id}, revision=REVISION, from_log=True)
        try:
            batch.prepared = self.journal.prepare(batch)
        except Exception:  # noqa: BLE001 (the writer prepares again and bisects to the guilty record)
            log.exception("prepare_failed", worker=self.journal.name)
        self.sequence += 1
        while not self.writer.submit(batch, self.sequence, timeout=BEAT):
            if not self._goes_on():
                return False
        return True

    def _goes_on(self) -> bool:
        """Whether to continue; waits while the flow asks for a pause."""
        while not self.stop.is_set() and not self.journal.lost and time.monotonic() >= self.next_beat:
            self.next_beat = time.monotonic() + BEAT
            if not self._beat():
                break
            self.stop.wait(BEAT)
        return not self.stop.is_set() and not self.journal.lost

    def _beat(self) -> bool:
        """Store the progress; True while the flow is too full for more."""
        try:
            pressed = not self.journal.replay.dry_run and self.journal.pressure()
            note = f"waits: {self.journal.name} is full and takes no more for now" if pressed else ""
            self.journal.beat(database_now(), note, idle=not self.writer.busy)
        except (DatabaseError, InterfaceError) as error:
            # The writer waits for the database, too. A lease that ran out meanwhile is noticed by its token.
            log.warning("replay_beat_failed", replay=self.journal.replay.pk, error=str(error).strip())
            connection.close()
            return False
        self.tell(self.journal)
        return pressed


def _begin(replay: TopicReplay, token: uuid.UUID, frame: Timeframe, handler: Replayable) -> None:
    """Store the offsets to read, once: a worker that takes over reads the same."""
    if not frame.tps:
        raise Refusal(f"topic {frame.topic} does not exist: create_topics makes it")
    if replay.topic_id and frame.topic_id and replay.topic_id != frame.topic_id:
        raise Refusal(f"topic {frame.topic} was created again since the replay began")
    refuse_gap(frame, handler)
    if replay.bounds and not replay.dry_run:
        return
    bounds = frame.bounds()
    changes: dict[str, Any] = {
        "topic_id": frame.topic_id,
        "bounds": {number: [here.start, here.end] for number, here in bounds.items()},
        "total": sum(here.end - here.start for here in bounds.values()),
        "started_at": replay.started_at or database_now(),
        "positions": {},
        **dict.fromkeys(["looked_at", *COUNTS], 0),
    }
    TopicReplay.objects.run_by(token).filter(pk=replay.pk).update(**changes)
    for name, value in changes.items():
        setattr(replay, name, value)


def refuse_gap(frame: Timeframe, handler: Replayable) -> None:
    """Raise Refusal while this database remembers less than its consumer group has committed, or another topic.

    A restored database does not know what was sent since; only its consumer, reading the gap, can tell.
    """
    group = topic_name(handler.group)
    marks = Watermarks().load(group, [frame.topic])
    if any(mark.topic_id and frame.topic_id not in ("", mark.topic_id) for mark in marks.values()):
        raise Refusal(f"topic {frame.topic} was created again: its worker has to be started with --accept-reset first")
    if behind := Watermarks().behind(group, frame.topic):
        raise Refusal(
            f"{frame.topic}/{min(behind)[1]}: this database remembers less than {group} has committed (a backup "
            "was restored?): let its worker read the gap first"
        )


def _finish(replay: TopicReplay, token: uuid.UUID, journal: Journal) -> bool:
    with transaction.atomic():
        now = database_now()
        state = {**journal.state(), "looked_at": replay.total, "note": ""}
        done = TopicReplay.objects.run_by(token).filter(pk=replay.pk).finish(State.DONE, now, **state)
        if done and not replay.dry_run:
            audit_end(replay, journal.counts["applied"], "done")
    return bool(done)


def fail(replay: TopicReplay, why: str) -> None:
    """End a replay that cannot continue; what was applied stays."""
    with transaction.atomic():
        failed = TopicReplay.objects.filter(pk=replay.pk).finish(State.FAILED, database_now(), note=why[:500])
        if failed and not replay.dry_run:
            replay.refresh_from_db()
            audit_end(replay, replay.applied, f"failed: {why}")


def audit_end(replay: TopicReplay, applied: int, result: str) -> None:
    operator, detail = Operator(replay.requested_by, replay.user), {"replay": replay.pk}
    words = {"reason": replay.reason, "result": result, "url": page_of(replay)}
    words |= {"subject_type": "outbox.topicreplay", "subject_id": str(replay.pk)}
    audit.record(operator, "replay", str(replay), rows=applied, detail=detail, **words)


def page_of(replay: TopicReplay) -> str:
    return f"/admin/outbox/topicreplay/{replay.pk}/change/"


def unknown_topic(topic: str) -> str:
    """Why a topic cannot be replayed."""
    bare = topic.removeprefix(settings.KAFKA_TOPIC_PREFIX)
    for flow in flows():
        if reason := flow.not_replayed().get(bare):
            return f"{topic}: {reason}"
    return f"{topic}: no flow replays this topic (known: {', '.join(sorted(replayable())) or 'none'})"


def _milliseconds(when: datetime) -> int:
    return int(when.timestamp() * 1000)
