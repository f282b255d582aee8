"""One run of the throttler: three processes are killed, leave and join under load, then everything has to be out."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from tests.crash import databases
from tests.crash.oracle import Finding
from tests.crash.platform import Platform
from tests.crash.run import Outcome, Plan, directory, everything_adds_up, letters_of, staged, until_nothing_is_left
from tests.crash.throttler.crew import Member
from tests.crash.throttler.notices import customers, customers_csv, notices
from tests.crash.throttler.oracle import Seen, judge
from tests.crash.throttler.topics import (
    EXPIRED,
    INPUT,
    OUTPUT,
    READ_BY_VERIFY,
    Committed,
    Committeds,
    Source,
    ThrottlerWire,
)
from tests.crash.wire import wait_for
from tests.services.kafka import Kafka

TIMINGS = {"KAFKA_SESSION_TIMEOUT_MS": "6000", "LOG_LEVEL": "WARNING"}
QUIET_SECONDS, RATE = 30.0, 1000  # the least time that the traffic takes; messages a second
STUCK = 100.0  # longer than a window of a quota
NAMES = {"a": ["--instance", "a"], "b": ["--instance", "b"], "guest": []}
FAULTS = ("owner_failed", "overflow_rows_lost", "partition_stopped", "writer_failed", "Traceback")
AWAY = (1.0, 5.0)  # seconds, at least and at most, that a killed broker stays away


def run(name: str, url: str, servers: str, plan: Plan, say: Callable[[str], None]) -> Outcome:
    """A database and topics of its own; nothing is left behind. With `plan.broker_kills` a broker of its own, too."""
    with ExitStack() as ends:
        broker = ends.enter_context(own_broker()) if plan.broker_kills else None
        store = ends.enter_context(databases.fresh_keyspace()) if plan.store == "cassandra" else {}
        wire = ends.enter_context(throttler_wire(name, servers, broker))
        platform = ends.enter_context(staged(url, plan.logs, {**TIMINGS, **wire.environment, **store}))
        platform.manage("create_topics", *READ_BY_VERIFY)
        platform.manage("create_overflow_store")
        return Run(platform, wire, plan, say, broker).go()


def throttler_wire(name: str, servers: str, broker: Kafka | None) -> AbstractContextManager[ThrottlerWire]:
    where = broker.address if broker else servers
    return ThrottlerWire.of_a_run(where, name, *READ_BY_VERIFY, lasting=broker is None)


@contextmanager
def own_broker() -> Iterator[Kafka]:
    """A Kafka that may be killed."""
    with directory(None) as place:
        found = Kafka(place / "services")
        found.start()
        try:
            yield found
        finally:
            found.stop()


class Run:
    """Workers `a` and `b`, which have names, and `guest`, which has none."""

    def __init__(
        self, platform: Platform, wire: ThrottlerWire, plan: Plan, say: Callable[[str], None], broker: Kafka | None = None
    ) -> None:  # fmt: skip
        self.platform, self.wire, self.plan, self.say, self.broker = platform, wire, plan, say, broker
        self.customers = customers(plan.warehouses)
        self.notices = notices(self.customers, plan.orders, plan.seed)
        self.members = [
            Member(platform, name, [*arguments], plan.kills, plan.seed) for name, arguments in NAMES.items()
        ]
        self.began = 0.0

    def go(self) -> Outcome:
        self._import_customers()
        with ExitStack() as ends:
            topics = {topic: Committeds(self.wire, topic) for topic in (INPUT, OUTPUT, EXPIRED)}
            for topic in topics.values():
                ends.callback(topic.close)
            partitions = len(topics[INPUT].tps)
            seconds = self.plan.seconds or max(QUIET_SECONDS, self.plan.orders / RATE)
            source = Source(self.wire, self.notices, partitions, seconds, self.plan.seed)
            self.began = time.monotonic()
            for member in self.members:
                member.begin()
            wait_for(
                lambda: any(member.has_partitions for member in self.members), 60, "a throttler to have partitions"
            )
            source.start()
            self._kill_brokers(seconds)
            source.finish()
            for member in self.members:
                member.finish()
            self.say(f"{len(self.notices)} records produced after {self._took:.0f} s; settling")
            stuck = self._settle(topics)
            took = self._took
            codes = {member.name: member.stop() for member in self.members}
            return self._outcome(topics, partitions, stuck, codes, took)

    @property
    def _took(self) -> float:
        return time.monotonic() - self.began

    def _import_customers(self) -> None:
        path = self.platform.directory / "customers.csv"
        path.write_text(customers_csv(self.customers))
        self.platform.manage("import_customers", str(path))

    def _kill_brokers(self, seconds: float) -> None:
        rng = random.Random(self.plan.seed)
        for _ in range(self.plan.broker_kills):
            time.sleep(seconds / (self.plan.broker_kills + 1))
            assert self.broker is not None
            assert self.broker.process.stop(signal.SIGKILL, 10)
            away = rng.uniform(*AWAY)
            time.sleep(away)
            self.broker.start()
            self.say(f"the broker was killed, and started {away:.1f} s later")

    def _settle(self, topics: dict[str, Committeds]) -> str:
        """Until everything has left and every offset is committed."""
        wanted = sum(not notice.is_poison for notice in self.notices)

        def left() -> Counter[str]:
            gone = {record.number for topic in (OUTPUT, EXPIRED) for record in topics[topic].read()}
            unread = self._unread(topics[INPUT].read())
            return +Counter({"messages that have not left": wanted - len(gone), "records unread": unread})

        def attend() -> None:
            dead = [member.name for member in self.members if not member.attend()]
            assert not dead, f"{dead} ended by themselves"

        return until_nothing_is_left(left, STUCK, attend)

    def _unread(self, records: Sequence[Committed]) -> int:
        """Records whose offset is not committed. The marks of transactions that forwarded something count as nothing."""
        committed = self.wire.committed(INPUT)
        return sum(record.offset >= committed[record.partition] for record in records)

    # -- the end --------------------------------------------------------------------------------------
    def _outcome(
        self, topics: dict[str, Committeds], partitions: int, stuck: str, codes: dict[str, Any], took: float
    ) -> Outcome:
        seen = Seen(
            self.notices, topics[INPUT].read(), topics[OUTPUT].read(), topics[EXPIRED].read(),
            letters_of(self.platform, "--source", "throttler"), self.wire.name(INPUT), partitions,
        )  # fmt: skip
        verify = self.platform.manage("verify", "--json", "--kafka", check=False)
        findings = [
            *judge(seen),
            self._mirror_is_empty(),
            self._killed(),
            no_faults(self.platform),
            *everything_adds_up(verify, codes, stuck, took),
        ]
        return Outcome(findings, self._figures(seen, took))

    def _mirror_is_empty(self) -> Finding:
        url = self.platform.environment["DATABASE_URL"]
        rows = databases.rows(url, "SELECT customer_id, backlog, drained, seen FROM throttler_lane WHERE backlog <> 0")
        return Finding("the mirror knows of nothing that waits", "", rows)

    def _killed(self) -> Finding:
        """The proof: died by signal 9 as often as planned, not always idle; and left with exit code 0."""
        offenders: list[Any] = []
        for member in self.members:
            kills = [life for life in member.lives if life.killed]
            offenders += [(member.name, life) for life in member.lives if life.code != (-9 if life.killed else 0)]
            if len(kills) != self.plan.kills or (kills and not any(life.done for life in kills)):
                offenders.append((member.name, member.lives))
        done = {member.name: [life.done for life in member.lives] for member in self.members}
        return Finding("every worker was killed with SIGKILL, left, and came again", f"done: {done}", offenders)

    def _figures(self, seen: Seen, took: float) -> dict[str, Any]:
        return {
            "records": len(seen.input), "sent": len(seen.output), "expired": len(seen.expired),
            "buffered": sum(json.loads(record.value or b"")["throttled"] for record in seen.output),
            "letters": len(seen.letters), "kills": sum(life.killed for m in self.members for life in m.lives),
            "told": told(self.platform.workers), "load": round(os.getloadavg()[0], 1), "seconds": round(took, 1),
        }  # fmt: skip


def no_faults(platform: Platform) -> Finding:
    lines = [line for worker in platform.workers for line in worker.text.splitlines()]
    return Finding("no worker saw a fault", "", [line[:1500] for line in lines if any(one in line for one in FAULTS)])


def told(workers: Sequence[Any]) -> dict[str, int]:
    """How often which warning was logged."""
    found: dict[str, int] = {}
    for worker in workers:
        for line in worker.text.splitlines():
            if line.startswith("{"):
                event = json.loads(line).get("event", "")
                found[event] = found.get(event, 0) + 1
    return dict(sorted(found.items()))
