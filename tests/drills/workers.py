"""Drills about processes that die or freeze, and the broker that they read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash import databases
from tests.crash.platform import Worker
from tests.crash.wire import wait_for
from tests.drills.stage import Drill, Plan, Stage
from tests.services.kafka import Kafka

ORDERS = (("ingest_events",), ("flush_buffer",))
MARK_SENT = (
    "from config.admin.levers import Operator; from outbox.delivery import levers; from outbox.messages.models import OutboxMessage; "
    "ids = list(OutboxMessage.objects.uncertain().values_list('pk', flat=True)); "
    "print(levers.it_was_sent(ids, Operator('drill'), 'the provider has accepted it'))"
)


class WorkerKilled(Drill):
    """Started again it takes the place of the dead one."""

    alerts = ("SpillwayWorkerMissing", "SpillwayWorkerDown")
    staged = "relay_outbox is killed with SIGKILL, and nobody starts it again"

    def fail(self, stage: Stage) -> None:
        stage.first_mail()
        stage.living["relay_outbox"].kill()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.start_again("relay_outbox")


class NotifierKilled(Drill):
    """Nobody is told of it but by Prometheus."""

    alerts = ("SpillwayNotifierMissing",)
    staged = "the only notify_people is killed with SIGKILL"
    workers = (("relay_outbox",), ("notify_people",))

    def fail(self, stage: Stage) -> None:
        wait_for(lambda: notifier_reports(stage), 60, "the notifier to report", 1)
        stage.living["notify_people"].kill()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.start_again("notify_people")


def notifier_reports(stage: Stage) -> bool:
    return bool(databases.rows(stage.environment["DATABASE_URL"],
                               "SELECT 1 FROM outbox_workerprocess WHERE command = 'notify_people'"))  # fmt: skip


class BeatKilled(Drill):
    """What beat alone does waits; it is done within a minute when it is back."""

    alerts = ("SpillwayActionsUnsealed",)
    staged = "beat is killed, and somebody changes the rate of a customer"
    workers = (("relay_outbox",), ("beat",))

    def fail(self, stage: Stage) -> None:
        stage.living["beat"].kill()
        stage.manage("customers", "set-rate", "C-7", "20/s", "--reason", "contract 4471")

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.start_again("beat")


class RelayKilled(Drill):
    """What it had in hand is recovered by the next relay, or by the command; the rest only waited."""

    alerts = ("SpillwayOutboxLate", "SpillwayOutboxStuck")
    staged = "the only relay is killed while the mail server is about to answer, and there is no beat"
    settings = {"OUTBOX_LEASE_SECONDS": "10", "EMAIL_TIMEOUT_SECONDS": "4", "OUTBOX_RECONCILE_SECONDS": "5"}

    def fail(self, stage: Stage) -> None:
        while_a_call_lasts(stage, Worker.kill)

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.manage("recover_claims")
        stage.start_again("relay_outbox")


class RelaySuspended(Drill):
    """Others take over what it holds; what it says when it wakes up changes nothing; a person asks the provider."""

    alerts = ("SpillwayFenceLost", "SpillwayClaimsRecovered", "SpillwayUncertainHeld")
    staged = "a relay is suspended for longer than its lease while the mail server is about to answer"
    workers = (("relay_outbox",), ("beat",))
    settings = {
        "OUTBOX_LEASE_SECONDS": "10",
        "EMAIL_TIMEOUT_SECONDS": "4",
        "OUTBOX_RECONCILE_SECONDS": "5",
        "EMAIL_UNCERTAIN": "hold",
    }

    def fail(self, stage: Stage) -> None:
        while_a_call_lasts(stage, Worker.freeze)
        wait_for(lambda: stage.living["beat"].count("recovered_total"), 180, "beat to recover what it holds", 1)
        stage.living["relay_outbox"].thaw()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say("the provider knows the message; Outbox messages, Mark as sent")
        stage.platform.manage("shell", "-c", MARK_SENT)


def while_a_call_lasts(stage: Stage, act: Callable[[Worker], object]) -> None:
    """Do something to the relay when the mail server has a mail and does not say so."""
    stage.first_mail()
    stage.sink.script.append("dot:slow:3")
    wait_for(lambda: stage.sink.happened["dot:slow:3"], 60, "a mail that is not answered")
    act(stage.living["relay_outbox"])


class ConsumerFrozen(Drill):
    """A process that lives and reports nothing has lost its group: it is restarted."""

    alerts = ("SpillwayIngestLag",)
    staged = "ingest_events is frozen with SIGSTOP while orders arrive"
    workers = ORDERS
    flow = "buffer"

    def fail(self, stage: Stage) -> None:
        stage.first_order()
        stage.living["ingest_events"].freeze()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.living["ingest_events"].kill()
        stage.start_again("ingest_events")


class KafkaDown(Drill):
    """A broker of the drill's own is stopped; nothing is to be done but to start it."""

    alerts = ("SpillwayPublishFailing",)
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
