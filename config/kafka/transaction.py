"""A producer whose transactions end in a verdict, each within a time limit of ours.

kafka-python 3.0.12 forgets a transactional request whose connection breaks: its own commit_transaction() and
send_offsets_to_transaction() then never return. And it commits without an error a transaction all of whose
records expired before they were sent. So every wait here is limited, and every record's future is looked at.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from config.kafka import client, internals
from config.telemetry.logs import log

NO_ANSWER = "no answer within the limit"


class FencedInstance(Exception):
    """Another process has this member's name; the text is one line."""


@dataclass(frozen=True)
class Committed:
    """Records and offsets are there, exactly once."""


@dataclass(frozen=True)
class RefusedByGroup:
    """The group has moved on: nothing of the transaction counts, and the member has to join again."""

    reason: str


@dataclass(frozen=True)
class RefusedRecord:
    """The broker will never take one record: nothing of the transaction counts.

    `index` counts the sends of the transaction from 0. Where several records were lost with it, it is the largest.
    """

    index: int
    topic: str
    partition: int
    reason: str


@dataclass(frozen=True)
class Unknown:
    """Whether it committed is unknown, and the client of no further use: rebuild(), then read what is there."""

    reason: str


Verdict = Committed | RefusedByGroup | RefusedRecord | Unknown


class TransactionalProducer:
    """One transactional id. Call rebuild() before the first begin() and after every Unknown; one thread at a time.

    begin(), send() and abort() raise nothing that the broker can cause: commit() tells it. No call takes longer than
    `limit` seconds, which is kept below the broker's transaction timeout of 10 s.
    """

    def __init__(self, transactional_id: str, limit: float = 8.0, **overrides: Any) -> None:
        self.transactional_id = transactional_id
        self.limit = limit
        self.overrides = overrides
        self._client: Any = None
        self._dead = "rebuild() has not been called"
        self._refused: RefusedRecord | None = None
        self._failed = ""  # why the client took no more records of this transaction
        self._futures: list[Any] = []

    @property
    def usable(self) -> bool:
        """Whether begin() makes sense; otherwise rebuild()."""
        return not self._dead

    def rebuild(self) -> None:
        """A new client of the same id, which settles the old one's transaction; raises KafkaError: try again later."""
        deadline = time.monotonic() + self.limit
        self.close()
        started = client.new_transactional_producer(self.transactional_id, self.limit, **self.overrides)
        try:
            _wait(internals.init_transactions(started), deadline)
        except client.KafkaError:
            internals.drop_producer(started)
            raise
        self._client, self._dead = started, ""

    def begin(self) -> None:
        """Start a transaction; what was sent and neither committed nor aborted is aborted."""
        if self._futures:
            self.abort()
        self._refused, self._failed = None, ""
        if not self._dead:
            try:
                self._client.begin_transaction()
            except client.KafkaError as error:
                self._dead = _text(error)

    def send(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]
    ) -> None:
        """Hand one record over; `topic` is the full name."""
        if self._dead or self._refused or self._failed:
            return
        try:
            self._futures.append(self._client.send(topic, value, key, headers, partition))
        except client.MessageSizeTooLargeError as error:
            self._refused = RefusedRecord(len(self._futures), topic, partition, _text(error))
        except (client.KafkaError, ValueError) as error:  # ValueError: the topic has no such partition (any more)
            self._failed = _text(error)  # often because a record that was sent before has been refused meanwhile

    def commit(self, offsets: Mapping[tuple[str, int], int], metadata: Any) -> Verdict:
        """The verdict on everything since begin(); `metadata` as the consumer had it when it was assigned.

        Raises FencedInstance.
        """
        deadline = time.monotonic() + self.limit
        try:
            if verdict := self._records(deadline) or self._offsets(offsets, metadata, deadline):
                self._abort(deadline)
                return verdict
            _wait(internals.begin_commit(self._client), deadline)
        except client.FencedInstanceIdError:
            self._abort(deadline)
            raise FencedInstance(f"another process is {metadata.group_instance_id} of {metadata.group_id}") from None
        except client.KafkaError as error:
            self._dead = self._dead or _text(error)
            log.warning("transaction_unknown", reason=self._dead)
            return Unknown(self._dead)
        finally:
            self._futures = []
        return Committed()

    def abort(self) -> None:
        """Give up what was sent since begin(); where that is not answered, rebuild() does it."""
        self._futures = []
        self._refused = None
        self._abort(time.monotonic() + self.limit)

    def close(self) -> None:
        """Drop the client without waiting for anything; the broker or rebuild() aborts what was not committed."""
        found, self._client = self._client, None
        self._dead, self._refused, self._failed, self._futures = "closed", None, "", []
        if found is not None:
            internals.drop_producer(found)

    def _records(self, deadline: float) -> RefusedRecord | None:
        """Wait for every record. The client's flush() would not do: its limit counts anew for each batch."""
        if self._dead:
            raise client.KafkaError(self._dead)
        failed = []
        for index, future in enumerate(self._futures):
            if not future.is_done:
                self._settle(future, deadline)
            if future.exception is not None:
                failed.append((index, future))
        if self._refused or not (failed or self._failed):
            return self._refused
        suspects = [(index, future) for index, future in failed if isinstance(future.exception, client.RECORD_REFUSED)]
        if not suspects:
            raise client.KafkaError(self._failed) if self._failed else failed[0][1].exception
        return _refused_record(*max(suspects, key=lambda found: _size(found[1])))

    def _settle(self, future: Any, deadline: float) -> None:
        try:
            future.get(timeout=max(0.0, deadline - time.monotonic()))
        except client.KafkaError:
            if not future.is_done:
                raise

    def _offsets(self, offsets: Mapping[tuple[str, int], int], metadata: Any, deadline: float) -> RefusedByGroup | None:
        if not offsets:
            return None
        if metadata.generation_id < 0:  # a broker takes such offsets from anybody
            return RefusedByGroup("no member of the group")
        kept = {client.TopicPartition(*place): client.OffsetAndMetadata(end, "", -1) for place, end in offsets.items()}
        try:
            _wait(internals.send_offsets(self._client, kept, metadata), deadline)
        except client.GROUP_MOVED_ON as error:
            return RefusedByGroup(_text(error))
        return None

    def _abort(self, deadline: float) -> None:
        if self._dead:
            return
        try:
            _wait(internals.begin_abort(self._client), deadline)
        except client.KafkaError as error:
            self._dead = _text(error)


