"""One run of the ledger on one database: open the stocks, start, kill, rebalance, drain, stop, replay, judge."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from tests.crash import databases
from tests.crash.killer import UP, Crew
from tests.crash.oracle import Finding, Produced
from tests.crash.platform import Platform, Worker
from tests.crash.run import STUCK, Outcome, Plan, everything_adds_up, killed, letters_of, staged, until_nothing_is_left
from tests.crash.stock import oracle as stock_oracle
from tests.crash.stock import traffic as stock
from tests.crash.wire import Source, Wire, wait_for

COMMAND = "track_inventory"
TIMINGS = {"KAFKA_SESSION_TIMEOUT_MS": "6000", "LOG_LEVEL": "WARNING"}
PARTITIONS = 4


class StockWire(Wire):
    """The topics of the ledger."""

    inputs = stock.TOPICS
    group = "buffer-track"


def run(name: str, url: str, servers: str, plan: Plan, say: Callable[[str], None]) -> Outcome:
    """A database and topics of its own; nothing is left behind."""
    with StockWire.of_a_run(servers, name, *StockWire.inputs) as wire:
        for topic in wire.inputs:
            wire.create(topic, PARTITIONS)
        with staged(url, plan.logs, {**TIMINGS, **wire.environment}) as platform:
            return Run(platform, wire, plan, 1 if name == "sqlite" else 2, say).go()


class Guest:
    """A further member of the group that joins while the others are at work, and leaves: two rebalances each time.

    SQLite has one writer: there the members are thrown out instead and join again.
    """

    def __init__(self, platform: Platform, wire: StockWire, *, alone: bool) -> None:
        self.platform = platform
        self.wire = wire
        self.alone = alone
        self.present: Worker | None = None
        self.visits = 0
        self.codes: list[int] = []

    def join(self) -> None:
        if self.alone:
            self.wire.evict()
            self.visits += 1
            return
        self.present = self.platform.start(COMMAND, name="guest")

    def leave(self) -> None:
        """With partitions of its own: else nothing would have been given to it, and nothing taken back."""
        guest = self.present
        if guest is None:
            return
        wait_for(lambda: has_partitions(guest), UP, "the guest to join")
        self.codes.append(guest.stop())
        self.visits += 1
        self.present = None

    def finding(self, planned: int) -> Finding:
        offenders: list[Any] = [code for code in self.codes if code]
        if self.visits != planned:
            offenders.append({"visits": self.visits, "planned": planned})
        return Finding("the group was rebalanced at work", f"{self.visits} times a member came and went", offenders)


def has_partitions(worker: Worker) -> bool:
    return any(name == "consumer_lag_records" for name, _, _ in worker.metrics())


class Run:
    """Workers `track-1` and, where the database allows it, `track-2`; now and then a guest."""

    def __init__(
        self, platform: Platform, wire: StockWire, plan: Plan, workers: int, say: Callable[[str], None]
    ) -> None:
        self.platform = platform
        self.wire = wire
        self.plan = plan
        self.say = say
        names = {f"track-{n}": COMMAND for n in range(1, workers + 1)}
        self.crew = Crew(platform, names, random.Random(plan.seed))
        self.guest = Guest(platform, wire, alone=workers == 1)
        self.names = stock.stocks(plan.warehouses)
        self.rounds = 0

    def go(self) -> Outcome:
        self._open()
        samples = stock.traffic(self.plan.orders, self.names, self.plan.seed)
        self.first = min(sample.timestamp or 0 for sample in samples)
        source = Source(self.wire, samples, self.plan.shares)  # type: ignore[arg-type]
        started = time.monotonic()
        self.crew.start()
        source.start()

        def more() -> None:
            source.more()
            self.rounds += 1
            self.guest.join()

        self.crew.kill_all(self.plan.kills, more, self.plan.delay, self._mourn)
        produced = source.finish()
        self.say(f"{len(produced)} records produced, {len(self.crew.kills)} kills; draining")
        drained = self._drain(len(produced))
        took = time.monotonic() - started
        codes = self.crew.stop()
        return self._outcome(produced, codes, drained, took)

    def _open(self) -> None:
        path = self.platform.directory / "stock.csv"
        lines = [f'"{name}",V-{n % 50},L-{n % 5},{stock.OPENING}' for n, name in enumerate(self.names)]
        path.write_text("\n".join(["stock_id,item,location,quantity", *lines]))
        self.platform.manage("import_stock", str(path))

    def _mourn(self) -> None:
        if self.plan.evict:
            self.wire.evict()
        self.guest.leave()

    def _drain(self, wanted: int) -> str:
        """Until everything is written, by the positions in the database: of a partition that nobody has written to
        since a kill between the database's commit and its own, the broker never hears."""

        def left() -> Counter[str]:
            ((number,),) = self._rows("SELECT COALESCE(SUM(next_offset), 0) FROM outbox_watermark")
            return +Counter({"records unread": wanted - int(number)})

        return until_nothing_is_left(left, STUCK)

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        return databases.rows(self.platform.environment["DATABASE_URL"], statement)

    def _outcome(self, produced: list[Produced], codes: dict[str, int], drained: str, took: float) -> Outcome:
        findings = self._judge(produced)
        verify = self.platform.manage("verify", "--json", check=False)
        findings += [
            killed(self.crew.kills, [*self.crew.commands], self.plan.kills),
            self.guest.finding(self.rounds),
            *everything_adds_up(verify, codes, drained, took),
            *[self._replay_all(topic) for topic in stock.TYPES for _ in range(2)],
            self._restore_a_day(),
        ]
        again = [finding for finding in self._judge(produced) if not finding.ok]
        findings.append(
            Finding("quantities, rows and letters still hold after the replays", "", [one.name for one in again])
        )
        return Outcome(findings, self._figures(produced, verify.stdout, took))

    def _judge(self, produced: Sequence[Produced]) -> list[Finding]:
        ledger = self._rows("SELECT reference_type, reference_id, stock_id, delta FROM buffer_inventorytracking")
        letters = letters_of(self.platform)
        return stock_oracle.judge(produced, self.names, self._quantities(), ledger, letters, self.wire.prefix)

    def _quantities(self) -> dict[str, int]:
        return dict(self._rows("SELECT id, quantity FROM buffer_inventorystock"))

    def _replay_all(self, topic: str) -> Finding:
        return stock_oracle.nothing_replayed(topic, *self._replay(topic, 0, stock.DAYS + 1))

    def _restore_a_day(self) -> Finding:
        """Lose the second day of the ledger and what it did to the stocks; replay that day, once from each topic."""
        before = self._state()
        lost = self._lose(self.first + stock.DAY, self.first + 2 * stock.DAY)
        accounts = [self._replay(topic, 1, 2) for topic in stock.TYPES]
        return stock_oracle.restored(before, lost, self._state(), accounts)

    def _lose(self, since: int, until: int) -> int:
        """Returns how many references are gone."""
        when = f"source_timestamp >= {since} AND source_timestamp < {until}"
        references = f"SELECT DISTINCT reference_type, reference_id FROM buffer_inventorytracking WHERE {when}"
        ((number,),) = self._rows(f"SELECT COUNT(*) FROM ({references}) lost")
        url = self.platform.environment["DATABASE_URL"]
        databases.run(url, "UPDATE buffer_inventorystock SET quantity = quantity - COALESCE((SELECT SUM(delta) "
                           f"FROM buffer_inventorytracking WHERE stock_id = buffer_inventorystock.id AND {when}), 0)")  # fmt: skip
        databases.run(url, f"DELETE FROM buffer_inventorytracking WHERE {when}")
        return int(number)

    def _state(self) -> tuple[Any, Any]:
        """Quantities, and every movement with where it came from."""
        ledger = self._rows("SELECT reference_type, reference_id, stock_id, delta, topic, source_partition, "
                            "source_offset, source_timestamp FROM buffer_inventorytracking")  # fmt: skip
        return self._quantities(), set(ledger)

    def _replay(self, topic: str, from_day: int, to_day: int) -> tuple[int, str]:
        """Exit code and account of a replay of these days of the traffic."""
        since, until = (
            datetime.fromtimestamp((self.first + day * stock.DAY) / 1000, UTC).isoformat(timespec="milliseconds")
            for day in (from_day, to_day)
        )
        done = self.platform.manage("replay_topic", topic, "--from", since, "--to", until, check=False)
        return done.returncode, done.stdout or done.stderr

    def _figures(self, produced: Sequence[Produced], verify: str, took: float) -> dict[str, Any]:
        read = json.loads(verify or '{"checks": []}')["checks"]
        came = next((check["expected"] for check in read if check["name"].startswith("ledger: read")), None)
        return {
            "records": len(produced), "read again": came - len(produced) if came is not None else None,
            "kills": len(self.crew.kills), "guests": self.guest.visits,
            "reruns": {f"{worker} {cause}": n for (worker, cause), n in sorted(self.crew.reruns.items())},
            "seconds": round(took, 1),
        }  # fmt: skip
