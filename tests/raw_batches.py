"""Batches sent as they are: the client's own producer would build them."""

from __future__ import annotations

from typing import Any

from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatch

from config.kafka import client
from tests.config.kafka.test_unpack import fix
from tests.crash.wire import wait_for

HEADER = DefaultRecordBatch.HEADER_STRUCT.size

NO_LEADER = {5, 6}  # error codes of the broker: the first while a leader is chosen, the second from another one
Topic = ProduceRequest.TopicProduceData
Partition = Topic.PartitionProduceData


def compressed(batch: bytes, codec: int, content: bytes) -> bytes:
    """The batch with this as its compressed content, and a checksum that is right."""
    data = bytearray(batch[:HEADER] + content)
    return bytes(fix(data, _1=len(data) - DefaultRecordBatch.AFTER_LEN_OFFSET, _5=codec))


def folded_back(batch: bytes) -> bytes:
    """The batch, of two records of one size, with the first one twice: brokers take it, its offsets go back."""
    content = batch[HEADER:]
    half = len(content) // 2
    return bytes(fix(bytearray(batch[:HEADER] + content[:half] * 2)))


class RawProducer:
    """Sends bytes as a batch to a partition, without looking at them; `send` says with which error the broker answers."""

    def __init__(self) -> None:
        self._client: Any = client.new_consumer(None)

    def send(self, topic: str, partition: int, batch: bytes) -> int:
        """The broker's error code: 0 when it took the batch. A topic that was just made may have no leader yet."""
        codes: list[int] = []
        wait_for(lambda: codes.append(self._try(topic, partition, batch)) or codes[-1] not in NO_LEADER, 30, "a leader")
        return codes[-1]

    def _try(self, topic: str, partition: int, batch: bytes) -> int:
        self._client.partitions_for_topic(topic)
        data = [Topic(name=topic, partition_data=[Partition(index=partition, records=bytes(batch))])]
        request = ProduceRequest(
            transactional_id=None, acks=-1, timeout_ms=10_000, topic_data=data, min_version=3, max_version=9
        )
        manager = self._client._client._manager
        node = manager.cluster.leader_for_partition(client.TopicPartition(topic, partition))
        answer = self._client._net.run(manager.wait_for, manager.send(request, node_id=node), 20_000)
        return int(answer.responses[0].partition_responses[0].error_code)

    def close(self) -> None:
        self._client.close(autocommit=False)
