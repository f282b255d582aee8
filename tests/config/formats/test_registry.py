"""The registry: what is asked once, what is asked again after a minute, and whom one waits for."""

import json
import time
from types import SimpleNamespace

import pytest

from config.formats import registry as module
from config.formats.registry import Registry, RegistryUnavailable, registry
from config.gate import InvalidRecord

STRING = {"schema": '"string"'}


def test_a_schema_that_is_not_there_is_asked_for_again_after_a_minute(schemas, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    for _ in range(3):
        with pytest.raises(InvalidRecord, match="no schema 7") as refusal:
            registry().schema(7)
        assert refusal.value.reason == "unknown_schema"
    assert len(schemas.asked) == 1
    schemas.by_id[7] = STRING
    now[0] += 61
    assert registry().schema(7).text == '"string"'
    assert registry().schema(7).kind == "AVRO"
    assert len(schemas.asked) == 2


@pytest.mark.parametrize(
    ("fails", "setting"),
    [
        (500, "SCHEMA_REGISTRY_URL: the registry answers 500"), (429, "SCHEMA_REGISTRY_URL: the registry answers 429"),
        (401, "SCHEMA_REGISTRY_USERNAME: the registry answers 401"), (302, "SCHEMA_REGISTRY_URL: the registry answers 302"),
        (b"<html>", "SCHEMA_REGISTRY_URL: the answer is no object"), (b"[" * 100_000, "SCHEMA_REGISTRY_URL: the answer"),
        (b"[]", "SCHEMA_REGISTRY_URL: the answer is no object"),
    ],
)  # fmt: skip
def test_a_registry_that_does_not_say_yes_or_no_is_waited_for_and_asked_again(schemas, fails, setting, monkeypatch):
    schemas.by_id[1], schemas.fails = STRING, fails
    with pytest.raises(RegistryUnavailable) as refusal:
        registry().schema(1)
    assert str(refusal.value).startswith(setting)
    asked, schemas.fails = len(schemas.asked), None
    with pytest.raises(RegistryUnavailable, match=setting.split(":")[0]):
        registry().schema(1)
    assert len(schemas.asked) == asked, "not at once: a page would wait for it again and again"
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + module.TRY_AGAIN))
    assert registry().schema(1).text == '"string"'


def test_nobody_there_and_no_address_are_waited_for_as_well(settings):
    with pytest.raises(RegistryUnavailable, match="SCHEMA_REGISTRY_URL: the registry cannot be asked"):
        Registry("http://127.0.0.1:1", ("", ""), "", 1).schema(1)
    with pytest.raises(RegistryUnavailable, match="SCHEMA_REGISTRY_CAFILE: .*No such file"):
        Registry("https://127.0.0.1:1", ("", ""), "/nowhere", 1).schema(1)
    settings.SCHEMA_REGISTRY_URL = ""
    registry.cache_clear()
    with pytest.raises(RegistryUnavailable, match="SCHEMA_REGISTRY_URL: is empty"):
        registry()


def test_the_login_goes_along(schemas, settings):
    schemas.by_id[1] = STRING
    settings.SCHEMA_REGISTRY_USERNAME, settings.SCHEMA_REGISTRY_PASSWORD = "ops", "geheim"
    registry.cache_clear()
    registry().schema(1)
    assert schemas.logins == ["Basic b3BzOmdlaGVpbQ=="]


def referring(*subjects):
    return {"schema": '"string"', "references": [{"name": name, "subject": name, "version": 1} for name in subjects]}


def test_references_are_followed_the_deepest_first_and_each_once(schemas):
    schemas.by_id[1] = referring("a", "b")
    schemas.by_subject = {"a": {**referring("b"), "schema": '"a"'}, "b": {"schema": '"b"'}}
    assert registry().schema(1).references == ('"b"', '"a"')


@pytest.mark.parametrize(
    "subjects", [{"a": ["a"]}, {"a": ["b"], "b": ["a"]}, {f"s{n}": [f"s{n + 1}"] for n in range(60)}]
)
def test_references_that_lead_in_a_circle_or_too_far_are_refused(schemas, subjects):
    schemas.by_id[1] = referring(next(iter(subjects)))
    schemas.by_subject = {name: referring(*others) for name, others in subjects.items()}
    with pytest.raises(InvalidRecord) as refusal:
        registry().schema(1)
    assert refusal.value.reason == "schema_refused"


def test_a_reference_that_is_not_there_and_a_schema_that_is_too_long(schemas):
    schemas.by_id = {1: referring("nowhere"), 2: {"schema": json.dumps("x" * 100_001)}}
    for number, reason in ((1, "unknown_schema"), (2, "schema_refused")):
        with pytest.raises(InvalidRecord) as refusal:
            registry().schema(number)
        assert refusal.value.reason == reason


def test_of_ids_that_are_not_there_so_many_are_remembered(schemas, monkeypatch):
    monkeypatch.setattr(module, "MOST_MISSING", 2)
    for number in (7, 8, 9, 9, 7):
        with pytest.raises(InvalidRecord):
            registry().schema(number)
    assert schemas.asked == [f"/schemas/ids/{number}" for number in (7, 8, 9, 7)]
