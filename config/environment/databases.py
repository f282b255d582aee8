"""DATABASE_URL and CASSANDRA_URL, taken apart into the options that correctness here depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import environ

from config.environment.env import UNREADABLE, BadSetting, flag_of, split_url

# -- DATABASE_URL --------------------------------------------------------------------------------------------
ENGINES = {
    "sqlite": "django_prometheus.db.backends.sqlite3",
    "postgres": "config.database.postgresql",
    "postgresql": "config.database.postgresql",
    "mysql": "config.database.mysql",
    "mariadb": "config.database.mysql",
}

# Django takes any text but an empty one for true.
FLAGS = {"ATOMIC_REQUESTS", "AUTOCOMMIT", "DISABLE_SERVER_SIDE_CURSORS"}
# Limits of the replica, in seconds: a page waits for it, and the primary is there.
CONNECT = 2
STATEMENT = 5  # the server ends it, so that it does not work for nobody
SILENCE = STATEMENT + 1  # also of a server that is stopped: its host still answers keepalives
# MariaDB reads the one, MySQL the other.
LIMITED = f" /*M!100100 , max_statement_time = {STATEMENT} */ /*!50708 , max_execution_time = {STATEMENT * 1000} */"


def databases(url: str, replica: str, base_dir: Path, idle_transaction_seconds: int = 0) -> dict[str, dict[str, Any]]:
    """`DATABASES`: the primary of DATABASE_URL, and the replica of REPLICA_URL where that is set."""
    primary = database_from_url(url, base_dir, idle_transaction_seconds)
    if not replica:
        return {"default": primary}
    copy = database_from_url(replica, base_dir, idle_transaction_seconds, "REPLICA_URL")
    if copy["ENGINE"] != primary["ENGINE"]:
        raise BadSetting("REPLICA_URL: is another kind of database than DATABASE_URL")
    if replica.startswith("sqlite"):
        raise BadSetting("REPLICA_URL: SQLite has no replicas")
    copy["OPTIONS"] |= {"connect_timeout": CONNECT, "read_timeout": SILENCE}
    copy["TEST"] = {"MIRROR": "default"}
    return {"default": primary, "replica": copy}


def database_from_url(
    url: str, base_dir: Path, idle_transaction_seconds: int = 0, name: str = "DATABASE_URL"
) -> dict[str, Any]:
    """`sqlite:///file`, `postgres://user:password@host:port/name`, `mysql://…` or `mariadb://…`.

    The server ends a session that does nothing for so long inside a transaction; 0: it waits.
    """
    url = url or f"sqlite:///{base_dir / 'spillway.sqlite3'}"
    scheme = url.partition(":")[0]
    if scheme not in ENGINES:
        raise BadSetting(f"{name}: {scheme!r} is not one of {', '.join(ENGINES)}")
    if scheme != "sqlite":
        split_url(name, url)
    config = environ.Env.db_url_config(url.replace("mariadb:", "mysql:", 1), engine=ENGINES[scheme])
    if not config.get("NAME"):
        raise BadSetting(f"{name}: names no database")
    for option in FLAGS & config.keys():
        config[option] = flag_of(f"{name}: {option.lower()}", str(config[option]), False)
    config["CONN_HEALTH_CHECKS"] = True
    config.setdefault("CONN_MAX_AGE", 600)
    options = _options(scheme, idle_transaction_seconds, limited=name == "REPLICA_URL")
    config["OPTIONS"] = {**options, **config.get("OPTIONS", {})}
    if scheme == "sqlite":
        # A file, not memory: threads and child processes of the tests must see the same rows.
        config["TEST"] = {"NAME": str(base_dir / "var" / f"test-{Path(config['NAME']).name}")}
    return config


def _options(scheme: str, idle_transaction_seconds: int, *, limited: bool) -> dict[str, object]:
    """The primary's statements keep the limit of its server, if that has one."""
    if scheme == "sqlite":
        return {
            # A deferred transaction's second writer fails at once, whatever the timeout.
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA cache_size=-65536;",
        }
    if scheme in ("mysql", "mariadb"):
        return {
            "charset": "utf8mb4",
            "isolation_level": "read committed",
            # Django stores UTC but leaves the session in the server's zone: NOW() would disagree with every row.
            # An engine without transactions keeps half of one. What errors repeat of a row is found in English only.
            "init_command": "SET time_zone = '+00:00', sql_mode = 'STRICT_TRANS_TABLES,NO_ZERO_DATE,"
            "NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION', default_storage_engine = InnoDB, "
            f"lc_messages = 'en_US', sql_safe_updates = 0{LIMITED if limited else ''}",
            "connect_timeout": 10,
            "idle_transaction_seconds": idle_transaction_seconds,
        }
    return {
        "connect_timeout": 10,
        # All that a database or a role may have set otherwise, and that the driver or our statements rely on.
        "options": "-c TimeZone=UTC -c DateStyle=ISO -c IntervalStyle=postgres -c standard_conforming_strings=on "
        "-c bytea_output=hex -c extra_float_digits=1 -c default_transaction_isolation=read\\ committed "
        f"-c idle_in_transaction_session_timeout={idle_transaction_seconds}s"
        f"{f' -c statement_timeout={STATEMENT}s' if limited else ''}",
    }


