"""Every process of Spillway on the test database, sample traffic among them, and whether each of them gets on."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from config.admin.levers import Operator
from config.database.clock import database_now
from config.flows import flows
from outbox.audit_log import actions
from outbox.audit_log.models import OperatorAction
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.topic_replay import requests
from outbox.topic_replay.models import TopicReplay
from outbox.workers import change_capture
from tests.crash.platform import Platform, Worker
from tests.crash.throttler.topics import ThrottlerWire
from tests.crash.wire import wait_for
from tests.processes.conftest import kafka_servers
from tests.processes.web import PLAIN, Site
from tests.tree import ROOT

SOMEBODY = Operator("somebody", None)
SIMULATED = ["buffer", "ledger", "notifications", "throttler"]
TIMINGS = {
    "KAFKA_SESSION_TIMEOUT_MS": "6000", "BUFFER_IDLE_SECONDS": "1", "BUFFER_CAP_SECONDS": "2", "EMAIL_CHANNEL": "memory",
    "LEDGER_UNKNOWN_STOCK": "create", "KAFKA_REPLICATION_FACTOR": "1",
}  # fmt: skip


class Everybody:
    """Every process but beat, whose jobs come once a minute; `get_on` waits until each of them has done something new."""

    def __init__(self, platform: Platform) -> None:
        self.platform, self.site = platform, Site()
        self.workers: list[Worker] = []

    def start(self) -> None:
        commands = [(worker.command, *worker.arguments) for flow in flows() for worker in flow.workers()]
        commands += [("replay_topic", "--pending"), ("replay_letters",), ("notify_people",), ("listen_outbox",)]
        self.workers = [self.platform.start(*command) for command in commands]
        self.workers.append(self.platform.run(["manage.py", "simulate", "--rate", "4"], "simulate", {}))
        self.workers.append(self.platform.run(self.site.program, "web", PLAIN))

    def get_on(self, seconds: float = 300) -> None:
        began = database_now()
        before = self._done()
        replay = self._ask_for_replay()
        action = actions.record(SOMEBODY, "look", "nothing", reason="for a seal")
        listened = Watermark.objects.of_group(change_capture.CDC_GROUP).filter(updated_at__gt=began)
        signs: dict[str, Callable[[], object]] = {
            **{name: lambda name=name: self._done()[name] > before[name] for name in before},
            "replay_topic": lambda: TopicReplay.objects.get(pk=replay.pk).finished_at,
            "replay_letters": lambda: not OperatorAction.objects.unsealed().filter(pk=action.pk).exists(),
            "listen_outbox": listened.exists,
            "web": lambda: self.site.get("/readyz").status == 200,
        }
        for name, sign in signs.items():
            wait_for(sign, seconds, f"{name} to get on", pause=0.2)
        assert [worker.name for worker in self.workers if not worker.alive] == []

    def stop(self) -> None:
        """Sample traffic first, then the others; each ends well."""
        simulate = next(worker for worker in self.workers if worker.name == "simulate")
        for worker in [simulate, *(one for one in self.workers if one is not simulate)]:
            assert worker.stop() == 0, f"{worker.name}: {worker.text[-2000:]}"

    def _done(self) -> dict[str, int]:
        done = {flow.name: flow.arrived() for flow in flows() if flow.name in SIMULATED}
        sent = sum(counters.totals(name).get("batches_sent", 0) for name in ["transfer-requests"])
        return {**done, "flush_buffer": sent, "relay_outbox": counters.totals("outbox").get("sent", 0)}

    def _ask_for_replay(self) -> TopicReplay:
        now = database_now()
        times = now - timedelta(seconds=1), now
        return requests.request("PAYMENT_SUCCESS", *times, timedelta(0), SOMEBODY, "because it can", dry_run=True)


@contextmanager
def everybody(
    directory: Path, settings: Any, url: str, servers: str = "", root: Path = ROOT, **more: str
) -> Iterator[Everybody]:
    """On the real broker unless `servers` names another, with topics of their own; `more` environment for all of them."""
    servers, prefix = servers or kafka_servers(), f"e{uuid.uuid4().hex[:8]}."
    settings.KAFKA_TOPIC_PREFIX, settings.KAFKA_BOOTSTRAP_SERVERS = prefix, servers.split(",")
    environment = {"KAFKA_BOOTSTRAP_SERVERS": servers, "KAFKA_TOPIC_PREFIX": prefix, "DATABASE_URL": url}
    wire = ThrottlerWire(servers, prefix)
    try:
        with Platform(directory, {**TIMINGS, **environment, **more}, root) as platform:
            platform.manage("create_topics")
            found = Everybody(platform)
            found.start()
            try:
                yield found
            except BaseException:
                for worker in platform.workers:  # pytest shows it beside a test that failed
                    print(f"--- the end of the log of {worker.name}", *worker.text.splitlines()[-8:], sep="\n")
                raise
    finally:
        wire.delete(*settings.KAFKA_TOPICS)
