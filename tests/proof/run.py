"""One flow on a database of its own, with topics of its own and a real mail server; Django comes behind its settings."""

from __future__ import annotations

import time
from typing import Any

from tests.crash.run import django_on, staged
from tests.crash.wire import Wire
from tests.notifications.smtp_sink import Sink
from tests.proof.flows import FLOWS

SETTINGS = {
    "EMAIL_CHANNEL": "smtp", "LOG_LEVEL": "ERROR", "KAFKA_SESSION_TIMEOUT_MS": "6000", "REPLAY_HOLD_SECONDS": "0",
    "OUTBOX_RECONCILE_SECONDS": "0", "OUTBOX_BACKOFF_BASE_SECONDS": "0.01", "OUTBOX_GRACE_SECONDS": "0", "KAFKA_WRITERS": "1",
}  # fmt: skip


def run(name: str, database: str, url: str, servers: str, options: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own, because Django keeps its first database; what came of it."""
    kind, began = FLOWS[name], time.monotonic()

    def say(text: str) -> None:
        print(f"{database} {name} {options['kind']}: {text}", flush=True)

    with Sink() as sink, Wire.of_a_run(servers, name, *kind.topics) as wire:
        mail = {"EMAIL_URL": f"smtp://127.0.0.1:{sink.port}"}
        with staged(url, options["logs"], {**SETTINGS, **mail, **wire.environment, **kind.settings}) as platform:
            if kind.topics:
                platform.manage("create_topics", *kind.topics)
            with django_on(platform):
                from outbox.messages.notify import stop_notifiers
                from tests.proof.states import Proof

                proof = Proof(kind(platform, wire, sink), options["kind"], say)
                result = proof.run(options["most"], options["times"], options["seed"], options["at"])
                stop_notifiers()
    least = min((result.reached[number] for number in range(1, result.effects + 1)), default=0)
    outcome = {
        "database": database, "flow": name, "deed": options["kind"], "effects": result.effects, "reached": result.reached.total(),
        "least": least, "not_reached": result.not_reached, "faults": len(result.faults), "seed": options["seed"],
    }  # fmt: skip
    say(f"{outcome} {time.monotonic() - began:.0f} s")
    for fault in result.faults:
        print(f"FAULT {fault}")
    return outcome
