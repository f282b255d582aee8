"""A Debezium connector of a test's own: made from deploy/debezium, watched, stopped, and taken away without a trace."""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote, urlsplit

import kafka
import kafka.errors
from django.db import connection

from tests.crash.wire import Wire, wait_for
from tests.services import supervisor
from tests.services.connect import ask
from tests.tree import ROOT

FILES = ROOT / "deploy" / "debezium"
OUTBOX = "outbox.outbox_message"
PARTITIONS = 3
# Connector, slot and topics carry the process that made them: what a killed run left behind can be told.
MARK = "outboxtest"
PATIENCE = 120.0
INNER_PORTS = {"postgres": 5432, "mariadb": 3306, "mysql": 3306, "kafka": 19092}


def server() -> str:
    """The kind of the server that is tested: the name of its service."""
    if connection.vendor == "postgresql":
        return "postgres"
    return "mariadb" if connection.mysql_is_mariadb else "mysql"


class Connector:
    """One connector on the test database; it is not there before `start`."""

    def __init__(self, url: str, servers: str) -> None:
        self.port = urlsplit(url).port or 80
        self.servers = servers
        self.name = f"{MARK}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
        self.prefix = f"{self.name}."  # KAFKA_TOPIC_PREFIX for whoever listens
        self.topic = f"{self.prefix}{OUTBOX}"
        self.wire = Wire(servers, self.prefix)
        self.wire.create(OUTBOX, PARTITIONS)

    @property
    def publication(self) -> str:
        return "spillway_outbox"

    # -- levers ---------------------------------------------------------------------------------------
    def start(self, **overrides: str) -> None:
        """Register it, or let it go on; returns when it streams."""
        before = self.positions()
        self.ask("PUT", "/config", {**self.configuration(), **overrides})
        self.ask("PUT", "/resume")
        self.wait_until_streaming(before)

    def stop(self) -> None:
        """What a dead connector looks like: nothing reads, the position stays where it was."""
        self.ask("PUT", "/stop")
        wait_for(lambda: not self.status()["tasks"] and not active_slot(self.name), PATIENCE, "a stop")

    def restart_from_scratch(self, **overrides: str) -> None:
        """As after the loss of every position: slot gone, offsets gone, a snapshot of what is pending."""
        self.stop()
        self.ask("DELETE", "/offsets")
        drop_slot(self.name)
        self.wire.delete("schema")
        self.start(**overrides)

    def delete(self) -> None:
        """Also after a test that failed half-way: no connector, no slot, no topic stays."""
        if self.name in ask(self.port, "GET", "/connectors"):
            self.ask("DELETE")
        drop_slot(self.name)
        delete_topics(self.servers, lambda topic: self.name in topic)

    def configuration(self) -> dict[str, str]:
        return filled(for_database(connection.settings_dict["NAME"]), "OUTBOX", self)

    # -- questions ------------------------------------------------------------------------------------
    def ask(self, method: str, path: str = "", body: dict[str, Any] | None = None) -> Any:
        return patiently(lambda: ask(self.port, method, f"/connectors/{quote(self.name)}{path}", body))

    def status(self) -> dict[str, Any]:
        return self.ask("GET", "/status")

    def positions(self) -> list[Any]:
        """What Connect has written down; nothing for a connector it does not know."""
        if self.name not in ask(self.port, "GET", "/connectors"):
            return []
        return self.ask("GET", "/offsets")["offsets"]

    def wait_until_streaming(self, before: list[Any]) -> None:
        """A running task may still be taking its snapshot: the first heartbeat of the stream moves the position."""

        def streams() -> bool:
            failed = [task["trace"] for task in self.status()["tasks"] if "trace" in task]
            assert not failed, failed[0][:2000]
            now = self.positions()
            return now != before and not any(position["offset"].get("snapshot") for position in now)

        wait_for(streams, PATIENCE, f"{self.name} to stream")

    def reader(self) -> Reader:
        return Reader(self.servers, self.topic)


class Reader:
    """Everything on the topic since its beginning, again and again."""

    def __init__(self, servers: str, topic: str) -> None:
        self.consumer = kafka.KafkaConsumer(
            bootstrap_servers=servers.split(","), enable_auto_commit=False, auto_offset_reset="earliest",
            fetch_max_wait_ms=20,
        )  # fmt: skip
        self.consumer.assign([kafka.TopicPartition(topic, number) for number in range(PARTITIONS)])
        self.records: list[Any] = []
        self.arrived: dict[int, float] = {}  # position in `records` → time.time() of its arrival

    def poll(self, seconds: float = 0.1) -> None:
        found = self.consumer.poll(timeout_ms=int(seconds * 1000), max_records=5000)
        for records in found.values():
            for record in records:
                self.arrived[len(self.records)] = time.time()
                self.records.append(record)

    def wait_for(self, count: int, seconds: float = 60.0) -> list[Any]:
        """The records, as soon as there are so many; fewer after `seconds` is an error that says how many."""
        deadline = time.monotonic() + seconds
        while len(self.records) < count:
            assert time.monotonic() < deadline, f"{len(self.records)} of {count} records after {seconds} s"
            self.poll()
        return self.records

    def close(self) -> None:
        self.consumer.close()


