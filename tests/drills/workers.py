"""Drills about processes that die or freeze, and the broker that they read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.wire import wait_for
from tests.drills.stage import Drill, Plan, Stage
from tests.services.kafka import Kafka

ORDERS = (("ingest_events",), ("flush_buffer",))


class WorkerKilled(Drill):
    """Started again it takes the place of the dead one."""

    alert = "SpillwayWorkerMissing"
    staged = "relay_outbox is killed with SIGKILL, and nobody starts it again"

    def fail(self, stage: Stage) -> None:
        wait_for(lambda: stage.sink.accepted, 60, "the first mail")
        stage.living["relay_outbox"].kill()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say("$ python manage.py relay_outbox")
        stage.start("relay_outbox")


class ConsumerFrozen(Drill):
    """A process that lives and reports nothing has lost its group: it is restarted."""

    alert = "SpillwayIngestLag"
    staged = "ingest_events is frozen with SIGSTOP while orders arrive"
    workers = ORDERS
    flow = "buffer"

    def fail(self, stage: Stage) -> None:
        wait_for(lambda: stage.living["ingest_events"].count("ingest_records_total"), 60, "the first order")
        stage.living["ingest_events"].freeze()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.living["ingest_events"].kill()
        stage.say("restarted: $ python manage.py ingest_events")
        stage.start("ingest_events")


class KafkaDown(Drill):
    """A broker of the drill's own is stopped; nothing is to be done but to start it."""

    alert = "SpillwayPublishFailing"
    staged = "the only broker is stopped while batches are cut"
    workers = ORDERS
    flow = "buffer"
    settings = {"BUFFER_IDLE_SECONDS": "2", "BUFFER_CAP_SECONDS": "4", "BUFFER_LEASE_SECONDS": "10"}

    def refusal(self, plan: Plan) -> str:
        return "" if shutil.which("java") else "Java is not installed: there is no broker that could be stopped"

    @contextmanager
    def around(self, stage: Stage) -> Iterator[None]:
        with tempfile.TemporaryDirectory(prefix="spillway-drill-") as folder:
            self.kafka = Kafka(Path(folder))
            self.kafka.start()
            stage.environment["KAFKA_BOOTSTRAP_SERVERS"] = self.kafka.address
            try:
                yield
            finally:
                self.kafka.stop()

    def fail(self, stage: Stage) -> None:
        wait_for(lambda: stage.living["flush_buffer"].count("publish_batches_total"), 120, "the first batch")
        self.kafka.stop()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say("the broker is started")
        self.kafka.start()
        for name in [name for (name,) in ORDERS if not stage.living[name].alive]:
            stage.say(f"its supervisor starts {name} again")
            stage.start(name)
