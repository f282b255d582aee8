"""An embedded Kafka-compatible broker (librdkafka's mock cluster) for the demo and for tests on the wire."""

from __future__ import annotations

import ctypes
import os
import socket
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace

from django.conf import settings

from config.kafka.topics import topic_name
from config.processes.worker import stop_on_signal, watch_parent

# -- What it cannot do ---------------------------------------------------------------------------------------
API_VERSION = "2.3"  # up to which it knows the protocol

LIMITS = {
    "clients": f"its clients need KAFKA_API_VERSION={API_VERSION}, without which they find no broker, and "
    "KAFKA_TRANSACTIONS=off; with KAFKA_SESSION_TIMEOUT_MS=2000 rebalances are short",
    "admin": "no administration API: topics come from --topic, from KAFKA_TOPICS or from their first use, "
    "and cannot be configured or altered",
    "time": "no search by time (offsets_for_times finds nothing) and no LogAppendTime: "
    "a record keeps its producer's timestamp",
    "transactions": "transactions in name only: unfinished and aborted records are visible, "
    "offsets sent with a transaction are lost, an old producer is not fenced",
    "groups": "slow consumer groups: a rebalance lasts the session timeout less one second, members that answer "
    "after their leader are refused, and members with different assignors end the broker",
    "retention": "about 5 MiB a partition are kept, older records are dropped; nothing is compacted or expires by time",
    "memory": "everything is in memory: a restart loses topics, records and committed offsets",
    "security": "no TLS, no SASL, no quotas; it listens on 127.0.0.1 only",
}


# -- librdkafka's functions ----------------------------------------------------------------------------------
MISSING = 'the embedded broker needs confluent-kafka: pip install "spillway[demo]"'

Code = ctypes.c_int  # rd_kafka_resp_err_t, 0 is success
Handle = ctypes.c_void_p
Text = ctypes.c_char_p
Size = ctypes.c_size_t
Number = ctypes.c_int32

# Name without its prefix: result, arguments. As declared in rdkafka.h and rdkafka_mock.h.
FUNCTIONS: dict[str, Sequence[type | None]] = {
    "conf_new": (Handle,),
    "conf_set": (Code, Handle, Text, Text, Text, Size),
    "new": (Handle, ctypes.c_int, Handle, Text, Size),
    "destroy": (None, Handle),
    "err2str": (Text, Code),
    "mock_cluster_new": (Handle, Handle, ctypes.c_int),
    "mock_cluster_destroy": (None, Handle),
    "mock_cluster_bootstraps": (Text, Handle),
    "mock_group_initial_rebalance_delay_ms": (None, Handle, Number),
    "mock_topic_create": (Code, Handle, Text, ctypes.c_int, ctypes.c_int),
    "mock_broker_set_up": (Code, Handle, Number),
    "mock_broker_set_host_port": (None, Handle, Number, Text, ctypes.c_int),
}


class EmbeddedKafkaError(RuntimeError):
    """The embedded broker cannot do what was asked; the text is one line for an operator."""


@cache
def load() -> SimpleNamespace:
    """The functions of the librdkafka inside confluent-kafka, without their prefix `rd_kafka_`.

    Raises EmbeddedKafkaError when confluent-kafka is not installed or too old.
    """
    try:
        from confluent_kafka import cimpl
    except ImportError as error:
        raise EmbeddedKafkaError(MISSING) from error
    # A symbol is also looked for in what a library was linked against, so the extension module leads to
    # librdkafka wherever the wheel has put it and whatever it is called there (.so, .dylib, with a hash).
    return bind(ctypes.CDLL(cimpl.__file__))


def bind(library: ctypes.CDLL, functions: Mapping[str, Sequence[type | None]] = FUNCTIONS) -> SimpleNamespace:
    """The functions of `library`, typed: ctypes alone would cut 64-bit handles to an int."""
    bound = SimpleNamespace()
    for name, (result, *arguments) in functions.items():
        try:
            function = getattr(library, f"rd_kafka_{name}")
        except AttributeError as error:
            raise EmbeddedKafkaError(f"confluent-kafka is older than 2.15: no rd_kafka_{name}") from error
        function.restype, function.argtypes = result, arguments
        setattr(bound, name, function)
    return bound


