"""One, two, four, eight processes of a worker, each with the same share of a core: what more of them bring."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings
from django.db import connection

from buffer.streams import chosen
from config.database.clock import database_now
from config.database.upsert import uuid_text
from config.fields import uuid7
from notifications.orders import changes
from outbox.bookkeeping import counters
from outbox.models import OutboxMessage
from tests.bench import databases, events, quota, rows
from tests.bench.figures import number
from tests.bench.leg import Plan
from tests.bench.outbox import outbox
from tests.bench.throttler import live, notifications
from tests.crash.platform import Platform
from tests.crash.wire import wait_for
from tests.outbox.bulk import MESSAGES, beginning
from tests.services import supervisor

PROCESSES = (1, 2, 4, 8)
PARTITIONS = 16  # as many for each of eight
SHARE, TENTH = 0.05, 0.1  # of a core, each
SETTLE, WARM, SECONDS = 6.0, 4.0, 12.0  # until all have their partitions; under load before it is counted; counted
LASTS = WARM + SECONDS + 6  # seconds of work that are prepared
TICK = 0.05  # seconds between two looks at what sessions wait for
EACH = 100  # orders of a bucket
# What sessions that have a statement to do wait for.
WAITING = {
    "postgresql": "SELECT coalesce(wait_event_type || ' ' || wait_event, 'the processor') FROM pg_stat_activity "
    "WHERE state = 'active' AND pid <> pg_backend_pid() AND datname = current_database()",
    "mysql": "SELECT state FROM information_schema.processlist "
    "WHERE command IN ('Query', 'Execute') AND db = DATABASE() AND id <> CONNECTION_ID()",
}


@dataclass(frozen=True)
class Kind:
    """A worker: how it is given work, in `unit` a second that one process can do at most, and where it counts that."""

    name: str
    command: tuple[str, ...]
    fill: Callable[[str, str, int], int]  # at these brokers, under this prefix, so many units at least; how many
    empty: Callable[[], None]
    most: int  # a second, of one process
    unit: str
    counter: tuple[str, str] = ("", "")  # flow and name; none: its output is counted by the broker's clock
    worth: int = 1  # units that one of the counter is
    share: float = SHARE
    environment: dict[str, str] = field(default_factory=dict)

    def done(self) -> int:
        flow, name = self.counter
        return counters.totals(flow).get(name, 0) * self.worth


# -- What there is to do -------------------------------------------------------------------------------------
def messages(servers: str, prefix: str, count: int) -> int:
    outbox.fill(count)
    return count


def mails(servers: str, prefix: str, count: int) -> int:
    """The mail of one paid order, for so many orders."""
    now = database_now()
    order = changes.change(changes.create("buyer@example.com", 1999, "EUR", now).pk, "pay")
    mail = OutboxMessage.objects.get(aggregate=f"order:{order.pk}")
    payload = databases.rows(f"SELECT payload FROM {outbox.MESSAGE} WHERE aggregate = %s", [mail.aggregate])[0][0]
    for start in range(0, count, 2000):
        copies = [
            (uuid_text(uuid7()), mail.channel, mail.event_type, f"order:{turn}", payload, "", "")
            for turn in range(start, min(start + 2000, count))
        ]
        MESSAGES.run(copies, beginning(now))
    return count


def buckets(servers: str, prefix: str, count: int) -> int:
    rows.fill(chosen(None)[0], count // EACH, EACH, due=count // EACH)
    return count


def requests(servers: str, prefix: str, count: int) -> int:
    events.produce(servers, f"{prefix}{STREAM}", count, PARTITIONS)
    return count


STREAM = "transfer-requests"
KINDS = (
    Kind("relay", ("relay_outbox", "--channel", "noop"), messages, outbox.empty, 900, "messages", ("outbox", "sent"),
         environment=outbox.NOOP),
    Kind("mails", ("relay_outbox",), mails, outbox.empty, 400, "mails", ("outbox", "sent"), share=TENTH,
         environment={"EMAIL_CHANNEL": "memory"}),
    Kind("flush", ("flush_buffer",), buckets, databases.empty, 6000, "orders", (STREAM, "batches_sent"), EACH),
    Kind("ingest", ("ingest_events",), requests, databases.empty, 5000, "orders", (STREAM, "read")),
)  # fmt: skip
THROTTLER = Kind("throttler", ("run_throttler",), messages, databases.empty, 4000, "notifications",
                 environment={"THROTTLER_DEFAULT_RATE": live.RATE})  # fmt: skip


# -- The measurement -----------------------------------------------------------------------------------------
def scale_rows(plan: Plan) -> Iterator[dict[str, str]]:
    processes = PROCESSES[:2] if plan.quick else PROCESSES
    for kind in (*KINDS, THROTTLER):
        if plan.workers and kind.name not in plan.workers.split(","):
            continue
        first = 0.0
        for count in processes:
            rate, watch = throttled(plan, count) if kind is THROTTLER else measured(kind, plan, count)
            first = first or rate
            yield {
                "worker": kind.name, "of a core each": f"{kind.share:.0%}", "processes": str(count),
                "a second": f"{number(rate)} {kind.unit}", "times one": f"{rate / first:.1f}",
                "cores of the database": f"{watch.cores:.2f}", "its sessions wait most for": watch.most_common(),
            }  # fmt: skip


def measured(kind: Kind, plan: Plan, count: int) -> tuple[float, Watch]:
    """Units a second of so many processes, by the database's counters, and what the database did meanwhile."""
    kind.empty()
    prefix = (
        f"{settings.KAFKA_TOPIC_PREFIX}{kind.name}-{count}-"  # nothing that an earlier measurement left is read again
    )
    for topic in (STREAM, "transfer-batches"):
        events.create_topic(plan.servers, prefix + topic, PARTITIONS)
    with working(kind, count, {"KAFKA_TOPIC_PREFIX": prefix}):
        before = kind.done()
        given = kind.fill(plan.servers, prefix, int(kind.most * count * LASTS))
        wait_for(lambda: kind.done() > before, 60, f"{kind.name} to begin", 0.1)
        time.sleep(WARM)
        began, before, watch = time.monotonic(), kind.done(), Watch()
        with watch:
            time.sleep(SECONDS)
        after, seconds = kind.done(), time.monotonic() - began
    if after > given * 0.95:
        raise RuntimeError(f"{count} × {kind.name} ran out of work: {after} of {given} {kind.unit}")
    return (after - before) / seconds, watch


