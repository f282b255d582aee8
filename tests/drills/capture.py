"""A drill about Debezium: its connector stops, the relay carries on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tests.crash.mail.flow import connect_url
from tests.crash.wire import wait_for
from tests.drills.stage import Drill, Plan, Stage


class DebeziumDead(Drill):
    """Found by `curl …/status`, and told to go on."""

    alert = "SpillwayCaptureLag"
    staged = "the connector is stopped; no record of a new message arrives"
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

    def fail(self, stage: Stage) -> None:
        wait_for(lambda: stage.living["listen_outbox"].count("outbox_claims_total", path="cdc"), 120,
                 "a message by way of Debezium")  # fmt: skip
        self.connector.stop()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say(f"$ curl $CONNECT/status: {self.connector.status()['connector']['state']}")
        stage.say("$ curl -X PUT $CONNECT/resume")
        self.connector.ask("PUT", "/resume")
