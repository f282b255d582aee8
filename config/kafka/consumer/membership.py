"""Membership of a group: join, poll, pause, stopped partitions, topics that changed, and leaving."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from config.kafka import client, internals
from config.kafka.consumer.ports import ConsumerStopped, Follower
from config.kafka.positions import Start, Stopped, TopicPartition
from config.kafka.records import Record
from config.telemetry import metrics
from config.telemetry.logs import log

TRIES = 3  # of fetching what is damaged: it may have been damaged on the way
# Seconds after which the ids of topics are asked for again behind a poll that brings records; the second, where nothing
# was polled: what is fetched all the time meets a deletion itself.
IDS_EACH, STOOD_STILL = 1.0, 0.2
IDS_MS = 5_000
TRUNCATED = (
    "a leader was elected that did not have all of it, and other records may stand where ours did; restart the worker to "
    "go on, then replay_topic what was written since"
)
LEAVING_MS = 2_000  # a broker that does not answer finds out by itself that we are gone

Fenced = Callable[[client.Client], bool]


class Holder(Protocol):
    """Whoever has records of the partitions in hand."""

    async def finish(self) -> None:
        """Finish and commit the batch in hand before another member starts."""

    def drop(self, gone: set[TopicPartition]) -> None:
        """Forget what was polled of these partitions and is not with the backend."""


class Membership:
    """One member of a group: which partitions it has, and which of them wait, are stopped or held.

    `counts`: how many partitions each topic must keep, also one that is not read; the follower is told when it has others.
    """

    consumer: client.Client  # since `connect`

    def __init__(
        self, group: str, topics: list[str], name: str, stop: threading.Event, holder: Holder, *,
        follower: Follower | None = None, instance: str = "", is_fenced: Fenced = lambda _consumer: False,
        counts: Mapping[str, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.group, self.topics, self.name, self.stop, self.holder = group, topics, name, stop, holder
        self.follower, self.instance, self.is_fenced = follower or Follower(), instance, is_fenced
        self.stopped: dict[TopicPartition, str] = {}
        self.unplaced: set[TopicPartition] = set()
        # Still unplaced: where they start or why they stop, and when (monotonic) that was seen. A member that slept longer
        # than its session sees offsets that another one has moved on, and must not raise an alarm about them.
        self.doubted: dict[TopicPartition, tuple[Start | Stopped, float]] = {}
        self.topic_ids: dict[str, str] = {}
        self.next_ids = self.polled_at = 0.0
        self.counts: dict[str, int] = {**dict.fromkeys(topics, 0), **counts}
        self.joined, self.rejoining = False, True
        self.held = self.broker_away = False
        self.full: set[TopicPartition] = set()  # paused alone
        # What is fetched again, because it was damaged: offset and how often. Until it is read or stopped, nobody is idle.
        self.tries: dict[TopicPartition, tuple[int, int]] = {}
        self.taken_over = False  # another process has our name: what the group knows under it is not ours

    def connect(self) -> client.Client:
        named = {"group_instance_id": self.instance} if self.instance else {}
        self.consumer = client.new_consumer(self.group, **named)
        return self.consumer

    def subscribe(self) -> None:
        self.consumer.subscribe(self.topics, listener=Listener(self))
        internals.watch(self.consumer, self.counts)

    def leave(self) -> None:
        try:
            self.consumer.close(autocommit=False, timeout_ms=LEAVING_MS)
        finally:
            if not self.taken_over:
                self.follower.left()

    # -- polling ------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int) -> list[Record]:
        """The records of the partitions that run."""
        if time.monotonic() > self.polled_at + STOOD_STILL:
            self.next_ids = 0.0
        try:
            internals.keep_rejoining(self.consumer)
            internals.unpark(self.consumer)
            polled = self.consumer.poll(timeout_ms=self._join(timeout_ms) if self.rejoining else timeout_ms)
            self._ask_for_ids(polled)
        except client.LogTruncationError as error:
            self._stop_truncated(error.divergent_offsets)
            return []
        except client.OUT_OF_RANGE as error:
            self.start_over(client.places_of(error) & self.owned())
            return []
        except client.FATAL as error:
            self.taken_over = isinstance(error, client.FencedInstanceIdError)
            raise
        except client.DamagedBatch as error:
            self._look_again(error)
            return []
        except client.KafkaError as error:
            self.broker_is_away(error)  # whatever the error is, polling joins the group again
            return []
        finally:
            self.polled_at = time.monotonic()
            self._refuse_if_fenced()
        self._start_recreated_topics_over()
        for topic, (before, now) in self.recounted().items():
            self.follower.recounted(topic, before, now)
        resting = self.resting
        for tp in polled if self.tries else ():
            self.tries.pop(tp, None)
        return [r for tp, part in polled.items() if tp not in resting for r in part]

    def _ask_for_ids(self, polled: Mapping[client.TopicPartition, Sequence[Record]]) -> None:
        """What comes behind a pause may be of a topic that was created again: the client itself asks twice a minute.

        Raises KafkaError where nobody says; what came is then read again.
        """
        known = next((topic for topic, topic_id in self.topic_ids.items() if topic_id), "")
        if not polled or not known or time.monotonic() < self.next_ids:
            return
        try:
            internals.refresh_metadata(self.consumer, known, IDS_MS)
        except client.UnknownTopicOrPartitionError:
            pass  # there is none from which anything could have come
        except client.KafkaError:
            self.start_over(set(polled))
            raise
        self.next_ids = time.monotonic() + IDS_EACH

    def _join(self, timeout_ms: int) -> int:
        """Join the group; how many milliseconds may still be polled: none if there are partitions to be placed."""
        began = time.monotonic()
        internals.join(self.consumer, timeout_ms)
        return max(0, timeout_ms - int((time.monotonic() - began) * 1000)) if self.rejoining else 0

    def owned(self) -> set[TopicPartition]:
        return set(self.consumer.assignment())

    @property
    def resting(self) -> set[TopicPartition]:
        return self.stopped.keys() | self.unplaced

    def hold(self, hold: bool) -> None:
        """Pause everything that runs, or let it run again; polling goes on either way."""
        if hold == self.held:
            return
        self.held = hold
        running = self.owned() - self.resting - self.full
        self._pause(hold, running)
        log.info("consumer_paused" if hold else "consumer_resumed", worker=self.name)

    def hold_only(self, full: set[TopicPartition]) -> None:
        """Pause these and no others, whatever `hold` says of all."""
        if not full and not self.full:  # in nearly every round
            return
        running = self.owned() - self.resting
        changed = (full ^ self.full) & running
        self.full = full & running
        if not changed:
            return
        self._pause(True, changed & self.full)
        if not self.held:
            self._pause(False, changed - self.full)
        numbers = sorted(number for _topic, number in self.full)
        log.info("partitions_paused" if numbers else "partitions_resumed", worker=self.name, partitions=numbers)

    def _pause(self, pause: bool, partitions: Iterable[TopicPartition]) -> None:
        (self.consumer.pause if pause else self.consumer.resume)(*(client.TopicPartition(*tp) for tp in partitions))

    # -- partitions come and go ---------------------------------------------------------------------

    def assigned(self, partitions: Iterable[client.TopicPartition]) -> None:
        """Pause what is new; where to start is decided outside the client's callback, where waiting is allowed."""
        self.joined, self.rejoining = True, False
        new = set(partitions)
        for tp in new:
            self.consumer.seek(tp, 0)
            self.consumer.pause(tp)
        self.unplaced |= new
        self.follower.assigned(new, self.consumer.group_metadata())

    async def revoked(self, partitions: Iterable[client.TopicPartition]) -> None:
        self.rejoining = True
        await self.holder.finish()
        self._release(partitions, lost=False)

    def lost(self, partitions: Iterable[client.TopicPartition]) -> None:
        self.rejoining = True
        self._release(partitions, lost=True)

    def _release(self, partitions: Iterable[client.TopicPartition], *, lost: bool) -> None:
        gone = set(partitions)
        self.forget(gone)
        self.follower.released(gone, lost)

    def forget(self, gone: set[TopicPartition]) -> None:
        self.holder.drop(gone)
        self.unplaced -= gone
        self.full -= gone  # whoever starts them again runs them
        for tp in gone:
            metrics.PARTITION_STOPPED.remove(self.group, tp[0], str(tp[1]))  # whoever has it now says it
            self.stopped.pop(tp, None)
            self.doubted.pop(tp, None)
            self.tries.pop(tp, None)

    def start_over(self, partitions: set[TopicPartition]) -> None:
        """Drop what was polled of these partitions and is not with the backend; they are placed anew, and paused until
        then: one whose next record is gone would fail each poll of all."""
        self.forget(partitions)
        waiting = partitions & self.owned()
        self._pause(True, waiting)
        self.unplaced |= waiting

    def start(self, tp: TopicPartition, offset: int) -> None:
        self._placed(tp)
        self.consumer.seek(client.TopicPartition(*tp), offset)
        if not self.held:
            self.consumer.resume(client.TopicPartition(*tp))

    def doubt(self, tp: TopicPartition, start: Start | Stopped) -> None:
        """Do nothing about it before the group has said once more that the partition is ours."""
        self.doubted[tp] = start, time.monotonic()

    def believed(self) -> dict[TopicPartition, Start | Stopped]:
        """What was doubted and is ours after all: the group has answered a heartbeat that was sent since."""
        heard = internals.confirmed_at(self.consumer) if self.doubted else 0.0
        return {tp: start for tp, (start, at) in self.doubted.items() if at < heard}

    def stop_partition(self, tp: TopicPartition, alarm: str) -> None:
        self._placed(tp)
        self.consumer.pause(client.TopicPartition(*tp))
        self.stopped[tp] = alarm
        topic, partition = tp
        metrics.PARTITION_STOPPED.labels(self.group, topic, str(partition)).set(1)
        log.error("partition_stopped", topic=topic, partition=partition, alarm=alarm)

    def _placed(self, tp: TopicPartition) -> None:
        self.unplaced.discard(tp)
        self.doubted.pop(tp, None)

    # -- trouble ------------------------------------------------------------------------------------

    def _look_again(self, error: client.DamagedBatch) -> None:
        """Fetch it again a few times; then the partition waits to be stopped, and the others are read on."""
        if error.place not in self.owned():
            return
        offset, tries = self.tries.get(error.place, (error.offset, 0))
        tries = tries + 1 if offset == error.offset else 1
        log.warning("batch_damaged", worker=self.name, error=str(error), tries=tries)
        if tries < TRIES:
            self.tries[error.place] = error.offset, tries
            self.stop.wait(0.2)
        else:
            self.tries.pop(error.place, None)
            self.consumer.pause(client.TopicPartition(*error.place))
            self.unplaced.add(error.place)
            self.doubt(error.place, Stopped(f"{error}: start with --accept-reset to go on behind it"))

    def _stop_truncated(self, cuts: Mapping[client.TopicPartition, client.OffsetAndMetadata | None]) -> None:
        """The position says nothing of these: others may have written below it since, and it lies within the log."""
        for place, cut in cuts.items():
            if place not in self.owned():
                continue
            self.start_over({place})
            since = f" at {cut.offset}" if cut else ""
            self.doubt(place, Stopped(f"the log was truncated{since} behind what was read: {TRUNCATED}"))

    def refuse_missing_topics(self) -> None:
        for topic in self.topics:
            if not client.count_partitions(self.consumer, topic):
                raise ConsumerStopped(f"topic {topic} does not exist: create_topics makes it")

    def refuse_if_stopped(self, tell: bool) -> None:
        if tell and self.stopped:
            topic, partition = min(self.stopped)
            raise ConsumerStopped(f"{topic}/{partition}: {self.stopped[topic, partition]}")

    def ids(self) -> dict[str, str]:
        """`{topic: id}` as the client knows them now; "" where the broker has none."""
        return {topic: internals.topic_id_of(self.consumer, topic) for topic in self.topics}

    def recounted(self) -> Mapping[str, tuple[int, int]]:
        """`{topic: (partitions at first, now)}` of the topics whose number changed since they were first seen."""
        changed = {}
        for topic, first in self.counts.items():
            now = internals.partition_count(self.consumer, topic)
            self.counts[topic] = first or now
            if now and first and now != first:
                changed[topic] = (first, now)
        return changed

    def broker_is_away(self, error: Exception) -> None:
        if not self.broker_away:
            # The client wraps what our own callbacks raise.
            log.warning("broker_unavailable", worker=self.name, error=str(error), cause=repr(error.__cause__))
        self.broker_away = True
        self.stop.wait(0.2)

    def _refuse_if_fenced(self) -> None:
        if self.is_fenced(self.consumer):  # the broker tells the client, which raises nothing
            self.taken_over = True
            raise ConsumerStopped(f"another process works under the name {self.instance}")

    def _start_recreated_topics_over(self) -> None:
        for topic, known in self.topic_ids.items():
            current = internals.topic_id_of(self.consumer, topic)
            if known and current and current != known:
                self.start_over({tp for tp in self.owned() if tp[0] == topic})
                # A new dictionary: batches under way keep the ids they were read with.
                self.topic_ids = {**self.topic_ids, topic: current}


class Listener(client.kafka.AsyncConsumerRebalanceListener):
    """Called on the client's own thread, where heartbeats go on while it waits."""

    def __init__(self, member: Membership) -> None:
        self.member = member

    async def on_partitions_assigned(self, assigned: set[client.TopicPartition]) -> None:
        self.member.assigned(assigned)

    async def on_partitions_revoked(self, revoked: set[client.TopicPartition]) -> None:
        await self.member.revoked(revoked)

    async def on_partitions_lost(self, lost: set[client.TopicPartition]) -> None:
        self.member.lost(lost)
