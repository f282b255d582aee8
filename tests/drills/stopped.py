"""The drill about stopping: every process is told to end while the database does not answer, and started again."""

from __future__ import annotations

import signal
import time
from contextlib import closing
from typing import TYPE_CHECKING

from tests.crash import databases
from tests.crash.run import directory
from tests.drills.stage import Drill, Plan
from tests.drills.whole import Say, adds_up, everybody_at_work, set_up
from tests.processes.proxy import Gate

if TYPE_CHECKING:
    from tests.processes.everybody import Everybody

LIMIT = 10.0  # seconds: eight, and what a busy machine adds
SLOWEST = 4  # that a line names


class StoppedWhileAway(Drill):
    """Nothing ends late or by force, nothing is lost or there twice."""

    watched = False
    staged = "the database hangs, later it is away, and everybody is told to stop meanwhile; all are started again"

    def refusal(self, plan: Plan) -> str:
        return (
            "SQLite is a file, and always there: name a server by --database" if plan.url.startswith("sqlite") else ""
        )

    def run(self, plan: Plan, say: Say) -> bool:
        with databases.fresh(plan.url) as url, closing(Gate(url)) as gate, directory(plan.logs) as logs:
            set_up(gate.url, plan.servers)
            with everybody_at_work(logs, gate.url, plan.servers, say) as everybody:
                return play(gate, everybody, say)


def play(gate: Gate, everybody: Everybody, say: Say) -> bool:
    from django.db import connections

    for words, away, back in (("hangs", gate.hang, gate.flows.set), ("is away", gate.shut, gate.reopen)):
        everybody.get_on()
        away()
        say(f"every process has got on; the database {words}")
        time.sleep(1)  # whoever is between two statements begins the next one
        if not stop_all(everybody, say):
            return False
        connections.close_all()
        back()
        everybody.start()
        say("it answers again, and everybody is started again")
    everybody.get_on()
    return adds_up(everybody, say)


def stop_all(everybody: Everybody, say: Say) -> bool:
    """SIGTERM for all of them at once; whether each ended in time and with exit code 0."""
    began, ended = time.monotonic(), dict[str, float]()
    for worker in everybody.workers:
        worker.process.send_signal(signal.SIGTERM)
    while len(ended) < len(everybody.workers) and time.monotonic() - began < 60:
        for worker in everybody.workers:
            if not worker.alive:
                ended.setdefault(worker.name, time.monotonic() - began)
        time.sleep(0.05)
    last = sorted(((seconds, name) for name, seconds in ended.items()), reverse=True)
    named = ", ".join(f"{name} {seconds:.1f} s" for seconds, name in last[:SLOWEST])
    say(f"{len(ended)} of {len(everybody.workers)} end after SIGTERM; the last ones: {named}")
    forced = [worker.name for worker in everybody.workers if "ended_without_waiting" in worker.text]
    say(f"  without waiting for an answer: {', '.join(forced) or 'nobody'}")
    bad = [f"{worker.name} {worker.process.poll()}" for worker in everybody.workers if worker.process.poll() != 0]
    if bad:
        say(f"  not with exit code 0: {', '.join(bad)}")
    return not bad and last[0][0] < LIMIT
