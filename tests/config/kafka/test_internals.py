"""kafka-python still has the private attributes that the three internals.py of config/kafka use."""

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import kafka
import pytest
from kafka.consumer.fetcher import Fetcher
from kafka.net.connection import KafkaConnection, SaslReauthenticator
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaTCPTransport
from kafka.producer.producer_batch import ProducerBatch
from kafka.record.legacy_records import LegacyRecordBatch
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from config.kafka import internals
from tests.tree import ROOT

FOLDER = Path(internals.__file__).parent
INTERNALS = ("internals.py", "producer_internals.py", "connection_internals.py")
NO_BROKER: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1", "api_version": (2, 3)}


class Clients(NamedTuple):
    """One of each thing that has private attributes; none of them ever meets a broker."""

    consumer: kafka.KafkaConsumer
    producer: kafka.KafkaProducer
    part: type
    batch: Any


@pytest.fixture(scope="module")
def clients() -> Iterator[Clients]:
    builder = MemoryRecordsBuilder(magic=2, compression_type=0, batch_size=1000)
    builder.append(1, b"k", b"v", [])
    builder.close()
    consumer, producer = kafka.KafkaConsumer(group_id="g", **NO_BROKER), kafka.KafkaProducer(**NO_BROKER)
    yield Clients(consumer, producer, Fetcher.PartitionRecords, MemoryRecords(bytes(builder.buffer())).next_batch())
    consumer.close()
    producer.close(timeout=0)


def takes(function: Any, *names: str) -> bool:
    return list(inspect.signature(function).parameters) == list(names)