# -- A port of our choice ------------------------------------------------------------------------------------
HOST = "127.0.0.1"


def listen(port: int) -> socket.socket:
    """A listening socket on HOST:port; raises EmbeddedKafkaError when it cannot be had."""
    try:
        listener = socket.create_server((HOST, port), backlog=128)
    except OSError as error:
        reason = os.strerror(error.errno or 0)  # error.strerror repeats the address
        raise EmbeddedKafkaError(f"--port {port}: {HOST}:{port} cannot be used: {reason}") from error
    listener.setblocking(False)
    return listener


def replace_listener(port: int, listener: socket.socket) -> None:
    """Put `listener` in the place of this process's own listening socket on HOST:port.

    The mock keeps using its file descriptor and accepts from the new socket, from its next poll on. So every
    byte travels directly: no proxy, a refused connection when it is gone, the same address after a restart.
    """
    # Not inheritable: a child process must not keep the port.
    os.dup2(listener.fileno(), _descriptor(port), inheritable=False)
    listener.close()


def _descriptor(port: int) -> int:
    for name in os.listdir("/dev/fd"):
        if _listens_on(int(name), port):
            return int(name)
    raise EmbeddedKafkaError(f"the mock broker's socket on port {port} was not found")


def _listens_on(descriptor: int, port: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(descriptor)) as candidate:
            accepts = candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            return bool(accepts) and candidate.getsockname() == (HOST, port)
    except OSError:  # not a socket, or the descriptor of the listing itself
        return False


# -- The broker ----------------------------------------------------------------------------------------------
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
        self._client: int | None = None
        self._handle: int | None = None

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
    def _library(self) -> SimpleNamespace:
        return load()

    def _new_client(self) -> int:
        reason = ctypes.create_string_buffer(256)
        conf = self._library.conf_new()
        self._library.conf_set(conf, b"log_level", WARNING, reason, len(reason))
        client = self._library.new(PRODUCER, conf, reason, len(reason))
        if not client:
            raise EmbeddedKafkaError(f"librdkafka does not start: {reason.value.decode()}")
        return client

    @property
    def _cluster(self) -> int:
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


# -- As a process of its own ---------------------------------------------------------------------------------
def serve(
    port: int | None, topics: Mapping[str, int], ready: Callable[[str], None], *, with_parent: bool = False
) -> None:
    """Run the broker until SIGTERM or SIGINT, or, `with_parent`, until the parent process is gone.

    `topics` is {name on the broker: partitions}; `ready` gets host:port once clients can connect.
    Raises EmbeddedKafkaError.
    """
    with stop_on_signal() as stop, EmbeddedKafka(port) as kafka:
        if with_parent:
            watch_parent(stop.set)
        for name, partitions in topics.items():
            kafka.create_topic(name, partitions)
        ready(kafka.bootstrap_servers)
        stop.wait()


def project_topics() -> dict[str, int]:
    """Every topic in KAFKA_TOPICS, as `serve` takes them."""
    return {topic_name(name): entry["partitions"] for name, entry in settings.KAFKA_TOPICS.items()}


def port_argument(text: str) -> int:
    """A TCP port; raises ArgumentTypeError."""
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ArgumentTypeError(f"{text!r} is not a port between 1 and 65535")
    return int(text)


def topic_argument(text: str) -> tuple[str, int]:
    """NAME:PARTITIONS; raises ArgumentTypeError."""
    name, _, partitions = text.rpartition(":")
    if not name or not partitions.isdecimal() or not 0 < int(partitions) < 1000:
        raise ArgumentTypeError(f"{text!r} is not NAME:PARTITIONS with 1 to 999 partitions")
    return name, int(partitions)
