"""A Confluent-compatible schema registry: schemas by their id, which never change, and who cannot be asked for them."""

from __future__ import annotations

import base64
import json
import struct
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request

from django.conf import settings
from django.db import OperationalError

from config.formats import Opener
from config.gate import InvalidRecord
from config.http import Unanswered, ask
from config.telemetry.redaction import one_line

MOST_BYTES = 100_000  # of a schema with all that it refers to: a record of one byte may stand for so many names
MOST_REFERENCES = 50
ASK_AGAIN = 60.0  # seconds after which a schema that was not there is asked for again
TRY_AGAIN = 2.0  # seconds after which a registry that was away is asked again: a page waits for it once
MOST_MISSING = 10_000  # ids that are remembered as not there: anybody may write any of four billion
FRAME = struct.Struct(">bI")
Read = TypeVar("Read")


class RegistryUnavailable(OperationalError):
    """The registry cannot be asked now. The text begins with the setting to look at.

    To whoever runs a transaction it is what a server is that is away: nothing stays, and all of it is tried again.
    """

    of_registry = True  # log, home and doctor call it by its name (config.database.retry.awaited)


class Schema(NamedTuple):
    """A schema as it was registered, and those that it refers to, each behind the ones it needs."""

    kind: str  # AVRO, PROTOBUF, JSON
    text: str
    references: tuple[str, ...] = ()


def split(value: bytes) -> tuple[int, bytes]:
    """The schema's id and what stands behind it; raises InvalidRecord (`not_framed`)."""
    if len(value) <= FRAME.size or value[0] != 0:
        raise InvalidRecord("not_framed", "the record does not begin with a zero byte and the id of its schema")
    return FRAME.unpack_from(value)[1], value[FRAME.size :]


class Registry:
    """What is known of the schemas of one registry; shared by all threads of a process."""

    def __init__(self, url: str, login: tuple[str, str], cafile: str, timeout: float) -> None:
        self.url, self.login, self.cafile, self.timeout = url, login, cafile, timeout
        self._schemas: dict[int, Schema] = {}
        self._missing: dict[int, float] = {}  # until when it is not asked for again
        self._away: tuple[float, str] = (0.0, "")  # until when, and why
        self._lock = threading.Lock()

    def schema(self, number: int) -> Schema:
        """InvalidRecord (`unknown_schema`, `schema_refused`), or RegistryUnavailable."""
        if known := self._schemas.get(number):
            return known
        with self._lock:
            if number not in self._schemas:
                until, why = self._away
                if time.monotonic() < until:
                    raise RegistryUnavailable(why)
                try:
                    self._schemas[number] = self._ask_for(number)
                except RegistryUnavailable as error:
                    self._away = (time.monotonic() + TRY_AGAIN, str(error))
                    raise
        return self._schemas[number]

    def look(self) -> str:
        """Who answers. Raises RegistryUnavailable."""
        self._get("config")
        return f"{self.url} answers"

    def _ask_for(self, number: int) -> Schema:
        if self._missing.get(number, 0) > time.monotonic():
            raise _unknown(number)
        answer = self._get(f"schemas/ids/{number}")
        if answer is None:
            if len(self._missing) == MOST_MISSING:
                self._missing.pop(next(iter(self._missing)))
            self._missing[number] = time.monotonic() + ASK_AGAIN
            raise _unknown(number)
        references: dict[tuple[str, int], str] = {}
        self._collect(answer, references, ())
        text = str(answer.get("schema", ""))
        if len(text) + sum(map(len, references.values())) > MOST_BYTES:
            raise InvalidRecord("schema_refused", f"schema {number} is longer than {MOST_BYTES:,} characters")
        return Schema(str(answer.get("schemaType") or "AVRO"), text, tuple(references.values()))

    def _collect(self, answer: dict[str, Any], found: dict[tuple[str, int], str], path: tuple[object, ...]) -> None:
        """Add what a schema refers to, the deepest first."""
        for reference in answer.get("references") or ():
            place = (str(reference.get("subject")), int(reference.get("version", -1)))
            if place in path or len(path) > MOST_REFERENCES or len(found) > MOST_REFERENCES:
                raise InvalidRecord(
                    "schema_refused", f"the references of a schema lead to {place[0]} again, or too far"
                )
            if place in found:
                continue
            there = self._get(f"subjects/{quote(place[0], '')}/versions/{place[1]}")
            if there is None:
                raise InvalidRecord("unknown_schema", f"the registry has no version {place[1]} of {place[0]}")
            self._collect(there, found, (*path, place))
            found[place] = str(there.get("schema", ""))

    def _get(self, path: str) -> dict[str, Any] | None:
        """The answer; None for 404."""
        headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if self.login[0]:
            headers["Authorization"] = f"Basic {base64.b64encode(':'.join(self.login).encode()).decode()}"
        request = Request(f"{self.url}/{path}", headers=headers)  # noqa: S310 (`Env.site` takes http and https alone)
        try:
            content = ask(request, timeout=self.timeout, most=10 * MOST_BYTES, cafile=self.cafile)
        except HTTPError as error:
            if error.code == 404:
                return None
            setting = "SCHEMA_REGISTRY_USERNAME" if error.code in (401, 403) else "SCHEMA_REGISTRY_URL"
            raise RegistryUnavailable(f"{setting}: the registry answers {error.code}") from None
        except Unanswered as error:
            setting = "SCHEMA_REGISTRY_CAFILE" if error.is_distrust else "SCHEMA_REGISTRY_URL"
            raise RegistryUnavailable(f"{setting}: the registry cannot be asked: {error}") from None
        except OSError as error:
            raise RegistryUnavailable(f"SCHEMA_REGISTRY_CAFILE: the file that it names: {one_line(error)}") from None
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise RegistryUnavailable("SCHEMA_REGISTRY_URL: the answer is no object of JSON")
        return answer


