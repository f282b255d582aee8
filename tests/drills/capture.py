"""Drills about Debezium: its connector works, stops, or loses its place in the log; the relay carries on."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash import databases
from tests.crash.mail.flow import connect_url
from tests.crash.wire import wait_for
from tests.drills.healthy import Healthy
from tests.drills.stage import Drill, Plan, Stage
from tests.services.postgres import Postgres

BULK = "INSERT INTO drill_bulk SELECT repeat(md5(n::text), 30) FROM generate_series(1, 20000) n"  # 20 MB of log
SLOT = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{}'"


class WithCapture(Drill):
    """It has a connector of its own."""

    workers = (("relay_outbox",), ("listen_outbox",))

    def refusal(self, plan: Plan) -> str:
        if plan.url.startswith("sqlite"):
            return "Debezium cannot read SQLite"
        return "" if connect_url() else "TEST_CONNECT_URL is not set and no Kafka Connect runs here: make services"

    @contextmanager
    def around(self, stage: Stage) -> Iterator[None]:
        os.environ |= {
            name: stage.environment[name] for name in ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "SECRET_KEY")
        }
        import django
        from django.db import connections

        django.setup()
        from tests.debezium.connector import Connector, create_publication

        create_publication()
        self.connector = Connector(connect_url(), stage.plan.servers)
        try:
            self.connector.start()
            stage.environment["KAFKA_TOPIC_PREFIX"] = self.connector.prefix
            yield
        finally:
            self.connector.delete()
            connections.close_all()


class DebeziumDead(WithCapture):
    """Found by `curl …/status`, and told to go on."""

    alerts = ("SpillwayCaptureLag",)
    staged = "the connector is stopped; no record of a new message arrives"

    def fail(self, stage: Stage) -> None:
        first_capture(stage)
        self.connector.stop()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say(f"$ curl $CONNECT/status: {self.connector.status()['connector']['state']}")
        stage.say("$ curl -X PUT $CONNECT/resume")
        self.connector.ask("PUT", "/resume")


class PollerCarries(WithCapture):
    """It is told to wait for Debezium as long as it did.

    Debezium brings a message within a tenth of a second. On a server without NOTIFY a relay that finds nothing looks every two
    seconds, and comes too late.
    """

    alerts = ("SpillwayPollerCarries",)
    staged = "a relay is started that does not wait for Debezium (OUTBOX_GRACE_SECONDS is 0) and looks all the time"

    def fail(self, stage: Stage) -> None:
        first_capture(stage)
        stage.living["relay_outbox"].stop()
        stage.alone["relay_outbox"] = {"OUTBOX_GRACE_SECONDS": "0", "OUTBOX_POLL_SECONDS": "0.05"}
        stage.start("relay_outbox")
        # The rule judges by a hundred messages: more than a shortened window brings otherwise.
        more = ["-m", "tests.drills.traffic", "--rate", "4", "--flow", self.flow]
        stage.living["more traffic"] = stage.platform.run(more, "more traffic", {})

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.living["more traffic"].stop()
        stage.living["relay_outbox"].stop()
        stage.say("OUTBOX_GRACE_SECONDS and OUTBOX_POLL_SECONDS are what they were")
        del stage.alone["relay_outbox"]
        stage.start_again("relay_outbox")


class HealthyCapture(WithCapture, Healthy):
    """`healthy` beside a connector that works; the process that reads what it brings is watched with the others."""

    staged = f"{Healthy.staged}, and Debezium brings the messages"
    workers = (*Healthy.workers, ("listen_outbox",))


def first_capture(stage: Stage) -> None:
    wait_for(lambda: stage.living["listen_outbox"].count("outbox_claims_total", path="cdc"), 120,
             "a message by way of Debezium")  # fmt: skip


class SlotLost(DebeziumDead):
    """The server keeps the log for a slot only up to max_slot_wal_keep_size: what lay beyond, nobody can read any more."""

    staged = "the connector is stopped until PostgreSQL gives up the log that it had to read"

    def refusal(self, plan: Plan) -> str:
        return super().refusal(plan) if plan.url.startswith("postgres") else "only PostgreSQL has slots"

    @contextmanager
    def around(self, stage: Stage) -> Iterator[None]:
        with tempfile.TemporaryDirectory(prefix="spillway-drill-") as name:
            folder = Path(name)
            folder.chmod(0o755)  # PostgreSQL has a user of its own
            server = ShortLog(folder)
            server.start()
            try:
                stage.environment["DATABASE_URL"] = self.url = server.address
                stage.platform.manage("migrate", "--verbosity", "0")
                with super().around(stage):
                    yield
            finally:
                server.stop()

    def fail(self, stage: Stage) -> None:
        super().fail(stage)
        databases.run(self.url, "CREATE TABLE drill_bulk (filling text)")
        wait_for(self._is_lost, 120, "the server to give up its log", 1)
        stage.say("other tables wrote more than max_slot_wal_keep_size meanwhile: wal_status lost")

    def mend(self, stage: Stage) -> None:
        super().mend(stage)
        time.sleep(10)  # Debezium asks for its slot for half an hour before it says anything
        status = self.connector.status()
        assert not status["tasks"], "a slot that is lost is read after all"
        stage.say(f"$ curl $CONNECT/status: {status['connector']['state']}, no task; wal_status: {self._wal_status()}")
        stage.say("from scratch: PUT stop, DELETE offsets, pg_drop_replication_slot, PUT resume")
        brought = stage.living["listen_outbox"].count("outbox_claims_total", path="cdc")
        self.connector.restart_from_scratch()
        wait_for(lambda: stage.living["listen_outbox"].count("outbox_claims_total", path="cdc") > brought, 120,
                 "messages by way of Debezium again")  # fmt: skip

    def _is_lost(self) -> bool:
        databases.run(self.url, BULK)
        return self._wal_status() == "lost"

    def _wal_status(self) -> str:
        [(status,)] = databases.rows(self.url, SLOT.format(self.connector.name))
        return str(status)


class ShortLog(Postgres):
    """A server that keeps little for those who are away."""

    first_port = Postgres.first_port + 2

    def command(self) -> list[str]:
        settings = ("max_slot_wal_keep_size=16MB", "max_wal_size=32MB", "min_wal_size=32MB")
        return [*super().command(), *(part for setting in settings for part in ("-c", setting))]
