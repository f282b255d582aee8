"""Drills about the throttler: a customer over the rate, a store that takes nothing, a name of two, a broker that says nothing."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime

from tests.crash.traffic import Sample
from tests.crash.wire import Wire, wait_for
from tests.drills.stage import Drill, Plan, Stage
from tests.processes.proxy import BrokerGate, Gate

INPUT = "notifications-in"
NAMED = ("run_throttler", "--instance", "drill")
FETCH, END_TXN = 1, 26  # as Kafka's protocol numbers its requests
TOO_LONG = 35  # seconds; the alert allows 30
LIMIT = 8  # seconds after which the outcome of a transaction is unknown


class Throttled(Drill):
    """What these have in common."""

    workers: tuple[tuple[str, ...], ...] = (("run_throttler",),)
    flow = "throttler"

    def fail(self, stage: Stage) -> None:
        wait_for(lambda: stage.living["run_throttler"].count("throttler_messages_total"), 120, "the first notification")


class CustomerOverRate(Throttled):
    """The customer may send more, as the runbook says."""

    alerts = ("SpillwayThrottlerExpiring",)
    staged = "a customer with 1/min and five minutes sends fifty notifications"

    def fail(self, stage: Stage) -> None:
        super().fail(stage)
        stage.manage("customers", "set-rate", "C-DRILL", "1/min", "--reason", "a small contract")
        stage.manage("customers", "set-ttl", "C-DRILL", "300", "--reason", "a small contract")
        time.sleep(5)  # until owners have it
        send(stage, 50)

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.manage("customers", "set-rate", "C-DRILL", "50/s", "--reason", "contract 4471")


class StoreAway(Throttled):
    """The database is there for everybody else: the throttler alone is cut off."""

    alerts = ("SpillwayThrottlerStalled",)
    staged = "the throttler is cut off from its database while a customer is far over the rate"
    settings = {"THROTTLER_STALL_RECORDS": "100"}

    def refusal(self, plan: Plan) -> str:
        return "nobody is cut off from a file" if plan.url.startswith("sqlite") else ""

    @contextmanager
    def around(self, stage: Stage) -> Iterator[None]:
        with closing(Gate(stage.environment["DATABASE_URL"])) as self.gate:
            stage.alone["run_throttler"] = {"DATABASE_URL": self.gate.url}
            yield

    def fail(self, stage: Stage) -> None:
        super().fail(stage)
        self.gate.shut()
        send(stage, 2000)

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say("the network is whole again")
        self.gate.reopen()


class NameTaken(Throttled):
    """Each start takes the name from the process before; the second supervisor gets a name of its own."""

    alerts = ("SpillwayThrottlerNameTaken",)
    staged = "two supervisors start a throttler with one name"
    workers = (NAMED,)

    def fail(self, stage: Stage) -> None:
        super().fail(stage)
        for _turn in range(4):
            other = stage.platform.run(["manage.py", *NAMED], "other", {})
            wait_for(lambda: not stage.living["run_throttler"].alive, 60, "the first to end")
            stage.start(*NAMED)
            wait_for(lambda other=other: not other.alive, 60, "the second to end")  # type: ignore[misc]

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say("$ python manage.py run_throttler --instance drill-2")
        stage.platform.run(["manage.py", "run_throttler", "--instance", "drill-2"], "other", {})


class BehindGate(Throttled):
    """The throttler reaches the broker through a gate."""

    @contextmanager
    def around(self, stage: Stage) -> Iterator[None]:
        with closing(BrokerGate(stage.plan.servers)) as self.gate:
            stage.alone["run_throttler"] = {"KAFKA_BOOTSTRAP_SERVERS": self.gate.address}
            yield


class OutcomeUnknown(BehindGate):
    """The next client of the throttler hears from Kafka what was decided."""

    alerts = ("SpillwayThrottlerUnknown",)
    staged = "the network to the broker ends while a transaction is being committed"

    def fail(self, stage: Stage) -> None:
        super().fail(stage)
        self.gate.cut_at(END_TXN, "behind")
        assert self.gate.cut.wait(60), "no transaction was committed"
        time.sleep(LIMIT + 4)

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say("the network is whole again")
        self.gate.reopen()


class RestoreSlow(BehindGate):
    """Restored as soon as the broker answers; nobody has to do anything."""

    alerts = ("SpillwayThrottlerRestore",)
    staged = "the network to the broker ends for 35 s while a throttler that starts reads its changelog"
    settings = {"KAFKA_SESSION_TIMEOUT_MS": "90000"}

    def fail(self, stage: Stage) -> None:
        super().fail(stage)
        stage.living["run_throttler"].stop()
        self.gate.cut_at(FETCH, "before")
        stage.start("run_throttler")
        assert self.gate.cut.wait(60), "nothing was read"
        time.sleep(TOO_LONG)
        self.gate.reopen()

    def mend(self, stage: Stage) -> None:
        stage.doctor()
        stage.say("the network is whole again")


def send(stage: Stage, number: int) -> None:
    """Notifications of one customer."""
    now = datetime.now(UTC).isoformat()
    bodies = [
        {"notification_id": str(uuid.uuid4()), "customer_id": "C-DRILL", "recipient": "ada@example.org",
         "message": {"subject": "Your invoice"}, "created_at": now}
        for _ in range(number)
    ]  # fmt: skip
    with closing(Wire(stage.plan.servers, stage.environment["KAFKA_TOPIC_PREFIX"])) as wire:
        wire.produce([Sample("C-DRILL", "", 0, json.dumps(body).encode(), INPUT) for body in bodies])