class Readers:
    """Of each schema the function that reads its records: made once, and once refused as well."""

    def __init__(self, kind: str, make: Callable[[Schema], Callable[[bytes], Read]]) -> None:
        self.kind, self.make = kind, make
        self._made: dict[int, Callable[[bytes], Any] | InvalidRecord] = {}

    def read(self, value: bytes) -> Any:
        number, body = split(value)
        reader = self._made.get(number)
        if reader is None:
            reader = self._made[number] = self._reader(registry().schema(number))
        if isinstance(reader, InvalidRecord):
            raise InvalidRecord(reader.reason, str(reader))
        return reader(body)

    def _reader(self, schema: Schema) -> Callable[[bytes], Any] | InvalidRecord:
        if schema.kind != self.kind:
            return InvalidRecord("wrong_format", f"its schema is {schema.kind}; the topic is read as {self.kind}")
        try:
            return self.make(schema)
        except InvalidRecord as refusal:
            return refusal


def _unknown(number: int) -> InvalidRecord:
    return InvalidRecord("unknown_schema", f"the registry has no schema {number}")


@cache
def registry() -> Registry:
    """The one of the settings."""
    login = settings.SCHEMA_REGISTRY_USERNAME, settings.SCHEMA_REGISTRY_PASSWORD
    if not settings.SCHEMA_REGISTRY_URL:
        raise RegistryUnavailable(
            "SCHEMA_REGISTRY_URL: is empty, and a topic is written in a format that needs schemas"
        )
    return Registry(
        settings.SCHEMA_REGISTRY_URL, login, settings.SCHEMA_REGISTRY_CAFILE, settings.SCHEMA_REGISTRY_TIMEOUT_SECONDS
    )


def jsonschema() -> Opener:
    """`"FORMAT": "jsonschema"`: the frame is taken off, and the gate judges what stands in it."""
    return Readers("JSON", lambda _schema: bytes).read
