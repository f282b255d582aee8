"""The same transfer requests in JSON, Avro and Protobuf, through the real process in turns."""

from __future__ import annotations

import io
import json
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import fastavro
import msgspec
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2  # noqa: F401 (its file is used)

from config.kafka import topic_name
from tests.bench import events, worker
from tests.bench.aggregator import ingest

TOPIC = "transfer-requests"
NAMES = ("json", "avro", "protobuf")
SETTINGS = "tests.bench.aggregator.format_settings"
ITEM = {
    "type": "record",
    "name": "Item",
    "fields": [{"name": "sku", "type": "string"}, {"name": "quantity", "type": "long"}],
}
AVRO = {
    "type": "record", "name": "Request", "fields": [
        {"name": "order_id", "type": "string"}, {"name": "location_id", "type": "string"},
        {"name": "ordered_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "items", "type": {"type": "array", "items": ITEM}}, {"name": "details", "type": "string"},
    ],
}  # fmt: skip
PROTO = """
syntax: "proto3" name: "bench_formats.proto" package: "bench" dependency: "google/protobuf/timestamp.proto"
message_type { name: "Request"
  field { name: "order_id" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "location_id" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "ordered_at" number: 3 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
  field { name: "items" number: 4 type: TYPE_MESSAGE type_name: ".bench.Request.Item" label: LABEL_REPEATED }
  field { name: "details" number: 5 type: TYPE_STRING label: LABEL_OPTIONAL }
  nested_type { name: "Item"
    field { name: "sku" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
    field { name: "quantity" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL } } }
"""
SCHEMAS = {1: {"schema": json.dumps(AVRO)}, 2: {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}}


def _message() -> Any:
    from google.protobuf import text_format

    pool = descriptor_pool.Default()
    pool.Add(text_format.Parse(PROTO, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("bench.Request"))


Request = _message()
PARSED = fastavro.parse_schema(AVRO)


def in_avro(value: bytes) -> bytes:
    request, stream = _fields(value), io.BytesIO()
    fastavro.schemaless_writer(stream, PARSED, request)
    return struct.pack(">bI", 0, 1) + stream.getvalue()


def in_protobuf(value: bytes) -> bytes:
    return struct.pack(">bI", 0, 2) + b"\x00" + Request(**_fields(value)).SerializeToString()


def _fields(value: bytes) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.json.decode(value)
    return {**fields, "ordered_at": datetime.fromisoformat(fields["ordered_at"])}


WRITTEN: dict[str, Callable[[bytes], bytes]] = {"json": bytes, "avro": in_avro, "protobuf": in_protobuf}


def prefix_of(name: str) -> str:
    return topic_name(f"{name}-")


def produce(servers: str, number: int) -> None:
    """Fill a topic of each format."""
    for name in NAMES:
        events.create_topic(servers, f"{prefix_of(name)}{TOPIC}")
        events.create_topic(servers, f"{prefix_of(name)}transfer-batches")
    producer = events.new_producer(servers)
    for order, partition, value in events.events(number):
        for name in NAMES:
            events.send(producer, f"{prefix_of(name)}{TOPIC}", WRITTEN[name](value), order, partition)
    events.flush(producer)


@contextmanager
def registry() -> Iterator[str]:
    """The address of one that knows two schemas."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps(SCHEMAS[int(self.path.rpartition("/")[2])]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def measure(servers: str, records: int, size: int, repeat: int) -> dict[str, list[tuple[float, worker.Usage]]]:
    """By format `(events/s, what the process used)` of each run, the formats in turns."""
    found: dict[str, list[tuple[float, worker.Usage]]] = {name: [] for name in NAMES}
    produce(servers, records)
    with registry() as url:
        told = {"DJANGO_SETTINGS_MODULE": SETTINGS, "SCHEMA_REGISTRY_URL": url}
        run = partial(ingest.process, servers, records, size)
        for _ in range(repeat):
            for name in NAMES:
                found[name].append(run(prefix=prefix_of(name), BENCH_FORMAT=name, **told))
    return found