def remove_static_member(group: str, instance_id: str, limit: float = 8.0) -> bool:
    """Let the group give a named member's partitions to others at once; whether the broker said so in time."""
    answers: list[bool] = []
    # A thread: the administration client looks for the coordinator for as long as it takes.
    asking = threading.Thread(target=lambda: answers.append(_remove(group, instance_id, limit)), daemon=True)
    asking.start()
    asking.join(limit)
    return answers == [True]


def _remove(group: str, instance_id: str, limit: float) -> bool:
    try:
        admin = client.new_admin(request_timeout_ms=int(limit * 1000), bootstrap_timeout_ms=int(limit * 1000))
        try:
            found = admin.remove_group_members(group, [client.MemberToRemove(group_instance_id=instance_id)])
        finally:
            admin.close()
    except client.KafkaError as error:
        log.warning("member_not_removed", member=instance_id, error=_text(error))
        return False
    return all(outcome is client.NoError for outcome in found.values())


def _wait(result: Any, deadline: float) -> None:
    if not result.wait(timeout_ms=max(0.0, deadline - time.monotonic()) * 1000):
        raise client.KafkaTimeoutError(NO_ANSWER)


def _refused_record(index: int, future: Any) -> RefusedRecord:
    error = future.exception
    place = internals.place_of(future)
    return RefusedRecord(index, place.topic, place.partition, _text(error))


def _size(future: Any) -> int:
    """Bytes of key, value and headers; what the client counts as -1 is not there."""
    return sum(future.args[3:])


def _text(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]
