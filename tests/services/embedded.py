"""The embedded broker for tests: faults on demand, and what a bare kafka-python client has to be told."""

from __future__ import annotations

import ctypes
from functools import cache
from types import SimpleNamespace
from typing import Any

from config.demo.embedded_kafka import BROKER, FUNCTIONS, Code, EmbeddedKafka, Handle, Number, Size, Text, bind

# kafka-python opens with a request this broker answers in a form it cannot read, unless it is told a version
# of at most 2.3; from 2.4 on the group requests are misread, too.
CLIENT_OPTIONS: dict[str, Any] = {"api_version": (2, 3)}

# session_timeout_ms: a rebalance lasts this less one second, a killed member keeps its partitions for about
#   twice this. Measured until the successor has them: 3-4 s after a kill, 1-2.5 s after a clean end
#   (with 6000: 11-12 s and 5-6 s). A group_instance_id shortens nothing, it makes the clean end a kill.
# fetch_max_wait_ms: a waiting fetch is not woken by a new record; half of this is the mean latency.
# check_crcs: the end marker of a transaction carries no checksum.
CONSUMER_OPTIONS: dict[str, Any] = {
    **CLIENT_OPTIONS,
    "session_timeout_ms": 2000,
    "heartbeat_interval_ms": 300,
    "fetch_max_wait_ms": 50,
    "check_crcs": False,
}

FAULTS = {
    "mock_partition_delete_records": (Code, Handle, Text, Number, ctypes.c_int64),
    "mock_broker_set_down": (Code, Handle, Number),
    "mock_broker_set_rtt": (Code, Handle, Number, ctypes.c_int),
    "mock_push_request_errors_array": (None, Handle, ctypes.c_int16, Size, ctypes.POINTER(Code)),
    "mock_clear_request_errors": (None, Handle, ctypes.c_int16),
}


@cache
def functions() -> SimpleNamespace:
    from confluent_kafka import cimpl

    return bind(ctypes.CDLL(cimpl.__file__), FUNCTIONS | FAULTS)


class FaultyKafka(EmbeddedKafka):
    """The embedded broker, which loses records and connections when it is told."""

    @property
    def _library(self) -> SimpleNamespace:
        return functions()

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Drop what is older than offset `before`, as retention does."""
        self._check(self._library.mock_partition_delete_records(self._cluster, topic.encode(), partition, before))

    def down(self) -> None:
        """Cut all connections and refuse new ones, as a broker that died; it keeps its records. On a free port only."""
        self._check(self._library.mock_broker_set_down(self._cluster, BROKER))

    def set_round_trip(self, milliseconds: int) -> None:
        """Delay every answer from now on."""
        self._check(self._library.mock_broker_set_rtt(self._cluster, BROKER, milliseconds))

    def push_errors(self, api_key: int, *codes: int) -> None:
        """Answer the next requests with this API key (0 is Produce) with these error codes, one each."""
        errors = (ctypes.c_int * len(codes))(*codes)
        self._library.mock_push_request_errors_array(self._cluster, api_key, len(codes), errors)

    def clear_errors(self, api_key: int) -> None:
        """Forget the pushed errors that no request has met yet."""
        self._library.mock_clear_request_errors(self._cluster, api_key)
