"""`--flow broker-away`: the broker is away at each step of a transaction, and how long a throttler takes afterwards."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from tests.crash.oracle import Finding
from tests.crash.platform import Worker
from tests.crash.run import Outcome, Plan, everything_adds_up, staged
from tests.crash.throttler.run import no_faults, own_broker, throttler_wire
from tests.crash.throttler.throttlers import Throttlers
from tests.crash.throttler.topics import READ_BY_VERIFY
from tests.crash.wire import wait_for
from tests.processes.proxy import BrokerGate
from tests.services.kafka import Kafka

TIMINGS = {"KAFKA_SESSION_TIMEOUT_MS": "6000", "THROTTLER_DEFAULT_RATE": "5/s"}
STEPS = {
    "begin": "transaction begun", "send": "records given", "flush": "records asked", "offsets": "offsets asked",
    "commit": "commit sent", "init": "records sent",
}  # fmt: skip
AWAY = (1.0, 5.0, 40.0)  # seconds
BACK = 10.0  # seconds after which it must work again
STUCK = 60.0
INIT_PRODUCER = 22  # as Kafka's protocol numbers its requests
NAME = "a"


def run(name: str, url: str, servers: str, plan: Plan, say: Callable[[str], None]) -> Outcome:
    """Through a gate that is shut; with `plan.broker_kills` a broker of its own is killed and started again."""
    with ExitStack() as ends:
        broker = ends.enter_context(own_broker()) if plan.broker_kills else None
        wire = ends.enter_context(throttler_wire(name, servers, broker))
        gate = ends.enter_context(closing(BrokerGate(wire.servers)))
        environment = {**TIMINGS, **wire.environment, "KAFKA_BOOTSTRAP_SERVERS": gate.address}
        platform = ends.enter_context(staged(url, plan.logs, environment))
        platform.manage("create_topics", *READ_BY_VERIFY)
        throttlers = ends.enter_context(closing(Throttlers(platform, wire)))
        return Absences(throttlers, gate, broker, plan, say).go()


class Absences:
    """One after the other: a throttler of one name is frozen at the step, the broker goes, the throttler goes on."""

    def __init__(
        self, throttlers: Throttlers, gate: BrokerGate, broker: Kafka | None, plan: Plan, say: Callable[[str], None]
    ) -> None:
        self.throttlers, self.gate, self.broker, self.plan, self.say = throttlers, gate, broker, plan, say
        self.offenders: dict[str, list[Any]] = {"back": [], "once": []}
        self.codes: dict[str, int] = {}
        self.figures: dict[str, Any] = {}

    def go(self) -> Outcome:
        began = time.monotonic()
        for seconds in (self.plan.seconds,) if self.plan.seconds else AWAY:
            for step, point in STEPS.items():
                self._one(step, point, seconds)
        took, platform = time.monotonic() - began, self.throttlers.platform
        verify = platform.manage("verify", "--flow", "throttler", "--json", check=False)
        findings = [
            Finding(f"it works again within {BACK:.0f} s", "", self.offenders["back"]),
            Finding("nothing is lost, comes twice, or out of order", "", self.offenders["once"]),
            no_faults(platform),
            *everything_adds_up(verify, self.codes, "", took),
        ]
        more = {"load": round(os.getloadavg()[0], 1), "seconds": round(took)}
        return Outcome(findings, {**self.figures, **more})

    def _one(self, step: str, point: str, seconds: float) -> None:
        self.throttlers.send(self.plan.orders)
        worker = self.throttlers.sabotaged(point, "freeze", NAME)
        wait_for(lambda: worker.frozen, 60, f"the throttler to freeze at {point!r}")
        if step == "init":
            self._until_the_producer_is_made_anew(worker)
        with self._away(worker, seconds):
            if self.broker is None:
                self.throttlers.send(self.plan.orders)
            before = len(self.throttlers.left())
        if self.broker is not None:
            self.throttlers.send(self.plan.orders)
        took = self._until_more_than(before)
        alive = worker.alive
        where = f"{step}, away for {seconds:.0f} s"
        if took > BACK or not alive:
            self.offenders["back"].append((where, took, worker.text.splitlines()[-1]))
            if not alive:
                worker = self.throttlers.start(NAME)
        try:
            self.throttlers.assert_all_left_once()
        except AssertionError as error:
            self.offenders["once"].append((where, str(error)[:500]))
        self.codes[where] = worker.stop()
        self.figures[where] = f"{took:.1f} s"
        self.say(f"{where}: the first message left {took:.1f} s after it was back")

    def _until_the_producer_is_made_anew(self, worker: Worker) -> None:
        """The outcome of a transaction is unknown, and at the next request for a producer the gate shuts again."""
        self.gate.shut()
        worker.thaw()
        wait_for(lambda: "transaction_unknown" in worker.text, 30, "a transaction to be given up")
        self.gate.cut_at(INIT_PRODUCER, "before")
        self.gate.reopen()
        assert self.gate.cut.wait(30), "nobody asked for a producer"

    @contextmanager
    def _away(self, worker: Worker, seconds: float) -> Iterator[None]:
        self.gate.shut()
        if self.broker is not None:
            assert self.broker.process.stop(signal.SIGKILL, 10)
        worker.thaw()
        time.sleep(seconds)
        yield
        if self.broker is not None:
            self.broker.start()
        self.gate.reopen()

    def _until_more_than(self, count: int) -> float:
        began = time.monotonic()
        worker = self.throttlers.platform.workers[-1]
        while worker.alive and time.monotonic() - began < STUCK and len(self.throttlers.left()) <= count:
            time.sleep(0.1)
        return time.monotonic() - began
