"""Brings the servers up together, takes exactly those down again, and keeps the list of their addresses."""

import os
import sys
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.services import containers
from tests.services.cassandra import Cassandra
from tests.services.connect import Connect
from tests.services.kafka import Kafka
from tests.services.mariadb import MariaDB
from tests.services.mysql import MySQL
from tests.services.postgres import Postgres
from tests.services.registry import Registry
from tests.services.service import Service, Unavailable, locked

SERVICES: tuple[type[Service], ...] = (Postgres, MariaDB, MySQL, Kafka, Connect, Cassandra, Registry)
NAMES = tuple(service.name for service in SERVICES)
VARIABLES = {service.name: service.variable for service in SERVICES}
OPTIONAL = {"registry"}  # `all` is without: its Java is newer than what the others need
# What a leg of the suite needs where it is not called like its server.
SERVICE_OF = {"debezium": "connect"}


@dataclass(frozen=True)
class Outcome:
    """A server that is up has an address, one that is not has a reason."""

    service: Service
    address: str = ""
    reason: str = ""


def root() -> Path:
    return Path(os.environ.get("SERVICES_DIR") or Path(__file__).parents[2] / ".services").resolve()


def chosen(names: Iterable[str]) -> list[Service]:
    wanted = set(names) or set(NAMES)
    return [service(root()) for service in SERVICES if service.name in wanted]


def up(names: Iterable[str] = ()) -> list[Outcome]:
    services = chosen(names)
    down_now = [service for service in services if not service.running()]
    if down_now and containers.available():
        contain([service for service in down_now if not service.needs])
        # What needs another finds it by its name among the containers, and there only.
        contain([service for service in down_now if service.needs and beside_it(service)])
    outcomes = start_together(services)
    write_env()
    return outcomes


def beside_it(service: Service) -> bool:
    return all(needed.container.exists() for needed in chosen(service.needs))


def contain(services: list[Service]) -> None:
    """By Docker; what it cannot bring up (no registry, an old compose) is then started without it."""
    if not services:
        return
    try:
        containers.start(services)
    except Unavailable as reason:
        print(f"Docker runs, but compose.yaml {reason}\nstarting without Docker", file=sys.stderr)


def start_together(services: list[Service]) -> list[Outcome]:
    started: dict[str, Future[Outcome]] = {}
    with ThreadPoolExecutor(len(SERVICES)) as pool:
        for service in services:
            first = [started[name] for name in service.needs if name in started]
            started[service.name] = pool.submit(start, service, first)
    return [future.result() for future in started.values()]


def start(service: Service, first: list[Future[Outcome]]) -> Outcome:
    outcomes = [future.result() for future in first]
    missing = [outcome.service.name for outcome in outcomes if not outcome.address]
    if missing:
        return Outcome(service, reason=f"needs {' and '.join(missing)}")
    try:
        service.start()
    except (Unavailable, OSError, LookupError) as reason:
        return Outcome(service, reason=str(reason))
    return Outcome(service, address=service.address)


def down(names: Iterable[str] = (), wipe: bool = False) -> list[str]:
    """The names of those that were running; a server that needs another goes first."""
    stopped = []
    for service in reversed(chosen(names)):
        if containers.stop(service) or service.stop():
            stopped.append(service.name)
        if wipe:
            containers.wipe(service)
            service.wipe()
    write_env()
    return stopped


def addresses(names: Iterable[str] = ()) -> dict[str, str]:
    return {service.variable: service.address for service in chosen(names) if service.running()}


def write_env() -> None:
    directory = root()
    with locked(directory / "env.lock"):
        (directory / "env").write_text("".join(f"{name}={value}\n" for name, value in addresses().items()))


def required() -> set[str]:
    """What REQUIRE turns from "not here" into a failure."""
    names = set(os.environ.get("REQUIRE", "").replace(",", " ").split())
    return set(NAMES) - OPTIONAL if "all" in names else {SERVICE_OF.get(name, name) for name in names}
