"""The mock cluster inside librdkafka, as typed ctypes functions."""

import ctypes
from functools import cache

MISSING = 'the embedded broker needs confluent-kafka: pip install "spillway[demo]"'
PRODUCER = 0  # rd_kafka_type_t; the mock only needs some client handle to live in

Handle = ctypes.c_void_p
Text = ctypes.c_char_p
Number = ctypes.c_int32
ApiKey = ctypes.c_int16
Count = ctypes.c_size_t

PROTOTYPES = {
    "rd_kafka_conf_new": (Handle,),
    "rd_kafka_conf_set": (ctypes.c_int, Handle, Text, Text, Text, Count),
    "rd_kafka_new": (Handle, ctypes.c_int, Handle, Text, Count),
    "rd_kafka_destroy": (None, Handle),
    "rd_kafka_err2str": (Text, ctypes.c_int),
    "rd_kafka_mock_cluster_new": (Handle, Handle, ctypes.c_int),
    "rd_kafka_mock_cluster_destroy": (None, Handle),
    "rd_kafka_mock_cluster_bootstraps": (Text, Handle),
    "rd_kafka_mock_group_initial_rebalance_delay_ms": (None, Handle, Number),
    "rd_kafka_mock_topic_create": (ctypes.c_int, Handle, Text, ctypes.c_int, ctypes.c_int),
    "rd_kafka_mock_topic_delete": (ctypes.c_int, Handle, Text),
    "rd_kafka_mock_partition_delete_records": (
        ctypes.c_int, Handle, Text, Number, ctypes.c_int64,
    ),
    "rd_kafka_mock_broker_set_down": (ctypes.c_int, Handle, Number),
    "rd_kafka_mock_broker_set_up": (ctypes.c_int, Handle, Number),
    "rd_kafka_mock_broker_set_rtt": (ctypes.c_int, Handle, Number, ctypes.c_int),
    "rd_kafka_mock_broker_set_host_port": (None, Handle, Number, Text, ctypes.c_int),
    "rd_kafka_mock_push_request_errors_array": (
        None, Handle, ApiKey, Count, ctypes.POINTER(ctypes.c_int),
    ),
    "rd_kafka_mock_clear_request_errors": (None, Handle, ApiKey),
}  # fmt: skip


class EmbeddedKafkaError(RuntimeError):
    """The embedded broker cannot do what was asked; the text is one line for an operator."""


@cache
def load() -> ctypes.CDLL:
    """Return librdkafka with every function of PROTOTYPES declared.

    Raises EmbeddedKafkaError when confluent-kafka is missing or its librdkafka is too old.
    """
    try:
        from confluent_kafka import cimpl
    except ImportError as error:
        raise EmbeddedKafkaError(MISSING) from error
    # Opening the extension module finds librdkafka wherever the wheel put it (.so or .dylib, hashed
    # names included): symbols are also looked up in what a library was linked against.
    library = ctypes.CDLL(cimpl.__file__)
    for name, (result, *arguments) in PROTOTYPES.items():
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise EmbeddedKafkaError(f"this confluent-kafka is too old: {name} is missing") from error
        function.restype, function.argtypes = result, arguments
    return library
