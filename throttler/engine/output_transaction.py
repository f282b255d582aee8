"""One Kafka transaction: outputs, expiries, forwarded records, changelog and input offsets, or nothing of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from config.kafka import Record, topic_name
from config.kafka.client import GroupMetadata
from config.kafka.positions import TopicPartition
from config.kafka.records import Header
from config.kafka.transactional_producer import Committed, Verdict
from config.telemetry import tracing
from throttler.engine.decisions import Decisions, Decoded, unpacked
from throttler.engine.partition import OwnedPartition
from throttler.lanes.state import CHANGELOG, PARTITION_KEY, LaneState, lane_bytes, partition_bytes
from throttler.messages import FORWARDED, expired, output, output_headers
from throttler.messages import INPUT as INPUT
from throttler.overflow.store import OverflowRow

OUTPUT, EXPIRED = "notifications-out", "notifications-expired"


class Sender(Protocol):
    """What sends: a `TransactionalProducer`, or a `PlainSender`."""

    @property
    def usable(self) -> bool: ...
    def rebuild(self, member: GroupMetadata | None = None) -> None: ...

    def begin(self) -> None: ...
    def send(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: list[Header]
    ) -> None: ...
    def commit(self, offsets: Mapping[TopicPartition, int], metadata: GroupMetadata) -> Verdict: ...
    def close(self) -> None: ...


class OutputTransaction:
    """Turns decisions into records; sizes were checked when the input was decoded.

    Output and changelog have as many partitions as the input, and each record goes to that of its input.
    """

    def __init__(self, producer: Sender) -> None:
        self.producer = producer
        self.input, self.output = topic_name(INPUT), topic_name(OUTPUT)
        self.expired, self.changelog = topic_name(EXPIRED), topic_name(CHANGELOG)

    def run(
        self, decisions: Decisions, parts: Sequence[OwnedPartition], forgotten: Iterable[tuple[OwnedPartition, str]],
        metadata: GroupMetadata, began_us: int = 0,
    ) -> Verdict:  # fmt: skip
        """Send all of it in one transaction; returns the producer's verdict. `parts`: those whose offset moves on."""
        live, drained = len(decisions.live), len(decisions.drained)
        gone = len(decisions.expired) + len(decisions.overdue)
        with tracing.span(
            "throttle", "", links=_traces(decisions), kind="producer", live=live, drained=drained, expired=gone
        ):
            self.producer.begin()
            self._send_messages(decisions)
            self._send_changelog(decisions.changed, parts, forgotten, began_us)
            verdict = self.producer.commit({(self.input, part.number): part.position for part in parts}, metadata)
            if not isinstance(verdict, Committed):
                tracing.fail(type(verdict).__name__)
            return verdict

    @staticmethod
    def sent_as(index: int, decisions: Decisions) -> Record | OverflowRow | None:
        """The input record or the buffered row behind the send of this index; None: it was the changelog's."""
        sent: list[Record | OverflowRow] = [
            *(decoded.record for decoded in decisions.live), *(row for _part, row in decisions.drained),
            *(decoded.record for decoded, _reason in decisions.expired),
            *(row for _part, row, _reason in decisions.overdue),
            *(decoded.record for decoded, _partition in decisions.forwarded),
        ]  # fmt: skip
        return sent[index] if index < len(sent) else None

    def _send_messages(self, decisions: Decisions) -> None:
        send = self.producer.send
        for decoded in decisions.live:
            record = decoded.record
            send(self.output, record.partition, _key(decoded), output(_value(record), False), _headers(record))
        for part, row in decisions.drained:
            send(self.output, part.number, row.customer_id.encode(), output(row.payload, True), self._headers_of(row))
        for decoded, reason in decisions.expired:
            record = decoded.record
            send(self.expired, record.partition, _key(decoded), expired(_value(record), reason), _headers(record))
        for part, row, reason in decisions.overdue:
            value = expired(row.payload, reason)
            send(self.expired, part.number, row.customer_id.encode(), value, self._headers_of(row))
        for decoded, partition in decisions.forwarded:
            record = decoded.record
            mark = (FORWARDED, f"{record.topic}/{record.partition}/{record.offset}".encode())
            send(self.input, partition, _key(decoded), record.value, [*(record.headers or ()), mark])

    def _send_changelog(
        self, changed: Iterable[tuple[OwnedPartition, LaneState]], parts: Iterable[OwnedPartition],
        forgotten: Iterable[tuple[OwnedPartition, str]], began_us: int,
    ) -> None:  # fmt: skip
        send = self.producer.send
        for part, lane in changed:
            value = lane_bytes(lane, part.epoch, part.topic_id)
            send(self.changelog, part.number, lane.customer.encode(), value, [])
        for part, customer in forgotten:
            send(self.changelog, part.number, customer.encode(), None, [])
        for part in parts:
            value = partition_bytes(part.record(began_us))
            send(self.changelog, part.number, PARTITION_KEY, value, [])

    def _headers_of(self, row: OverflowRow) -> list[Header]:
        return output_headers(unpacked(row.headers), self.input, row.partition, row.offset)


def _traces(decisions: Decisions) -> Iterator[str]:
    """Of what leaves, as it came and from the store; headers of rows are unpacked only where they hold one."""
    records = (*decisions.live, *(decoded for decoded, _ in (*decisions.expired, *decisions.forwarded)))
    yield from (tracing.traceparent_in(decoded.record.headers) for decoded in records)
    for row in (*(row for _part, row in decisions.drained), *(row for _part, row, _reason in decisions.overdue)):
        if b"traceparent" in row.headers:
            yield tracing.traceparent_in(unpacked(row.headers))


def _key(decoded: Decoded) -> bytes:
    """The customer in the value decides, not the record's key."""
    assert decoded.message is not None  # noqa: S101 (for the type checker)
    return decoded.message.customer_id.encode()


def _value(record: Record) -> bytes:
    return bytes(record.value or b"")


def _headers(record: Record) -> list[Header]:
    return output_headers(record.headers or (), record.topic, record.partition, record.offset)
