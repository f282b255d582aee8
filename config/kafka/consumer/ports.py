"""What a consumer is put together from: a backend, a committer, a placing and a follower, each replaceable."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from config.kafka.client import Client, GroupMetadata
from config.kafka.consumer.writer import LogEndSeen
from config.kafka.positions import Start, Stopped, TopicPartition
from config.kafka.records import Record, RecordBatch


class ConsumerStopped(Exception):
    """The worker ends and waits for an operator; the text, one line, says why."""


class RecordSource(Protocol):
    """Which topics are read, by which group, and how their records are decoded."""

    name: str
    group: str
    topics: list[str]
    gathers: bool

    def prepare(self, batch: RecordBatch) -> object: ...


class Backend(Protocol):
    """What stands behind the polling thread and takes its batches; called from that thread only."""

    sequence: int  # of the batch submitted last
    done_sequence: int  # up to here every batch is final

    @property
    def busy(self) -> bool: ...
    @property
    def waiting(self) -> Exception | None:
        """Why nothing is written now although there is something to write."""

    @property
    def pressed(self) -> bool: ...
    @property
    def working(self) -> bool:
        """It has something to do besides the batches it was given."""

    def full(self) -> set[TopicPartition]:
        """Partitions of which it has so much that no more shall be read, while others go on."""

    def lost(self) -> set[TopicPartition]:
        """Partitions of which it has dropped what it was given: they are read again."""

    def deal(self, records: Sequence[Record]) -> Iterable[tuple[object, list[Record]]]: ...
    def submit(self, to: Any, batch: RecordBatch, timeout: float) -> bool: ...
    def beat(self, ends: Mapping[TopicPartition, LogEndSeen]) -> None: ...
    def drain(self, patience: float) -> bool: ...
    def close(self) -> None: ...


class Committer(Protocol):
    """Tells Kafka how far the backend has come."""

    def commit_soon(self) -> bool:
        """Send what is new without waiting; False when there was nothing."""

    def commit_now(self) -> None:
        """Commit what is new and wait for the answer, before the client is closed."""

    async def commit_inside(self) -> None:
        """The same inside a revocation, where calls of the client that block are refused."""


class Placing(Protocol):
    """Decides where partitions start."""

    def place(self, consumer: Client, waiting: set[TopicPartition]) -> Mapping[TopicPartition, Start | Stopped]:
        """Where to start in those of `waiting` that are decided; the others are asked for again after the next poll.

        It takes a second at most: the client drops a join that completes between two polls. A RetriableError says
        that the broker is away. It changes nothing where a partition is stopped or a reset accepted: see `confirmed`.
        """

    def confirmed(self, starts: Mapping[TopicPartition, Start | Stopped]) -> bool:
        """Stop these with their alarms, or reset them: the group has said since they were placed that they are ours.

        False: not now, ask again after the next poll.
        """


class Follower:
    """Is told what becomes of the membership; to be overridden where that matters."""

    def assigned(self, partitions: set[TopicPartition], metadata: GroupMetadata) -> None:
        """Inside the client's callback: `metadata` names the generation, the member and its instance."""

    def released(self, partitions: set[TopicPartition], lost: bool) -> None:
        """Inside the client's callback: after the commit of a revocation, or when another may long have them."""

    def recounted(self, topic: str, before: int, now: int) -> None:
        """A topic has another number of partitions than at first; may raise ConsumerStopped. Called after each poll."""

    def left(self) -> None:
        """The client is closed; a member with a name still stands in the group."""


@dataclass(frozen=True)
class Parts:
    """What one consumer works with."""

    backend: Backend
    committer: Committer
    placing: Placing
    accept_damage: bool = False  # go on behind what is damaged, as an operator said


PartsOf = Callable[[Client], Parts]
