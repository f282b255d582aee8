"""CASSANDRA_URL taken apart: where the overflow store is, and how its keyspace is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from config.environment.env import BadSetting

PORT = 9042
OPTIONS = {"datacenter", "replication", "consistency", "cafile"}
LEVELS = {"ONE", "TWO", "THREE", "QUORUM", "ALL", "LOCAL_ONE", "LOCAL_QUORUM", "EACH_QUORUM"}


@dataclass(frozen=True)
class CassandraPlace:
    """Hosts share a port. No datacenter: replication counts nodes wherever they stand."""

    hosts: tuple[str, ...]
    port: int
    keyspace: str
    user: str = ""
    password: str = ""
    datacenter: str = ""
    replication: int = 3
    consistency: str = "LOCAL_QUORUM"
    cafile: str = ""


def parse_cassandra_url(text: str) -> CassandraPlace:
    """`cassandra://[user:password@]host[:port][,host…]/keyspace?…`; BadSetting says what is wrong, never a password."""
    url = urlsplit(text)
    if url.scheme != "cassandra":
        raise bad("begins with cassandra://")
    account, _, listed = url.netloc.rpartition("@")
    user, _, password = account.partition(":")
    hosts, port = _hosts(listed)
    keyspace = url.path.strip("/")
    if not (keyspace.isascii() and keyspace.isidentifier() and len(keyspace) <= 48):
        raise bad("names a keyspace of letters, digits and _ behind the hosts, at most 48 characters")
    told = dict(parse_qsl(url.query))
    if unknown := told.keys() - OPTIONS:
        raise bad(f"knows no {', '.join(sorted(unknown))}; there are {', '.join(sorted(OPTIONS))}")
    return CassandraPlace(
        hosts,
        port,
        keyspace,
        unquote(user),
        unquote(password),
        _datacenter(told),
        _replication(told),
        _consistency(told),
        told.get("cafile", ""),
    )


def bad(what: str) -> BadSetting:
    return BadSetting(f"CASSANDRA_URL: {what}")


def _hosts(listed: str) -> tuple[tuple[str, ...], int]:
    """Names without their port, and the one port of all."""
    names, ports = [], set()
    for part in listed.split(","):
        name, colon, port = part.rpartition(":") if ":" in part else (part, "", "")
        if not name or (colon and not (port.isdecimal() and 0 < int(port) < 65536)):
            raise bad("names one host or more, each with a port at most")
        names.append(name)
        ports |= {int(port)} if port else set()
    if len(ports) > 1:
        raise bad("gives all hosts one port")
    return tuple(names), ports.pop() if ports else PORT


def _datacenter(told: Mapping[str, str]) -> str:
    name = told.get("datacenter", "")
    if not name.replace("-", "_").replace("_", "a").isalnum() and name:
        raise bad("datacenter is a name of letters, digits, - and _")
    return name


def _replication(told: Mapping[str, str]) -> int:
    text = told.get("replication", "3")
    if not (text.isdecimal() and 1 <= int(text) <= 9):
        raise bad("replication is a number from 1 to 9")
    return int(text)


def _consistency(told: Mapping[str, str]) -> str:
    level = told.get("consistency", "LOCAL_QUORUM")
    if level not in LEVELS:
        raise bad(f"consistency is one of {', '.join(sorted(LEVELS))}")
    return level