# -- CASSANDRA_URL -------------------------------------------------------------------------------------------
PORT = 9042
OPTIONS = {"datacenter", "replication", "consistency", "cafile"}
NUMBERED = {"ONE": 1, "LOCAL_ONE": 1, "TWO": 2, "THREE": 3}
LEVELS = {*NUMBERED, "QUORUM", "ALL", "LOCAL_QUORUM", "EACH_QUORUM"}


@dataclass(frozen=True)
class CassandraPlace:
    """Hosts share a port. No datacenter: replication counts nodes wherever they stand."""

    hosts: tuple[str, ...]
    port: int
    keyspace: str
    user: str = ""
    password: str = field(default="", repr=False)
    datacenter: str = ""
    replication: int = 3
    consistency: str = "LOCAL_QUORUM"
    cafile: str = ""

    def __str__(self) -> str:
        return f"{','.join(self.hosts)}:{self.port}/{self.keyspace}"

    @property
    def reads_what_it_wrote(self) -> bool:
        """Whether each read asks a node that has answered the write."""
        return 2 * self.answers > self.replication

    @property
    def answers(self) -> int:
        """How many copies answer before a request is done."""
        quorum = self.replication // 2 + 1
        return {"ALL": self.replication, **NUMBERED}.get(self.consistency, quorum)


def parse_cassandra_url(text: str) -> CassandraPlace:
    """`cassandra://[user:password@]host[:port][,host…]/keyspace?…`; BadSetting says what is wrong, never a password."""
    url = _split(text)
    account, _, listed = url.netloc.rpartition("@")
    user, _, password = account.partition(":")
    hosts, port = _hosts(listed)
    keyspace = url.path.strip("/")
    if not (keyspace.isascii() and keyspace.isidentifier() and len(keyspace) <= 48):
        raise bad("names a keyspace of letters, digits and _ behind the hosts, at most 48 characters")
    options = dict(parse_qsl(url.query))
    if unknown := options.keys() - OPTIONS:
        raise bad(f"knows no {', '.join(sorted(unknown))}; there are {', '.join(sorted(OPTIONS))}")
    return CassandraPlace(
        hosts,
        port,
        keyspace,
        unquote(user),
        unquote(password),
        _datacenter(options),
        _replication(options),
        _consistency(options),
        options.get("cafile", ""),
    )


def _split(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
    except ValueError:
        raise bad(UNREADABLE) from None
    if url.scheme != "cassandra":
        raise bad("begins with cassandra://")
    # A / ? or # in a password ends the host early: the @ then stands behind it.
    if "@" in url.path + url.query + url.fragment:
        raise bad(UNREADABLE)
    return url


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


def _datacenter(options: Mapping[str, str]) -> str:
    name = options.get("datacenter", "")
    if not name.replace("-", "_").replace("_", "a").isalnum() and name:
        raise bad("datacenter is a name of letters, digits, - and _")
    return name


def _replication(options: Mapping[str, str]) -> int:
    text = options.get("replication", "3")
    if not (text.isdecimal() and 1 <= int(text) <= 9):
        raise bad("replication is a number from 1 to 9")
    return int(text)


def _consistency(options: Mapping[str, str]) -> str:
    level = options.get("consistency", "LOCAL_QUORUM")
    if level not in LEVELS:
        raise bad(f"consistency is one of {', '.join(sorted(LEVELS))}")
    return level
