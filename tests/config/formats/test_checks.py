"""A FORMAT that cannot work is named at the start, and doctor asks the registry where a topic needs one."""

import pytest

from config.checks import formats_open
from config.environment.env import BadSetting, formats_from_text
from config.formats import registry as module
from config.probes import doctor

SCANS = {"CLASS": "buffer.streams.TransferRequests", "TOPIC": "scans", "OUTPUT": "digests"}
WRONG = {
    "of no kind": ({"FORMAT": "cbor"}, "FORMAT 'cbor' is not one of json, avro, protobuf, jsonschema"),
    "without its message": ({"FORMAT": "protobuf"}, "FORMAT_OPTIONS do not fit protobuf"),
    "with an option too many": ({"FORMAT": "avro", "FORMAT_OPTIONS": {"x": 1}}, "FORMAT_OPTIONS do not fit avro"),
    "of no class": (
        {"FORMAT": "protobuf", "FORMAT_OPTIONS": {"message": "acme.nowhere"}},
        "FORMAT protobuf: No module named 'acme' (pip install 'spillway[protobuf]')",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_format_that_does_not_fit_is_named_with_its_entry(case, settings):
    entry, why = WRONG[case]
    settings.SCHEMA_REGISTRY_URL = "http://127.0.0.1:1"
    settings.STREAMS = {"scans": {**SCANS, **entry}}
    (fault,) = formats_open(None)
    assert str(fault.msg).startswith(f"STREAMS['scans']: {why}")


def test_a_format_with_schemas_needs_a_registry(settings):
    settings.MOVEMENTS = {"points": {"EFFECT": "buffer.ledger.topics.sold", "FORMAT": "avro"}}
    (fault,) = formats_open(None)
    assert fault.msg == "SCHEMA_REGISTRY_URL: is empty; MOVEMENTS['points'] is avro and needs one"


def registry_line():
    return [(finding.ok, finding.detail) for finding in doctor._registry()]


def test_doctor_asks_the_registry_where_a_topic_needs_one(schemas, settings):
    assert registry_line() == []
    settings.STREAMS = {"scans": {**SCANS, "FORMAT": "avro"}}
    assert not formats_open(None)
    assert registry_line() == [(True, f"{settings.SCHEMA_REGISTRY_URL} answers")]
    schemas.fails = 401
    ((ok, detail),) = registry_line()
    assert not ok
    assert detail == "SCHEMA_REGISTRY_USERNAME: the registry answers 401; records wait, none is lost"
    schemas.fails = None
    settings.SCHEMA_REGISTRY_URL = "http://127.0.0.1:1"
    module.registry.cache_clear()
    assert registry_line()[0][1].startswith("SCHEMA_REGISTRY_URL: the registry cannot be asked")


def test_a_topic_of_which_nobody_reads_the_format_is_named(settings):
    settings.TOPIC_FORMATS = formats_from_text("notifications-in=jsonschema; scans=avro")
    settings.SCHEMA_REGISTRY_URL = "http://127.0.0.1:1"
    (fault,) = formats_open(None)
    assert fault.msg == "TOPIC_FORMATS: scans is neither notifications-in nor in MESSAGES_IN"


def test_formats_of_topics_are_read_from_the_environment():
    assert formats_from_text("a=avro; b = protobuf?message=acme.mail_pb2.Promise ;") == {
        "a": {"FORMAT": "avro", "FORMAT_OPTIONS": {}},
        "b": {"FORMAT": "protobuf", "FORMAT_OPTIONS": {"message": "acme.mail_pb2.Promise"}},
    }


@pytest.mark.parametrize(
    ("text", "why"), [("avro", "is not topic=format"), ("a=", "is not topic"), ("a=avro;a=json", "a stands twice")]
)
def test_formats_of_topics_that_cannot_be_read(text, why):
    with pytest.raises(BadSetting, match=why):
        formats_from_text(text)
