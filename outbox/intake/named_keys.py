"""The idempotency keys that a record names, also one that nobody can read: a letter of it may come back."""

from __future__ import annotations

import re

import msgspec
from django.conf import settings

from config.kafka import Record
from config.kafka.debezium import text_of
from outbox.intake.envelope import HEADERS, PRODUCER, header_of, stated

FIELD = "idempotency_key"
# In JSON that is cut or broken, and in JSON inside a text of JSON.
WRITTEN = re.compile(rb'idempotency_key\\*"\s*:\s*\\*"?((?:[^"\\,}\s]|\\[^"]| )+)')


def keys_named_in(record: Record) -> set[str]:
    """As they are stored if the promise of the record is: behind its topic, and behind its producer."""
    topic = record.topic.removeprefix(settings.KAFKA_TOPIC_PREFIX)
    names = {topic, f"{topic}@{header_of(record, PRODUCER)}"}
    return {f"{name}/{key}" for name in names for key in _read(record) or _seen(record)}


def _read(record: Record) -> set[str]:
    key = stated(record, FIELD)
    return {key} if key else set()


def _seen(record: Record) -> set[str]:
    headers = [text_of(value).value for name, value in record.headers or () if HEADERS.get(name) == FIELD and value]
    texts = [_unescaped(match[1]) for match in WRITTEN.finditer(record.value or b"")]
    return {text for text in (*headers, *texts) if text and isinstance(text, str)}


def _unescaped(text: bytes) -> str:
    try:
        return msgspec.json.decode(b'"%s"' % text, type=str)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return text.decode("utf-8", "replace")