def throttled(plan: Plan, count: int) -> tuple[float, Watch]:
    """The same of throttlers, which mirror their counts only now and then: by the records of the output."""
    with notifications.fresh(plan.servers, PARTITIONS) as topics:
        given = int(THROTTLER.most * count * LASTS)
        with working(THROTTLER, count, topics.environment):
            notifications.fill(topics, notifications.customers(1000, PARTITIONS), given)
            time.sleep(WARM)
            began, watch = time.time(), Watch()
            with watch:
                time.sleep(SECONDS)
            ended = time.time()
        times = [message.timestamp()[1] / 1000 for message in notifications.records(topics, notifications.OUTPUT)]
    if len(times) > given * 0.95:
        raise RuntimeError(f"{count} throttlers ran out of work: {len(times)} of {given}")
    return sum(began <= at < ended for at in times) / (ended - began), watch


@contextmanager
def working(kind: Kind, count: int, environment: dict[str, str]) -> Iterator[None]:
    """So many processes that have nothing to do yet, each with its share."""
    with (
        tempfile.TemporaryDirectory() as directory,
        Platform(Path(directory), {**kind.environment, **environment}) as platform,
    ):
        workers = [platform.start(*kind.command, name=f"{kind.name}-{turn}") for turn in range(count)]
        for worker in workers:
            wait_for(worker.metrics, 60, f"{worker.name} to start", 0.2)
        time.sleep(SETTLE)
        with quota.limited([worker.process.pid for worker in workers], kind.share):
            yield
        if ended := [worker.text[-1000:] for worker in workers if not worker.alive]:
            raise RuntimeError(f"{kind.name} ended: {ended[0]}")
        for worker in workers:
            worker.process.terminate()  # all at once: a group rebalances once
        for worker in workers:
            worker.stop(90)


class Watch:
    """Inside its block: how many cores the database uses, and what its sessions wait for."""

    def __init__(self) -> None:
        self.cores = 0.0
        self.waits: Counter[str] = Counter()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._began, self._used = time.monotonic(), server_seconds()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.cores = (server_seconds() - self._used) / (time.monotonic() - self._began)
        self._ended.set()
        self._thread.join()

    def most_common(self) -> str:
        """`Lock tuple (31 %), the processor (20 %)`."""
        looks = sum(self.waits.values())
        return ", ".join(f"{wait or 'the processor'} ({seen / looks:.0%})" for wait, seen in self.waits.most_common(2))

    def _look(self) -> None:
        while not self._ended.wait(TICK):
            self.waits.update(wait for (wait,) in databases.rows(WAITING[connection.vendor]))
        connection.close()


def server_seconds() -> float:
    """Of a processor, that the server of this database has used since it started, sessions that ended included."""
    on_mysql = "mariadb" if getattr(connection, "mysql_is_mariadb", False) else "mysql"
    (service,) = supervisor.chosen(["postgres" if connection.vendor == "postgresql" else on_mysql])
    server = str(service.process.pid)  # `None` where it is not a server of `make services`
    ticks = 0
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            _state, parent, *numbers = file.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        own, ended = sum(map(int, numbers[9:11])), sum(map(int, numbers[11:13]))
        ticks += own + ended if file.parent.name == server else own if parent == server else 0
    return ticks / os.sysconf("SC_CLK_TCK")
