"""Where partitions start whose truth is the changelog: behind a restore that runs beside the polling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from config.kafka.positions import Start, Stopped, TopicPartition
from config.telemetry.logs import log
from throttler.lanes.mirror import Recalled
from throttler.lanes.restore import RefusedPartition, RestoredPartition
from throttler.lanes.restoring import Restoring
from throttler.live.partition import OwnedPartition


class RestoredPlacing:
    """Asks for the restore of what was assigned, and hands over what is restored. Never waits.

    `given_up` lets the owner drop what it may still have of a partition, and then calls what it is given: what is read
    before its last transaction ended would be older than that. `known` says what the mirror knows of a partition whose
    changelog has lost it, None before the database has answered. `alarms`, by partition: the alarm and our generation.
    """

    def __init__(
        self, restoring: Restoring, topic: str, adopt: Callable[[OwnedPartition, frozenset[bytes]], None],
        given_up: Callable[[set[int], Callable[[set[int]], None]], None], ready: Callable[[], bool],
        known: Callable[[int, int], Recalled | None], alarms: dict[int, tuple[str, int]],
    ) -> None:  # fmt: skip
        self.restoring, self.topic, self.adopt, self.given_up = restoring, topic, adopt, given_up
        self.ready, self.known, self.alarms = ready, known, alarms
        self.epoch = -1
        self._asked: set[int] = set()
        self._restored: dict[int, RestoredPartition | RefusedPartition] = {}
        self._resets: dict[int, tuple[OwnedPartition, RestoredPartition]] = {}

    def place(self, consumer: Any, waiting: set[TopicPartition]) -> Mapping[TopicPartition, Start | Stopped]:
        """What is restored of `waiting`. Before the customers' rates are known nothing is: nobody's rate is guessed."""
        if not self.ready():
            return {}
        wanted = {number for _topic, number in waiting}
        if new := wanted - self._asked:
            self._asked |= new
            self.given_up(new, self.restoring.ask)
        ready = self.restoring.ready().items()
        self._restored |= {number: outcome for number, outcome in ready if number in self._asked}
        found: dict[TopicPartition, Start | Stopped] = {}
        for number in wanted & self._restored.keys():
            if start := self._start(self._restored[number]):
                found[self.topic, number] = start
                del self._restored[number]
                self._asked.discard(number)
        return found

    def confirmed(self, starts: Mapping[TopicPartition, Start | Stopped]) -> bool:
        for (topic, number), start in starts.items():
            if isinstance(start, Stopped):
                # Its lanes stand still, also where it ran before: what is mirrored has no alarm.
                self.given_up({number}, lambda _gone: None)
                self.alarms[number] = start.alarm, self.epoch
                continue
            part, outcome = self._resets.pop(number)
            gone = len(outcome.forgotten)
            log.warning("reset_accepted", topic=topic, partition=number, was=outcome.reset, lanes=gone)
            self.adopt(part, outcome.forgotten)
        return True

    def forget(self, numbers: set[int]) -> None:
        """What is being restored is ours no more, or has to be read again; its alarms are for others to raise."""
        self._asked -= numbers
        self.restoring.forget(numbers)
        for number in numbers:
            for of_partition in (self._restored, self._resets, self.alarms):
                of_partition.pop(number, None)

    def _start(self, outcome: RestoredPartition | RefusedPartition) -> Start | Stopped | None:
        """None: not yet."""
        if isinstance(outcome, RefusedPartition):
            return Stopped(outcome.alarm)
        known = self.known(outcome.number, self.epoch) if outcome.uncounted else Recalled(outcome.totals)
        if known is None:
            return None
        part = OwnedPartition(
            outcome.number, outcome.topic_id, self.epoch, outcome.decided, outcome.position, outcome.position,
            lanes=outcome.lanes, totals=Counter(known.totals), late_us=outcome.late_us,
            expected_us=outcome.expected_us, decided_before=max(outcome.decided_before, known.decided(outcome.topic_id)),
        )  # fmt: skip
        if outcome.reset or outcome.uncounted:
            part.write_off()
        if outcome.reset:
            part.touched = True  # also where there is nothing to read: the next start would be stopped again
            self._resets[outcome.number] = part, outcome
        else:
            self.adopt(part, outcome.forgotten)
        return Start(outcome.position, accepts=outcome.reset)