# Attribute: what it is for, and what must be true of it.
USED: dict[str, tuple[str, Callable[[Clients], Any]]] = {
    "_fetcher": (
        "unpack_leanly: the fetcher makes what is fetched with its attribute PartitionRecords",
        lambda clients: (
            internals.unpack_leanly(clients.consumer)._fetcher.PartitionRecords is internals.LeanRecords
            and "self.PartitionRecords(" in inspect.getsource(Fetcher)
        ),
    ),
    "_next_partition_records": (
        "unpark: what was kept of paused partitions is looked at only while this is None",
        lambda clients: (
            clients.consumer._fetcher._next_partition_records is None
            and "if self._next_partition_records is None:\n            for tp in list(self._paused_partition_records):"
            in inspect.getsource(Fetcher.fetched_records)
        ),
    ),
    "_unpack_records": (
        "LeanRecords: PartitionRecords makes its records with it, of (tp, records, deserializers)",
        lambda clients: (
            takes(clients.part._unpack_records, "self", "tp", "records", "key_deserializer", "value_deserializer")
            and "self._unpack_records(tp, records, " in inspect.getsource(clients.part.__init__)
        ),
    ),
    "_consume_aborted_transactions_up_to": (
        "LeanRecords: adds to aborted_producer_ids who aborted up to an offset",
        lambda clients: takes(clients.part._consume_aborted_transactions_up_to, "self", "offset"),
    ),
    "_contains_abort_marker": (
        "LeanRecords: whether a batch marks the end of an aborted transaction",
        lambda clients: takes(clients.part._contains_abort_marker, "self", "batch"),
    ),
    "_is_batch_aborted": (
        "LeanRecords: whether a batch is part of an aborted transaction",
        lambda clients: takes(clients.part._is_batch_aborted, "self", "batch"),
    ),
    "_buffer": (
        "_unpacked: the bytes of the batch, compressed as they came",
        lambda clients: bytes(clients.batch._buffer)[clients.batch._pos :].endswith(b"\x02k\x02v\x00"),
    ),
    "_pos": (
        "_unpacked: where in _buffer the first record begins",
        lambda clients: clients.batch._pos == clients.batch.HEADER_STRUCT.size,
    ),
    "_parse_fetched_data": (
        "unpack_leanly: what the fetcher asks for each answer of the broker, also where that holds no batch",
        lambda clients: (
            takes(Fetcher._parse_fetched_data, "self", "completed_fetch")
            and "= self._parse_fetched_data(completion)" in inspect.getsource(Fetcher.fetched_records)
            and "raise Errors.KafkaError(" in inspect.getsource(Fetcher._parse_fetched_data)
        ),
    ),
    "_next_slice": (
        "SalvagedRecords: the bytes of the batch behind the one in hand, None behind the last",
        lambda _clients: MemoryRecords(bytes(20))._next_slice is not None and MemoryRecords(b"")._next_slice is None,
    ),
    "_read_key_value": (
        "_legacy: key and value of a batch from before Kafka 0.11",
        lambda _clients: takes(LegacyRecordBatch._read_key_value, "self", "pos"),
    ),
    "_decompressed": (
        "_legacy: whether _buffer holds the records themselves",
        lambda _clients: "if not self._decompressed:" in inspect.getsource(LegacyRecordBatch.__iter__),
    ),
    "_sender": (
        "close_producer: the producer's thread, to be ended by force",
        lambda clients: callable(clients.producer._sender.force_close) and clients.producer._sender.is_alive(),
    ),
    "_metadata": (
        "topic_ids: what the producer knows of its topics",
        lambda clients: (
            clients.producer._metadata.topic_id("nowhere") is None
            and clients.producer._metadata.metadata_refresh_in_progress in (True, False)
            and "self._metadata.request_update()" in inspect.getsource(type(clients.producer))
        ),
    ),
    "_closed": (
        "drop_producer: whether the destructor has nothing to do",
        lambda clients: clients.producer._closed is False,
    ),
    "_transaction_manager": (
        "init_transactions, send_offsets, begin_commit, begin_abort: what makes the results that are waited for",
        lambda clients: all(
            callable(getattr(clients.producer._transaction_manager, name))
            for name in ("initialize_transactions", "send_offsets_to_transaction", "begin_commit", "begin_abort")
        ),
    ),
    "_pending_txn_offset_commits": (
        "send_offsets: what a refused transaction leaves for the next one",
        lambda clients: clients.producer._transaction_manager._pending_txn_offset_commits == {},
    ),
    "_accumulator": (
        "send_batch: where batches wait for the thread",
        lambda clients: takes(clients.producer._accumulator._tp_lock, "tp"),
    ),
    "_appends_in_progress": (
        "send_batch: a client that is closed by force waits until nothing is added any more",
        lambda clients: (
            clients.producer._accumulator._appends_in_progress.get() == 0
            and "self._appends_in_progress.get()"
            in inspect.getsource(clients.producer._accumulator.abort_incomplete_batches)
        ),
    ),
    "_tp_lock": (
        "send_batch: held while the batches of a partition are changed",
        lambda clients: hasattr(clients.producer._accumulator._tp_lock(("t", 0)), "__enter__"),
    ),
    "_batches": (
        "send_batch: the batches of each partition, the next one first",
        lambda clients: clients.producer._accumulator._batches[("t", 0)].append("last") is None,
    ),
    "_incomplete": (
        "send_batch: batches without an answer",
        lambda clients: "self._incomplete.add(batch)" in inspect.getsource(clients.producer._accumulator.append),
    ),
    "_record_futures": (
        "send_batch: asked for only when a batch is split, for its length and then one by one",
        lambda clients: (
            ProducerBatch(kafka.TopicPartition("t", 0), None)._record_futures == []
            and inspect.getsource(type(clients.producer._accumulator)).count("_record_futures") == 3
        ),
    ),
    "_lock": (
        "is_fenced: held while a finished join becomes stable, then turns the heartbeats on",
        lambda clients: (
            hasattr(clients.consumer._coordinator._lock, "__enter__")
            and "self.state = MemberState.STABLE\n                self._enable_heartbeat()"
            in inspect.getsource(kafka.coordinator.base)
        ),
    ),
    "_heartbeat_enabled": (
        "is_fenced: what a fenced member turns off",
        lambda clients: (
            clients.consumer._coordinator._heartbeat_enabled is False
            and "_disable_heartbeat" in inspect.getsource(type(clients.consumer._coordinator)._do_heartbeat)
        ),
    ),
    "_offset_fetch_futures": (
        "committed_of: answers that came too late, kept for the next call",
        lambda clients: clients.consumer._coordinator._offset_fetch_futures == {},
    ),
    "_isolation_level": (
        "_uncommitted: what fetcher and coordinator ask by",
        lambda clients: (
            clients.consumer._fetcher._isolation_level == clients.consumer._coordinator._isolation_level
            and "isolation_level=self._isolation_level" in inspect.getsource(Fetcher._send_list_offsets_request)
            and "self._isolation_level == IsolationLevel.READ_COMMITTED"
            in inspect.getsource(type(clients.consumer._coordinator)._send_offset_fetch_request)
        ),
    ),
    "_manager": (
        "refresh_metadata: waits with a limit",
        lambda clients: takes(clients.consumer._client._manager.wait_for, "future", "timeout_ms"),
    ),
    "_client": (
        "topic_id_of: the cluster metadata, which know a topic's id",
        lambda clients: internals.topic_id_of(clients.consumer, "nowhere") == "",
    ),
    "_coordinator": (
        "keep_rejoining: the group's coordinator, which says `rejoining` and is asked to go on",
        lambda clients: (
            clients.consumer._coordinator.rejoining is False
            and callable(clients.consumer._coordinator.request_rejoin)
        ),
    ),
    "_net": (
        "nap: the client's own loop, whose sleep can be awaited",
        lambda clients: inspect.isawaitable(clients.consumer._net.sleep(0)),
    ),
    "_build_transport": (
        "ExplainingManager: makes the way to a broker, and reads the files of certificates",
        lambda _clients: takes(KafkaConnectionManager._build_transport, "self", "node", "timeout_at"),
    ),
    "_connect": (
        "ExplainingManager: what a new connection begins with, before anything is sent",
        lambda _clients: "self._net.call_soon(lambda: self._connect(node, conn, "
        in inspect.getsource(KafkaConnectionManager.get_connection),
    ),
    "_do_bootstrap": (
        "ExplainingManager: tries until its deadline, then raises KafkaTimeoutError, whatever the reason",
        lambda _clients: (
            takes(KafkaConnectionManager._do_bootstrap, "self", "deadline")
            and "raise Errors.KafkaTimeoutError(" in inspect.getsource(KafkaConnectionManager._do_bootstrap)
        ),
    ),
    "_sasl_authenticate": (
        "LastingConnection: the log-in, the first one and each later one",
        lambda _clients: (
            takes(KafkaConnection._sasl_authenticate, "self", "timeout_at")
            and "self._conn._sasl_authenticate()" in inspect.getsource(SaslReauthenticator)
        ),
    ),
    "_sock_recv": (
        "_data_first: what came, and the error behind it, for which the caller drops what came",
        lambda _clients: "recvd_data, err = self._sock_recv()" in inspect.getsource(KafkaTCPTransport),
    ),
    "_request_buffer": (
        "LastingConnection: what was asked while it logged in",
        lambda _clients: "self._request_buffer.append((request, future, timeout_at))"
        in inspect.getsource(KafkaConnection.send_request),
    ),
    "_send_request": (
        "LastingConnection: pauses the connection when as many are in flight as may be",
        lambda _clients: "self.pause('max_in_flight')" in inspect.getsource(KafkaConnection._send_request),
    ),
    "_reauth": (
        "LastingConnection: whether it is logging in again",
        lambda _clients: isinstance(SaslReauthenticator.is_reauthenticating, property),
    ),
    "_commit_offsets_sync_async": (
        "commit_inside: a commit that a rebalance callback can await",
        lambda clients: (
            inspect.iscoroutinefunction(clients.consumer._coordinator._commit_offsets_sync_async)
            and takes(clients.consumer._coordinator._commit_offsets_sync_async, "offsets", "timeout_ms")
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", USED)
def test_the_client_still_has_it(clients, name):
    purpose, holds = USED[name]
    try:
        found = holds(clients)
    except AttributeError:
        found = False
    assert found, f"kafka-python {kafka.__version__} changed {name}, needed by {purpose}"


def private_names(path: Path) -> set[str]:
    """Private attributes that a file asks somebody else for, and methods of the client that it overrides."""
    tree = ast.parse(path.read_text())
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    asked = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") and path.name not in INTERNALS)
    }  # fmt: skip
    return asked - own


def test_each_private_attribute_is_asserted():
    used = set().union(*(private_names(FOLDER / name) for name in INTERNALS))
    assert used == USED.keys() - {"_unpack_records"}


def test_no_other_file_uses_one():
    others = {
        path.relative_to(ROOT).as_posix(): private_names(path)
        for path in sorted(FOLDER.rglob("*.py"))
        if path.name not in INTERNALS
    }
    assert not {name: found for name, found in others.items() if found}


def test_a_member_is_confirmed_when_the_heartbeat_was_sent_that_was_answered(clients):
    heartbeat = clients.consumer._coordinator.heartbeat
    heartbeat.last_send, heartbeat.last_receive = 10.0, 11.0
    assert internals.confirmed_at(clients.consumer) == 10.0
    heartbeat.sent_heartbeat()
    assert internals.confirmed_at(clients.consumer) == float("-inf")
    heartbeat.received_heartbeat()
    assert internals.confirmed_at(clients.consumer) == heartbeat.last_send > 10.0