# -- the file and its placeholders --------------------------------------------------------------------
def template(kind: str) -> str:
    return (FILES / {"postgres": "postgresql.json"}.get(kind, f"{kind}.json")).read_text()


def filled(text: str, whose: str, connector: Connector) -> dict[str, str]:
    """An operators' file with the placeholders filled, and names that two tests may not share."""
    where = connection.settings_dict
    host, port = seen_from_connect(server(), where["HOST"] or "127.0.0.1", where["PORT"])
    broker, broker_port = seen_from_connect("kafka", *connector.servers.split(",")[0].rsplit(":", 1))
    values = {
        f"{whose}_DB_HOST": host, f"{whose}_DB_PORT": str(port), f"{whose}_DB_NAME": where["NAME"],
        f"{whose}_DB_USER": where["USER"], f"{whose}_DB_PASSWORD": where["PASSWORD"],
        f"{whose}_DB_SERVER_ID": str(int(connector.name[-8:], 16) % 2**31 + 1000),
        "KAFKA_BOOTSTRAP_SERVERS": f"{broker}:{broker_port}", "KAFKA_TOPIC_PREFIX": connector.prefix,
    }  # fmt: skip
    found = json.loads(re.sub(r"\$\{env:(\w+)\}", lambda match: values[match[1]], text))
    return {**found, **own_names(found, connector)}


def for_database(name: str) -> str:
    """On MySQL the file names the database, as operators of another name have to change it."""
    text = template(server())
    if server() == "postgres":
        return text
    text = text.replace("spillway.outbox_outboxmessage", f"{name}.outbox_outboxmessage")
    return text.replace('"database.include.list": "spillway"', f'"database.include.list": "{name}"')


def own_names(found: dict[str, str], connector: Connector) -> dict[str, str]:
    names = {
        "topic.prefix": connector.name,
        "publication.name": connector.publication,
        "slot.name": connector.name,
        "schema.history.internal.kafka.topic": f"{connector.prefix}schema",
    }
    # A position is written down within a second, and then tests go on.
    return {"heartbeat.interval.ms": "300"} | {name: names[name] for name in names if name in found}


def seen_from_connect(name: str, host: str, port: int | str) -> tuple[str, int | str]:
    """Inside a container 127.0.0.1 is the container: there, servers have their names of compose.yaml."""
    services = {service.name: service for service in supervisor.chosen([name, "connect"])}
    if all(service.container.exists() for service in services.values()):
        return name, INNER_PORTS[name]
    return host, port


# -- PostgreSQL: publication and slots ----------------------------------------------------------------
def create_publication() -> None:
    """The statement of deploy/debezium/postgresql.sql; role and grants there want a superuser."""
    if connection.vendor == "postgresql":
        text = (FILES / "postgresql.sql").read_text()
        statement = text[text.index("CREATE PUBLICATION") :]
        with connection.cursor() as cursor:
            cursor.execute("DROP PUBLICATION IF EXISTS spillway_outbox")
            cursor.execute(statement)


def active_slot(name: str) -> bool:
    return any(active for _, active in slots(name))


def slots(like: str) -> list[tuple[str, bool]]:
    """Of the whole server: also before the test database is made, or when it is another run's."""
    if connection.vendor != "postgresql":
        return []
    with connection._nodb_cursor() as cursor:
        cursor.execute("SELECT slot_name, active FROM pg_replication_slots WHERE starts_with(slot_name, %s)", [like])
        return cursor.fetchall()


def drop_slot(name: str) -> None:
    """Its reader leaves a moment after Connect has said goodbye; an active slot cannot be dropped."""
    wait_for(lambda: not active_slot(name), PATIENCE, f"the slot {name} to be left")
    for slot, _ in slots(name):
        with connection._nodb_cursor() as cursor:
            cursor.execute("SELECT pg_drop_replication_slot(%s)", [slot])


def sweep(url: str, servers: str) -> None:
    """Take away what killed runs left on these servers: their connectors read on, their slots keep the log."""
    port = urlsplit(url).port or 80
    for name in ask(port, "GET", "/connectors"):
        if orphaned(name):
            patiently(lambda name=name: ask(port, "DELETE", f"/connectors/{name}"))
    for name, _ in slots(MARK):
        if orphaned(name):
            drop_slot(name)
    marked = re.compile(rf"{MARK}_\d+_[0-9a-f]+")
    delete_topics(servers, lambda topic: (found := marked.search(topic)) and orphaned(found[0]))


def delete_topics(servers: str, chosen: Callable[[str], Any]) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=servers.split(","))
    try:
        topics = [topic for topic in admin.list_topics() if chosen(topic)]
        with suppress(kafka.errors.UnknownTopicOrPartitionError):  # a run beside this one sweeps, too
            if topics:
                admin.delete_topics(topics)
    finally:
        admin.close()


def orphaned(name: str) -> bool:
    mark, _, rest = name.partition("_")
    pid = rest.partition("_")[0]
    if mark != MARK or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def patiently(request: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Connect says 409 while it hands out work, and 404 or 400 to the first question after a change."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return request()
        except RuntimeError as refused:
            if not re.search(r": (404|409|500) ", str(refused)) or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
