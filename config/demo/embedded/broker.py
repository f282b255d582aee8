"""EmbeddedKafka: the mock broker of librdkafka, held by this process and driven from Python."""

from __future__ import annotations

import ctypes
from typing import Any

from config.demo.embedded.librdkafka import EmbeddedKafkaError, load
from config.demo.embedded.listener import HOST, listen, replace_listener

PRODUCER = 0  # librdkafka's kind of client; the mock lives in one and does not use it
BROKER = 1
FIRST_JOIN_MS = 100  # how long a new group waits for more members; a broker's default is 3 s
WARNING = b"4"


class EmbeddedKafka:
    """One Kafka-compatible broker on 127.0.0.1, as a context manager or with start() and stop().

    `port` None means any free one. Everything is in memory; LIMITS says what it cannot do. Methods raise
    EmbeddedKafkaError when the broker refuses or does not run.
    """

    def __init__(self, port: int | None = None) -> None:
        self.port = port
        self._client: Any = None
        self._handle: Any = None

    def __enter__(self) -> EmbeddedKafka:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self) -> EmbeddedKafka:
        """Listen; when this returns, clients can connect."""
        listener = listen(self.port) if self.port else None
        self._client = self._new_client()
        self._handle = self._library.mock_cluster_new(self._client, 1)
        self._library.mock_group_initial_rebalance_delay_ms(self._handle, FIRST_JOIN_MS)
        if listener:
            replace_listener(self._own_port, listener)
            self._library.mock_broker_set_host_port(self._handle, BROKER, HOST.encode(), self.port)
            self.up()  # changes nothing, but ends the wait on the old socket
        return self

    def stop(self) -> None:
        """Close every connection and forget everything; harmless when it does not run."""
        if self._handle:
            self._library.mock_cluster_destroy(self._handle)
            self._library.destroy(self._client)
        self._handle = self._client = None

    @property
    def bootstrap_servers(self) -> str:
        """host:port, for clients."""
        return f"{HOST}:{self.port or self._own_port}"

    def create_topic(self, name: str, partitions: int) -> None:
        """Topics that nobody created appear on their first use, with 4 partitions."""
        if partitions < 1:
            raise EmbeddedKafkaError(f"topic {name}: {partitions} partitions are not enough")
        self._check(self._library.mock_topic_create(self._cluster, name.encode(), partitions, 1))

    def up(self) -> None:
        """Accept connections again."""
        self._check(self._library.mock_broker_set_up(self._cluster, BROKER))

    @property
    def _library(self) -> Any:
        return load()

    def _new_client(self) -> Any:
        reason = ctypes.create_string_buffer(256)
        conf = self._library.conf_new()
        self._library.conf_set(conf, b"log_level", WARNING, reason, len(reason))
        client = self._library.new(PRODUCER, conf, reason, len(reason))
        if not client:
            raise EmbeddedKafkaError(f"librdkafka does not start: {reason.value.decode()}")
        return client

    @property
    def _cluster(self) -> Any:
        # librdkafka would follow a null pointer.
        if not self._handle:
            raise EmbeddedKafkaError("the embedded broker does not run")
        return self._handle

    @property
    def _own_port(self) -> int:
        address = self._library.mock_cluster_bootstraps(self._cluster)
        return int(address.rpartition(b":")[2])

    def _check(self, code: int) -> None:
        if code:
            raise EmbeddedKafkaError(self._library.err2str(code).decode())
