"""System checks: settings and databases that would fail later are refused at start."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.module_loading import import_string

from config.database import checks as database_checks  # noqa: F401 (importing registers them)
from config.database.queries import is_mariadb
from config.formats import REGISTERED, formatted, opener_of
from config.kafka.access import misfits
from config.partitions import checks as partition_checks  # noqa: F401 (importing registers them)
from config.payload import WHOLE_BYTES

OLDEST_SQLITE = (3, 35, 0)
LEAST_PACKET = 4 * WHOLE_BYTES  # a payload that is kept whole, written out, and what stands beside it


@register(Tags.compatibility)
def registries_import(app_configs: object, **_: object) -> list[CheckMessage]:
    """Every dotted path in a registry setting can be imported."""
    paths = [(f"STREAMS[{name!r}]['CLASS']", entry["CLASS"]) for name, entry in settings.STREAMS.items()]
    effects = {name: entry if isinstance(entry, str) else entry["EFFECT"] for name, entry in settings.MOVEMENTS.items()}
    paths += [(f"MOVEMENTS[{name!r}]", path) for name, path in effects.items()]
    paths += [("FLOWS", path) for path in settings.FLOWS] + [("PARTITIONS", path) for path in settings.PARTITIONS]
    paths += [("SWEEPS", path) for path in settings.SWEEPS]
    paths += [(f"HANDLERS[{name!r}]", path) for name, path in settings.HANDLERS.items()]
    return [message for setting, path in paths for message in _import(setting, path)]


def _import(setting: str, path: str) -> Iterator[CheckMessage]:
    try:
        import_string(path)
    except ImportError as error:
        yield Error(f"{setting}: {error}", id="spillway.E001")
    except Exception as error:  # noqa: BLE001 (an extension's module may do anything while it is imported)
        yield Error(f"{setting}: {path} cannot be imported: {type(error).__name__}: {error}", id="spillway.E001")


@register(Tags.compatibility)
def ways_into_kafka_fit(app_configs: object, **_: object) -> list[CheckMessage]:
    """Protocol, log-in, certificates and token provider of Kafka can be meant together."""
    messages: list[CheckMessage] = [Error(misfit, id="spillway.E003") for misfit in misfits()]
    url = settings.KAFKA_OAUTH_TOKEN_URL
    if urlsplit(url).scheme == "http" and not _is_here(url):
        messages.append(Warning("KAFKA_OAUTH_TOKEN_URL: the secret is sent without TLS.", id="spillway.W003"))
    return messages


def _is_here(url: str) -> bool:
    """Whether what is sent there stays on this machine."""
    return urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


@register(Tags.compatibility)
def formats_open(app_configs: object, **_: object) -> list[CheckMessage]:
    """Every FORMAT is known, what it needs is installed, and TOPIC_FORMATS names no topic that is not read by it."""
    others = sorted(settings.TOPIC_FORMATS.keys() - {"notifications-in", *settings.MESSAGES_IN})
    wrong = [
        Error(f"TOPIC_FORMATS: {topic} is neither notifications-in nor in MESSAGES_IN", id="spillway.E004")
        for topic in others
    ]
    return [*wrong, *(message for place, entry in formatted().items() for message in _format(place, entry))]


def _format(place: str, entry: Mapping[str, Any]) -> Iterator[CheckMessage]:
    name = entry["FORMAT"]
    if name not in settings.FORMATS:
        yield Error(f"{place}: FORMAT {name!r} is not one of json, {', '.join(settings.FORMATS)}", id="spillway.E004")
        return
    if name in REGISTERED and not settings.SCHEMA_REGISTRY_URL:
        yield Error(f"SCHEMA_REGISTRY_URL: is empty; {place} is {name} and needs one", id="spillway.E004")
    try:
        opener_of(entry)
    except ImportError as error:
        extra = f" (pip install 'spillway[{name}]')" if name in REGISTERED else ""
        yield Error(f"{place}: FORMAT {name}: {error}{extra}", id="spillway.E004")
    except TypeError as error:
        yield Error(f"{place}: FORMAT_OPTIONS do not fit {name}: {error}", id="spillway.E004")


@register(Tags.security, deploy=True)
def fit_for_production(app_configs: object, **_: object) -> list[CheckMessage]:
    """Settings that are safe only on a developer's machine."""
    messages: list[CheckMessage] = []
    if settings.SECRET_KEY_IS_RANDOM:
        messages.append(
            Warning(
                "SECRET_KEY is not set: every process has another one, so nobody stays logged in.", id="spillway.W001"
            )
        )
    if urlsplit(settings.OIDC_ISSUER).scheme == "http" and not _is_here(settings.OIDC_ISSUER):
        messages.append(Warning("OIDC_ISSUER: tokens are sent without TLS.", id="spillway.W004"))
    if settings.DEMO:
        messages.append(Error("DEMO is on: everybody knows the password.", id="spillway.E002"))
    return messages


@register(Tags.database)
def sessions_are_safe(app_configs: object, databases: Sequence[str] | None = None, **_: object) -> list[CheckMessage]:
    """Isolation, time zone and locking modes that correctness depends on."""
    return [message for alias in databases or () for message in _session(alias)]


def _session(alias: str) -> Iterator[CheckMessage]:
    connection = connections[alias]
    if connection.vendor == "sqlite":
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            yield Error(f"SQLite {sqlite3.sqlite_version} is too old: 3.35 brought RETURNING.", id="spillway.E010")
        if connection.settings_dict["OPTIONS"].get("transaction_mode") != "IMMEDIATE":
            yield Error(
                "SQLite needs transaction_mode IMMEDIATE: a deferred second writer fails at once.", id="spillway.E011"
            )
        return
    zone, isolation = _zone_and_isolation(connection)
    if isolation != "read committed":
        yield Error(f"The session runs at {isolation}; Spillway needs READ COMMITTED.", id="spillway.E012")
    if settings.DATABASE_IDLE_TRANSACTION_SECONDS and not _ends_when_idle(connection):
        yield Warning(
            "The session has no idle_in_transaction_session_timeout: a worker that hangs in a transaction holds all "
            "others up for as long. Something between here and the server, such as a pooler, drops the options of a "
            "session; set it for the role on the server.",
            id="spillway.W016",
        )
    if connection.vendor == "mysql" and zone != "+00:00":
        yield Error(
            f"The session's time zone is {zone}: NOW() would disagree with every stored time; set it to +00:00.",
            id="spillway.E013",
        )
    if connection.vendor == "mysql" and (packet := _packet(connection)) < LEAST_PACKET:
        yield Error(
            f"max_allowed_packet is {packet}: a dead letter may need {LEAST_PACKET}; raise it on the server.",
            id="spillway.E015",
        )


def _ends_when_idle(connection: BaseDatabaseWrapper) -> bool:
    if connection.vendor != "postgresql":
        return True  # our own backend sees to it
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('idle_in_transaction_session_timeout')")
        return cursor.fetchone() != ("0",)


def _packet(connection: BaseDatabaseWrapper) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@global.max_allowed_packet")
        return int(cursor.fetchone()[0])


def _zone_and_isolation(connection: BaseDatabaseWrapper) -> tuple[str, str]:
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT current_setting('TimeZone'), current_setting('transaction_isolation')")
        else:
            variable = "tx_isolation" if is_mariadb(connection) else "transaction_isolation"
            cursor.execute(f"SELECT @@session.time_zone, @@session.{variable}")
        zone, isolation = cursor.fetchone()
    return str(zone), str(isolation).lower().replace("-", " ")
