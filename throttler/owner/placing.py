"""Where partitions start whose truth is the changelog: behind a restore that runs beside the polling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from config.kafka.positions import Start, Stopped, TopicPartition
from throttler.lanes.restore import RefusedPartition, RestoredPartition
from throttler.lanes.restoring import Restoring
from throttler.live.partition import OwnedPartition


class RestoredPlacing:
    """Asks for the restore of what was assigned, and hands over what is restored. Never waits.

    `given_up` lets the owner drop what it may still have of a partition, and then calls what it is given: what is read
    before its last transaction ended would be older than that.
    """

    def __init__(
        self, restoring: Restoring, topic: str, adopt: Callable[[OwnedPartition, frozenset[bytes]], None],
        given_up: Callable[[set[int], Callable[[set[int]], None]], None], ready: Callable[[], bool],
        alarmed: Callable[[Mapping[TopicPartition, str]], None],
    ) -> None:  # fmt: skip
        self.restoring, self.topic, self.adopt, self.given_up = restoring, topic, adopt, given_up
        self.ready, self.alarmed = ready, alarmed
        self.epoch = -1
        self._asked: set[int] = set()

    def place(self, consumer: Any, waiting: set[TopicPartition]) -> Mapping[TopicPartition, Start | Stopped]:
        """What is restored of `waiting`. Before the customers' rates are known nothing is: nobody's rate is guessed."""
        if not self.ready():
            return {}
        wanted = {number for _topic, number in waiting}
        if new := wanted - self._asked:
            self._asked |= new
            self.given_up(new, self.restoring.ask)
        found: dict[TopicPartition, Start | Stopped] = {}
        for number, outcome in self.restoring.ready().items():
            if number in wanted & self._asked:
                self._asked.discard(number)
                found[self.topic, number] = self._start(outcome)
        if alarms := {tp: start.alarm for tp, start in found.items() if isinstance(start, Stopped)}:
            self.alarmed(alarms)
        return found

    def refuse(self, alarms: Mapping[TopicPartition, str]) -> bool:
        """Their lanes stand still, as those of every stopped partition: what is mirrored has no alarm."""
        self.given_up({number for _topic, number in alarms}, lambda _gone: None)
        self.alarmed(dict(alarms))
        return True

    def forget(self, numbers: set[int]) -> None:
        """What is being restored is ours no more, or has to be read again."""
        self._asked -= numbers
        self.restoring.forget(numbers)

    def _start(self, outcome: RestoredPartition | RefusedPartition) -> Start | Stopped:
        if isinstance(outcome, RefusedPartition):
            return Stopped(outcome.alarm)
        part = OwnedPartition(
            outcome.number, outcome.topic_id, self.epoch, outcome.decided, outcome.position, outcome.position,
            lanes=outcome.lanes, totals=Counter(outcome.totals), late_us=outcome.late_us,
            expected_us=outcome.expected_us,
        )  # fmt: skip
        self.adopt(part, outcome.forgotten)
        return Start(outcome.position)
