"""Carries out topic replays: reads a timeframe into the flow's writer, in a worker that continues after a crash."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from config.database.retry import Remedy, remedy_for
from config.flows import flows
from config.kafka.client import KafkaError
from config.kafka.consumer.writer import Handler, Replayable, Writer
from config.kafka.internals import DamagedBatch
from config.kafka.positions import LogEnd, Mark, TopicPartition
from config.kafka.reader import Bounds, LogChanged, Part, Timeframe
from config.kafka.records import Record, RecordBatch, cut
from config.kafka.topics import topic_name
from config.letters import Refusal
from config.processes import worker
from config.telemetry.activity import activity
from config.telemetry.logs import log, log_committed
from config.telemetry.redaction import error_text
from outbox.audit_log import actions
from outbox.bookkeeping.watermarks import Watermarks
from outbox.topic_replay.models import LEASE, TopicReplay, TopicReplayQuerySet

# -- Stands between writer and handler during a replay -------------------------------------------------------
# Saves counts and positions in each batch's transaction.
COUNTS = ("read", "already", "applied", "parked", "outside")


class Journal(Handler):
    """The writer's handler and its positions in one: no watermark moves, no offset is committed.

    A dry run goes through the same statements and is rolled back, batch by batch. What an earlier batch would
    have stored is then not there; so its records are stored once more in front of a batch that depends on them.
    """

    def __init__(self, replay: TopicReplay, token: uuid.UUID, handler: Replayable) -> None:
        self.replay, self.token, self.handler = replay, token, handler
        self.name, self.group, self.topics = handler.name, handler.group, handler.topics
        self.counts = {name: int(getattr(replay, name)) for name in COUNTS}
        self.bounds = {int(number): Bounds(*pair) for number, pair in replay.bounds.items()}
        self.positions = {int(number): int(offset) for number, offset in replay.positions.items()}
        self.lost = False  # cancelled, or taken over after the lease ran out
        self._batch: RecordBatch | None = None
        self._would_be: dict[Hashable, dict[tuple[int, int], Record]] = {}

    # -- the writer's handler -------------------------------------------------------------------------
    def prepare(self, batch: RecordBatch) -> object:
        return self.handler.prepare(batch)

    def write(self, batch: RecordBatch, now: datetime) -> None:
        if self.replay.dry_run:
            self._store_earlier(batch, now)
        self.handler.write(batch, now)
        self._batch = batch

    def park(self, batch: RecordBatch, record: Record, error: BaseException, trace: str, now: datetime) -> None:
        self.handler.park(batch, record, error, trace, now)
        self._batch = batch

    def pressure(self) -> bool:
        return self.handler.pressure()

    def repair(self) -> None:
        self.handler.repair()

    # -- the writer's positions -----------------------------------------------------------------------
    def load(self, group: str, topics: list[str]) -> dict[TopicPartition, Mark]:
        return {}

    def advance(self, group: str, marks: Mapping[TopicPartition, Mark], now: datetime) -> None:
        """Save counts and positions with the batch, or roll it back when the replay is no longer ours."""
        if self._batch is None:
            return
        counts = self._counts_after(self._batch)
        positions = {**self.positions, **{tp[1]: mark.next_offset for tp, mark in marks.items()}}
        if self.replay.dry_run:
            transaction.set_rollback(True)
            self._remember(self._batch)
            self._keep(counts, positions)
        elif self._save(counts, positions, now):
            transaction.on_commit(lambda: self._keep(counts, positions))
        else:
            self.lost = True
            transaction.set_rollback(True)

    def reset(self, group: str, marks: Mapping[TopicPartition, Mark], now: datetime) -> None:
        """Nothing: a replay resets no position."""

    def stop(self, group: str, alarms: Mapping[TopicPartition, str], now: datetime) -> None:
        """Nothing: a replay stops no partition."""

    def reach(self, group: str, reached: Mapping[TopicPartition, LogEnd], now: datetime) -> None:
        """Nothing: the consumer stores where the log ends."""

    # -- what is known --------------------------------------------------------------------------------
    @property
    def remaining(self) -> dict[int, Bounds]:
        """What is still to be read, by partition."""
        return {
            number: Bounds(max(here.start, self.positions.get(number, 0)), here.end)
            for number, here in self.bounds.items()
        }

    @property
    def looked_at(self) -> int:
        return self._distance(self.positions)

    def rest_at(self, partition: int, position: int) -> None:
        """Nothing up to `position` is left to store; call it only while the writer is idle."""
        self.positions = {**self.positions, partition: position}

    def beat(self, now: datetime, note: str, *, idle: bool) -> None:
        """Renew the lease; save the progress, too, unless the writer may be saving it at this moment."""
        changes: dict[str, object] = {"lease_until": now + LEASE, "note": note}
        if idle or self.replay.dry_run:
            changes |= self.state()
        if not self._mine().update(**changes):
            self.lost = True

    def state(self) -> dict[str, object]:
        """Counts and positions as the row stores them. A dry run stores no positions: it cannot be resumed."""
        positions = {} if self.replay.dry_run else dict(self.positions)
        return {**self.counts, "positions": positions, "looked_at": self.looked_at}

    def _counts_after(self, batch: RecordBatch) -> dict[str, int]:
        tally, read = batch.tally, len(batch.records)
        known = read - tally.applied - tally.parked - tally.outside
        added = dict(zip(COUNTS, (read, known, tally.applied, tally.parked, tally.outside), strict=True))
        return {name: self.counts[name] + added[name] for name in COUNTS}

    def _save(self, counts: dict[str, int], positions: dict[int, int], now: datetime) -> int:
        state = {**counts, "positions": positions, "looked_at": self._distance(positions)}
        return self._mine().update(**state, lease_until=now + LEASE)

    def _mine(self) -> TopicReplayQuerySet:
        return TopicReplay.objects.run_by(self.token).filter(pk=self.replay.pk)

    def _keep(self, counts: dict[str, int], positions: dict[int, int]) -> None:
        self.counts, self.positions = counts, positions

    def _distance(self, positions: Mapping[int, int]) -> int:
        return sum(max(0, positions.get(number, 0) - here.start) for number, here in self.bounds.items())

    # -- a dry run's memory ---------------------------------------------------------------------------
    def _store_earlier(self, batch: RecordBatch, now: datetime) -> None:
        if not self._would_be:
            return
        earlier, number = batch, -1
        records_by_place: dict[tuple[int, int], Record] = {}
        while len(records_by_place) != number:  # and the records that those depend on
            number = len(records_by_place)
            for key in self.handler.keys_of(earlier):
                records_by_place |= self._would_be.get(key, {})
            records = [records_by_place[at] for at in sorted(records_by_place)]
            earlier = RecordBatch(records, batch.topic_ids, revision=batch.revision, from_log=True)
            earlier.prepared = self.handler.prepare(earlier)
        if records_by_place:
            self.handler.write(earlier, now)

    def _remember(self, batch: RecordBatch) -> None:
        for key, records in batch.tally.changed.items():
            here = self._would_be.setdefault(key, {})
            here.update({(record.partition, record.offset): record for record in records})


# -- Carries out a replay ------------------------------------------------------------------------------------
# Reads the timeframe and gives it, in batches, to a writer with the flow's own handler.
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
    KafkaError when no broker answers, LogChanged when the rest of the timeframe is gone; all leave the replay as it is.
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

    def _submit(self, records: Sequence[Record]) -> bool:
        batch = RecordBatch(records, {self.frame.topic: self.frame.topic_id}, revision=REVISION, from_log=True)
        try:
            batch.prepared = self.journal.prepare(batch)
        except Exception:  # noqa: BLE001 (the writer prepares again and bisects to the guilty record)
            log.exception("prepare_failed", worker=self.journal.name)
        self.sequence += 1
        while not self.writer.submit(batch, self.sequence, timeout=BEAT):
            if not self._goes_on():
                return False
        activity.came_round(len(records))
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
    changes: dict[str, object] = {
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
        if done:
            log_committed("replay_ended", replay=replay.pk, topic=replay.topic)
        if done and not replay.dry_run:
            audit_end(replay, journal.counts["applied"], "done")
    return bool(done)


def fail(replay: TopicReplay, token: uuid.UUID, why: str) -> None:
    """End a replay that cannot continue and is still ours; what was applied stays."""
    with transaction.atomic():
        mine = TopicReplay.objects.run_by(token).filter(pk=replay.pk)
        failed = mine.finish(State.FAILED, database_now(), note=why[:500])
        if failed:
            log_committed("replay_given_up", "warning", replay=replay.pk, topic=replay.topic, error=why)
        if failed and not replay.dry_run:
            replay.refresh_from_db()
            audit_end(replay, replay.applied, f"failed: {why}")


def audit_end(replay: TopicReplay, applied: int, result: str) -> None:
    operator, detail = Operator(replay.requested_by, replay.user), {"replay": replay.pk}
    words = {"reason": replay.reason, "result": result, "url": page_of(replay)}
    words |= {"subject_type": "outbox.topicreplay", "subject_id": str(replay.pk)}
    actions.record(operator, "replay", str(replay), rows=applied, detail=detail, **words)


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


# -- The worker for the admin's replays ----------------------------------------------------------------------
# One after the other, each continued where the last worker stopped.
PAUSE = 2.0
AWAY = 10.0  # seconds before a replay whose broker was away is tried again


class ReplayWorker:
    """Leases and carries out the oldest free replay, until there is none.

    Each try has a token of its own, which keeps a writer out that an earlier one has left behind. What stands under one
    of `tokens` is ours, whatever cut the try short: nobody waits for the end of that lease.
    """

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop
        self.tokens: set[uuid.UUID] = set()

    def run(self, *, once: bool = False, until_idle: float | None = None) -> None:
        worker.run(self.tick, self.stop, pause=lambda: PAUSE, once=once, until_idle=until_idle)

    def tick(self) -> int:
        """1 when a replay was worked on."""
        now = database_now()
        replay = TopicReplay.objects.next_in_line(now, self.tokens).first()
        if replay is None:
            self.tokens.clear()
            return 0
        token, earlier = uuid.uuid4(), frozenset(self.tokens)
        self.tokens.add(token)
        if TopicReplay.objects.begin(replay.pk, token, now, earlier):
            replay.refresh_from_db()
            log_committed("replay_begun", replay=replay.pk, topic=replay.topic)
            activity.hold("replay_topic", [f"replay {replay.pk}"], "records")
            self._work(replay, token)
            activity.hold("replay_topic", [], "records")
        return 1

    def _work(self, replay: TopicReplay, token: uuid.UUID) -> None:
        mine = TopicReplay.objects.run_by(token).filter(pk=replay.pk)
        try:
            if not carry_out(replay, token, self.stop):
                log.info("replay_left", replay=replay.pk, topic=replay.topic)
            mine.release(token)
        except (Refusal, DamagedBatch, LogChanged) as refusal:
            fail(replay, token, str(refusal))
        except KafkaError as error:
            log.warning("broker_unavailable", worker="replay_topic", error=str(error))
            mine.release(token, note=f"waits for Kafka: {error}"[:500])
            self.stop.wait(AWAY)
        except Exception as error:
            if remedy_for(error) in (Remedy.RERUN, Remedy.WAIT):
                raise  # the database is away; what was saved is there for the next round
            log.exception("replay_failed", replay=replay.pk)
            fail(replay, token, f"{type(error).__name__}: {error_text(error)}")
