"""A producer whose transactions end in a verdict, each within a time limit of ours.

kafka-python 3.0.12 forgets a transactional request whose connection breaks: its own commit_transaction() and
send_offsets_to_transaction() then never return. And it commits without an error a transaction all of whose
records expired before they were sent. So every wait here is limited, and what became of every record is looked at.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from config.kafka import client, producer_internals
from config.kafka.wire_format import PackedBatch, PackedRecords, packed
from config.telemetry.logs import log
from config.telemetry.redaction import one_line

NO_ANSWER = "no answer within the limit"
MOST_BYTES = 256 * 1024  # of a batch of more than one record
OVERHEAD = 100  # at most, of what is put around a record


@dataclass(frozen=True)
class Committed:
    """Records and offsets are there, exactly once."""


@dataclass(frozen=True)
class RefusedByGroup:
    """The group has moved on: nothing of the transaction counts, and the member has to join again."""

    reason: str


@dataclass(frozen=True)
class FencedInstance(RefusedByGroup):
    """Another member has this one's name: another process, or this one under the id that it is just getting.

    A member that was thrown out while the broker was away joins again under a new id. Which of the two it is, the
    group tells the polling thread.
    """


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


NotCommitted = RefusedByGroup | RefusedRecord | Unknown
Verdict = Committed | NotCommitted


class TransactionalProducer:
    """One transactional id. Call rebuild() before the first begin() and after every Unknown; one thread at a time.

    begin(), send() and abort() raise nothing that the broker can cause: commit() tells it. Only a missing right raises
    there, an AuthorizationError: it fails every transaction, whatever the records. No call takes longer
    than `limit` seconds, which is kept below the broker's transaction timeout of 10 s.
    """

    def __init__(self, transactional_id: str, limit: float = 8.0, **overrides: object) -> None:
        self.transactional_id = transactional_id
        self.limit = limit
        self.overrides = overrides
        self._client: client.kafka.KafkaProducer = None
        self._dead = "rebuild() has not been called"
        self._refused: RefusedRecord | None = None
        self._failed = ""  # why the client took no more records of this transaction
        self._sends = 0
        self._open: dict[tuple[str, int], PackedBatch] = {}
        self._sent: list[PackedBatch] = []

    @property
    def usable(self) -> bool:
        """Whether begin() makes sense; otherwise rebuild()."""
        return not self._dead

    def rebuild(self, member: client.GroupMetadata | None = None) -> None:
        """A new client of the same id, which settles the old one's transaction; raises KafkaError: try again later.

        `member`: the group's metadata of a member with a name. While another one has the name, nothing is built: it
        has the transactional id as well, and would be fenced. Whether it is really another one, or this process
        under the id it has just got, the group tells the polling thread.
        """
        deadline = time.monotonic() + self.limit
        self.close()
        self._forget()
        if member is not None and member.group_instance_id:
            holder = holder_of_name(member.group_id, member.group_instance_id, self.limit)
            if holder not in ("", member.member_id):
                raise client.KafkaError(f"another member is {member.group_instance_id} of {member.group_id} now")
        started = client.new_transactional_producer(self.transactional_id, self.limit, **self.overrides)
        try:
            _wait(producer_internals.init_transactions(started), deadline)
        except client.KafkaError:
            producer_internals.drop_producer(started)
            raise
        self._client, self._dead = started, ""

    def begin(self) -> None:
        """Start a transaction; what was sent and neither committed nor aborted is aborted."""
        if self._sends:
            self.abort()
        self._refused, self._failed = None, ""
        if not self._dead:
            try:
                self._client.begin_transaction()
            except client.KafkaError as error:
                self._dead = one_line(error)[:500]

    def send(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:  # fmt: skip
        """Take one record; `topic` is the full name. It leaves with others, at the latest when commit() is called."""
        if self._dead or self._refused:
            return
        batch = self._open.get((topic, partition)) or self._opened(topic, partition)
        record = packed(len(batch.sends), key, value, headers)
        if len(batch.body) + len(record) > MOST_BYTES and batch.sends:
            self._hand_over(batch)
            batch = self._opened(topic, partition)
            record = packed(0, key, value, headers)
        if len(record) + OVERHEAD > client.MAX_REQUEST_BYTES:
            reason = f"{len(record)} bytes, a request has at most {client.MAX_REQUEST_BYTES}"
            self._refused = RefusedRecord(self._sends, topic, partition, reason)
            return
        batch.body += record
        batch.sends.append((self._sends, len(record)))
        self._sends += 1

    def commit(self, offsets: Mapping[tuple[str, int], int], metadata: client.GroupMetadata) -> Verdict:
        """The verdict on everything since begin(); `metadata` as the consumer had it when it was assigned."""
        deadline = time.monotonic() + self.limit
        try:
            if verdict := self._records(deadline) or self._offsets(offsets, metadata, deadline):
                self._abort(deadline)
                return verdict
            _wait(producer_internals.begin_commit(self._client), deadline)
        except client.FencedInstanceIdError:
            self._abort(deadline)
            return FencedInstance(f"another member is {metadata.group_instance_id} of {metadata.group_id}")
        except client.AuthorizationError:
            raise
        except client.KafkaError as error:
            self._dead = self._dead or one_line(error)[:500]
            log.warning("transaction_unknown", reason=self._dead)
            return Unknown(self._dead)
        finally:
            self._forget()
        return Committed()

    def abort(self) -> None:
        """Give up what was sent since begin(); where that is not answered, rebuild() does it."""
        self._forget()
        self._refused = None
        self._abort(time.monotonic() + self.limit)

    def close(self) -> None:
        """Drop the client without waiting for anything; the broker or rebuild() aborts what was not committed."""
        producer, self._client = self._client, None
        self._dead, self._refused, self._failed = "closed", None, ""
        if producer is not None:
            producer_internals.drop_producer(producer)

    def _opened(self, topic: str, partition: int) -> PackedBatch:
        batch = self._open[topic, partition] = PackedBatch(topic, partition)
        return batch

    def _hand_over(self, batch: PackedBatch) -> None:
        """Let the client send it."""
        del self._open[batch.topic, batch.partition]
        if self._dead or self._failed or not batch.sends:
            return
        try:
            records = PackedRecords(batch.body, len(batch.sends), int(time.time() * 1000))
            batch.sent = producer_internals.send_batch(self._client, batch.topic, batch.partition, records)
        except client.AuthorizationError:
            raise
        except (client.KafkaError, ValueError) as error:  # ValueError: the topic has no such partition (any more)
            self._failed = one_line(error)[
                :500
            ]  # often because a record that was sent before has been refused meanwhile
        else:
            self._sent.append(batch)

    def _forget(self) -> None:
        self._sends, self._open, self._sent = 0, {}, []

    def _records(self, deadline: float) -> RefusedRecord | None:
        """Wait for every record. The client's flush() would not do: its limit counts anew for each batch."""
        for batch in list(self._open.values()):
            self._hand_over(batch)
        if self._dead:
            raise client.KafkaError(self._dead)
        producer_internals.wake(self._client)
        failed = [
            (error, batch, position)
            for batch in self._sent
            for position, error in producer_internals.errors_of(batch.sent, deadline)
        ]
        if self._refused or not (failed or self._failed):
            return self._refused
        if denied := next(
            (failure[0] for failure in failed if isinstance(failure[0], client.AuthorizationError)), None
        ):
            raise denied
        suspects = [failure for failure in failed if isinstance(failure[0], client.RECORD_REFUSED)]
        if not suspects:
            raise client.KafkaError(self._failed) if self._failed else failed[0][0]
        error, batch, position = max(suspects, key=lambda failure: failure[1].sends[failure[2]][1])
        return RefusedRecord(batch.sends[position][0], batch.topic, batch.partition, one_line(error)[:500])

    def _offsets(
        self, offsets: Mapping[tuple[str, int], int], metadata: client.GroupMetadata, deadline: float
    ) -> RefusedByGroup | None:
        if not offsets:
            return None
        if metadata.generation_id < 0:  # a broker takes such offsets from anybody
            return RefusedByGroup("no member of the group")
        kept = {client.TopicPartition(*place): client.OffsetAndMetadata(end, "", -1) for place, end in offsets.items()}
        try:
            _wait(producer_internals.send_offsets(self._client, kept, metadata), deadline)
        except client.GROUP_MOVED_ON as error:
            return RefusedByGroup(one_line(error)[:500])
        return None

    def _abort(self, deadline: float) -> None:
        if self._dead:
            return
        try:
            _wait(producer_internals.begin_abort(self._client), deadline)
        except client.KafkaError as error:
            self._dead = one_line(error)[:500]


