"""What one leg of `make test` leaves to another, where both run; alone, a leg runs every test.

Each test meets both brokers and every database that answers differently: SQLite with the embedded broker as in the demo,
servers with the real one. What races, claims, locks, plans, migrates, verifies or is killed in the middle of its work
meets all of them. MariaDB and MySQL share driver, dialect and Django's backend: of everything else each has a half. What
starts workers runs on SQLite and on PostgreSQL or MariaDB, unless it tells databases apart. What is about words,
pages and formats runs on one server, what touches no database on one leg. Throttlers as processes keep their state in
Kafka: MySQL beside them is enough. Which half or leg it is follows from the name of the file, so that it stays the same.

A leg has four runs or more: the tests that wait most of their time, for processes, in pieces, and the others in as many,
so that in the end no processor waits for one long run.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.tree import ROOT

# What a run is told by; a pytest that one of its tests starts is another run.
TOLD_BY = {"LEFT_OUT", "PIECE"}
DATABASE = {"db", "transactional_db"}
# Whose tests, where they touch no database, need none of a kind, even if their text names one.
BLIND = ("tests/config/demo/test_embedded_kafka", "tests/config/kafka/", "tests/docs/", "tests/throttler/")
THROTTLERS = "tests/processes/throttler/"
STORES = "tests/throttler/overflow/"
# They wait for sessions and time-outs of Kafka; no database has a part in it.
NO_PART = tuple(
    f"{THROTTLERS}test_{name}" for name in ("sleepers", "throttler_cuts", "throttler_zombies", "transaction_outages")
)
# Where the databases differ, by the name of the folder or file: every leg.
DIFFERS = re.compile(
    r"^tests/(config/(database|partitions)|debezium|processes)/"
    r"|race|plans|claim|lock|crash|kill|conflict|sequence|verify|archive|retention|lost_sessions"
)
# What people read, what is masked, what arrives as text: one server.
WORDS = re.compile(
    r"/admin/|/scenarios/|/console/|^tests/config/|^tests/notifications/(api|mail|webhooks|test_)"
    r"|^tests/outbox/(api/|alerts/test_incidents)"
)
PLACES = {
    # What SQLite has whole and a server in part, so that one server is enough.
    "in-part": re.compile(r"^tests/tampering/"),
    # Who may see and do what: thousands of pages, for each role and each row, and no database has a part in it.
    "roles": re.compile(r"^tests/outbox/audit_log/test_(matrix|reveal|lookups|planted)"),
}
TELLS_APART = {".vendor", "mariadb", "two_databases"}
PACES = ("waiting", "working")
WAITING = (
    "tests/debezium/", "tests/buffer/flush/test_verify_kafka", "tests/config/kafka/test_transaction",
    "tests/outbox/notices/test_incidents", "tests/throttler/worker/",
)  # fmt: skip
PROCESSES = "tests/processes/"  # whose conftest.py marks them all
WAITS_WHOLLY = re.compile(r"^pytestmark = (?:\[\s*)?pytest\.mark\.processes\b", re.MULTILINE)
PARTS = 12  # enough to deal by two, three and six


def pieces(count: int) -> list[str]:
    """The runs of a leg, as PIECE names them: `waiting-1of2`, `waiting-2of2`, …"""
    return [f"{pace}-{number}of{count}" for pace in PACES for number in range(1, count + 1)]


def parts(kind: str) -> list[str]:
    return [f"{kind}-{part}" for part in range(PARTS)]


def left_by(leg: str, chosen: Sequence[str], kafka: bool) -> set[str]:
    """What the leg of a database leaves to others when all the `chosen` are tested, and whether on a real broker, too."""
    servers = [name for name in chosen if name != "sqlite"]
    twins = [name for name in chosen if name in {"mariadb", "mysql"}]
    homes = [name for name in servers if name != "mysql" or "mariadb" not in chosen]  # of processes
    left = set[str]()
    for kind in ("blind", "words"):
        left |= _left_of(kind, leg, [[name] for name in servers or chosen])
    if leg in twins:
        left |= _left_of("half", leg, [[name] for name in twins])
    if leg in homes:
        left |= _left_of("started", leg, [[homes[0]], [homes[-1]]])
    elif leg in servers:
        left.add("processes")
    if leg == "sqlite" and servers and kafka:
        left.add("kafka")
    if leg in servers and "sqlite" in chosen and kafka:
        left.add("embedded")
    if leg in {"postgres", "mariadb"} and "mysql" in chosen:
        left.add("throttlers")
    if leg in servers[1:]:
        left.add("in-part")
    if leg in servers and (leg != servers[0] or "sqlite" in chosen):
        left.add("roles")
    return left


def _left_of(kind: str, leg: str, hands: Sequence[Sequence[str]]) -> set[str]:
    """The parts of a kind that are dealt to other hands than those of the leg."""
    return {name for part, name in enumerate(parts(kind)) if leg not in hands[part % len(hands)]}


def is_left_out(item: pytest.Item) -> bool:
    """Whether the leg that runs leaves this test to another one, or to another of its runs."""
    left, piece = set(filter(None, os.environ.get("LEFT_OUT", "").split(","))), os.environ.get("PIECE")
    return bool((piece and not belongs_to(item, piece)) or (left and left & kinds_of(item)))


def belongs_to(item: pytest.Item, piece: str) -> bool:
    """By whether it waits most of its time, for processes that it starts, for Debezium or for a session of Kafka; and by its file."""
    pace, number, count = parsed(piece)
    waits = item.get_closest_marker("processes") or item.nodeid.startswith(WAITING)
    return pace == ("waiting" if waits else "working") and number == number_of(item.nodeid.partition("::")[0], count)


def parsed(piece: str) -> tuple[str, int, int]:
    """Pace, number and count."""
    pace, number, count = re.split("-|of", piece)
    return pace, int(number), int(count)


def number_of(file: str, count: int) -> int:
    """1 to `count`, by other bits than those that deal it to a leg."""
    return 1 + (zlib.crc32(file.encode()) >> 8) % count


def is_of_another_piece(file: Path) -> bool:
    """Whether no test of a file is in this run, so that it need not be opened: most of the imports."""
    piece = os.environ.get("PIECE")
    if not piece or not file.name.startswith("test_"):
        return False
    name = file.relative_to(ROOT).as_posix()
    pace, number, count = parsed(piece)
    if number != number_of(name, count):
        return True
    waits = name.startswith((PROCESSES, *WAITING))
    if pace == "waiting":
        return not waits and "mark.processes" not in file.read_text()
    return waits or bool(WAITS_WHOLLY.search(file.read_text()))


def kinds_of(item: pytest.Item) -> set[str]:
    if item.nodeid.startswith(NO_PART):
        return {"throttlers"}
    file = item.nodeid.partition("::")[0]
    part = zlib.crc32(file.encode()) % PARTS
    runs_processes = bool(item.get_closest_marker("processes"))
    named = databases_named(item.path)
    beside_cassandra = "cassandra" in item.nodeid or (file.startswith(STORES) and "cassandra" in named)
    if item.get_closest_marker("browser") or (beside_cassandra and not runs_processes):
        return set()  # they say themselves where they run: on SQLite, beside the one server that has Cassandra
    if not touches_database(item):
        needs_one = not file.startswith(BLIND) and (runs_processes or named)
        return set() if needs_one else {f"blind-{part}"}
    callspec = getattr(item, "callspec", None)  # of a test without parameters there is none
    kinds = {callspec.params.get("broker")} & {"embedded", "kafka"} if callspec else set()
    if item.nodeid.startswith(THROTTLERS) and "cassandra" not in item.nodeid:  # which runs beside one server alone
        kinds.add("throttlers")
    elif runs_processes:
        kinds |= {"processes"} if named & TELLS_APART else {"processes", f"started-{part}"}
    elif place := {kind for kind, files in PLACES.items() if files.search(file)}:
        kinds |= place
    elif not DIFFERS.search(file):
        if WORDS.search(file) and not named and not kinds:
            kinds.add(f"words-{part}")
        elif not named & {"mariadb", "two_databases"} or file.startswith("tests/docs/"):
            kinds.add(f"half-{part}")
    return kinds


def touches_database(item: pytest.Item) -> bool:
    return bool(item.get_closest_marker("django_db") or DATABASE & set(getattr(item, "fixturenames", ())))


@cache
def databases_named(file: Path) -> frozenset[str]:
    """What the text of a file says of databases: its tests do something else on one than on another, or start what
    connects to it."""
    return frozenset(re.findall(r"\.vendor\b|mariadb|database_url|cassandra|two_databases", file.read_text().lower()))
