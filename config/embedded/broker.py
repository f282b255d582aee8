"""EmbeddedKafka: a Kafka-compatible broker in this process, for demos and wire-level tests."""

import ctypes
import os
import socket
from typing import Self

from .librdkafka import PRODUCER, EmbeddedKafkaError, load

HOST = "127.0.0.1"
ALL_BROKERS = -1
BROKER = 1
FIRST_JOIN_MS = 100
BACKLOG = 128


class EmbeddedKafka:
    def __init__(self, port: int | None = None):
        self.port = port
        self._client = self._cluster = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def start(self):
        self._mock = load()
        conf = self._mock.rd_kafka_conf_new()
        error = ctypes.create_string_buffer(256)
        self._client = self._mock.rd_kafka_new(PRODUCER, conf, error, len(error))
        if not self._client:
            raise EmbeddedKafkaError(error.value.decode())
        self._cluster = self._mock.rd_kafka_mock_cluster_new(self._client, 1)
        self._own = int(self._mock.rd_kafka_mock_cluster_bootstraps(self._cluster).decode().rpartition(":")[2])
        self._mock.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, FIRST_JOIN_MS)
        if self.port:
            self._take_port()
        return self

    def _take_port(self):
        fd = listener_fd(self._own)
        new = socket.create_server((HOST, self.port), backlog=BACKLOG)
        new.setblocking(False)
        os.dup2(new.fileno(), fd)
        new.close()
        self._mock.rd_kafka_mock_broker_set_host_port(self._cluster, BROKER, HOST.encode(), self.port)
        self._mock.rd_kafka_mock_broker_set_rtt(self._cluster, -1, 0)

    @property
    def bootstrap_servers(self):
        return f"{HOST}:{self.port or self._own}"

    def create_topic(self, name, partitions=4):
        return self._mock.rd_kafka_mock_topic_create(self._cluster, name.encode(), partitions, 1)
    def delete_topic(self, name):
        return self._mock.rd_kafka_mock_topic_delete(self._cluster, name.encode())
    def down(self):
        return self._mock.rd_kafka_mock_broker_set_down(self._cluster, -1)
    def up(self):
        return self._mock.rd_kafka_mock_broker_set_up(self._cluster, -1)
    def set_round_trip(self, ms):
        return self._mock.rd_kafka_mock_broker_set_rtt(self._cluster, -1, ms)
    def push_errors(self, key, *codes):
        a = (ctypes.c_int * len(codes))(*codes)
        self._mock.rd_kafka_mock_push_request_errors_array(self._cluster, key, len(codes), a)
    def delete_records(self, t, p, before):
        return self._mock.rd_kafka_mock_partition_delete_records(self._cluster, t.encode(), p, before)

    def stop(self):
        self._mock.rd_kafka_mock_cluster_destroy(self._cluster)
        self._mock.rd_kafka_destroy(self._client)


def listener_fd(port):
    for name in os.listdir("/dev/fd"):
        fd = int(name)
        try:
            with socket.socket(fileno=os.dup(fd)) as s:
                if s.family == socket.AF_INET and s.getsockname() == (HOST, port) and s.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    return fd
        except OSError:
            continue
    raise EmbeddedKafkaError("no")
