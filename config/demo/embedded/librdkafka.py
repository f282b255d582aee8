"""The mock cluster inside librdkafka, as ctypes functions with their types."""

import ctypes
from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

MISSING = 'the embedded broker needs confluent-kafka: pip install "spillway[demo]"'

Code = ctypes.c_int  # rd_kafka_resp_err_t, 0 is success
Handle = ctypes.c_void_p
Text = ctypes.c_char_p
Size = ctypes.c_size_t
Number = ctypes.c_int32

# Name without its prefix: result, arguments. As declared in rdkafka.h and rdkafka_mock.h.
FUNCTIONS: dict[str, tuple[Any, ...]] = {
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


def bind(library: ctypes.CDLL, functions: Mapping[str, tuple[Any, ...]] = FUNCTIONS) -> SimpleNamespace:
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