def remove_static_member(group: str, instance_id: str, limit: float = 8.0) -> bool:
    """Let the group give a named member's partitions to others at once; whether the broker said so in time."""
    member = client.MemberToRemove(group_instance_id=instance_id)
    try:
        outcomes = _asked(lambda admin: admin.remove_group_members(group, [member]), limit)
    except client.KafkaError as error:
        log.warning("member_not_removed", member=instance_id, error=one_line(error)[:500])
        return False
    return all(outcome is client.NoError for outcome in outcomes.values())


def holder_of_name(group: str, instance_id: str, limit: float = 8.0) -> str:
    """The id of the member that has this name in the group now, "" when none has; raises KafkaError."""
    members = _asked(lambda admin: admin.describe_groups([group]), limit)[group]["members"]
    return next((member["member_id"] for member in members if member["group_instance_id"] == instance_id), "")


def _asked(question: Callable[[client.kafka.KafkaAdminClient], dict], limit: float) -> dict:
    """What an administration client answers within `limit` seconds; raises KafkaError."""
    answers: list[dict | client.KafkaError] = []

    def ask() -> None:
        try:
            admin = client.new_admin(request_timeout_ms=int(limit * 1000), bootstrap_timeout_ms=int(limit * 1000))
            try:
                answers.append(question(admin))
            finally:
                admin.close()
        except client.KafkaError as error:
            answers.append(error)

    # A thread: the administration client looks for the coordinator for as long as it takes.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(limit)
    answer = answers[0] if answers else client.KafkaTimeoutError(NO_ANSWER)
    if isinstance(answer, client.KafkaError):
        raise answer
    return answer


def _wait(result: producer_internals.TransactionalRequestResult, deadline: float) -> None:
    if not result.wait(timeout_ms=max(0.0, deadline - time.monotonic()) * 1000):
        raise client.KafkaTimeoutError(NO_ANSWER)
