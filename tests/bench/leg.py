"""python -m tests.bench.leg PLAN RESULT: all that is measured on one database, in a process of its own."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import django
from django.utils.module_loading import import_string

from tests.bench.figures import in_turns, median, number, ratio


@dataclass(frozen=True)
class Plan:
    """What one leg is to do."""

    servers: str
    parts: list[str]
    records: int
    orders: int
    stock_records: int
    quick: bool = False
    repeat: int = 3
    connect_port: int = 0
    workers: str = ""  # of `scale`: only these, with commas
    known: int = 1_000_000  # rows of the ledger before the first record comes
    sizes: list[int] = field(default_factory=lambda: [500, 2000])


Rows = dict[str, list[dict[str, str]]]


def main(plan_path: str, result_path: str) -> None:
    plan = Plan(**json.loads(Path(plan_path).read_text()))
    prepare()
    from tests.bench import databases

    server = databases.server()
    found: Rows = defaultdict(list)
    for part in plan.parts:
        for row in PARTS[part](plan):
            found[part].append({"database": server, **row})
            print(f"    {part}:", "; ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    Path(result_path).write_text(json.dumps({"server": server, "rows": found}))


def prepare() -> None:
    django.setup()
    from django.core.management import call_command

    from config.partitions import ensure_partitions
    from config.processes.worker import tune_interpreter

    call_command("migrate", verbosity=0)
    ensure_partitions()
    tune_interpreter()  # the ceilings run in this process: with what the workers have


def ingest(plan: Plan) -> list[dict[str, str]]:
    from tests.bench.aggregator import ingest

    alone = ingest.one_by_one(2000)
    return [ingest_row(plan, size, alone) for size in plan.sizes]


def ingest_row(plan: Plan, size: int, alone: float) -> dict[str, str]:
    from tests.bench.aggregator import ingest, peers

    bare = partial(ingest.ceiling, ingest.statements(size))
    runs, ceilings = in_turns(plan.repeat, partial(ingest.process, plan.servers, plan.records, size), bare)
    ours, theirs, tuned = [rate for rate, _usage in runs], [], []
    if plan.connect_port and peers.supported():
        sink = partial(peers.sink, plan.servers, plan.connect_port, plan.records, plan.orders, size)
        sink(tuned=False)  # warms the virtual machine
        theirs = [sink(tuned=False) for _ in range(plan.repeat)]
        tuned = [sink(tuned=True) for _ in range(plan.repeat)]
    return {
        "batch": str(size),
        "Spillway": median(ours),
        "bare statement": median(ceilings),
        "of it": ratio(ours, ceilings),
        "Debezium sink": median(theirs) if theirs else "–",
        "times it": ratio(ours, theirs),
        "with bulk option": median(tuned) if tuned else "–",
        "times it, tuned": ratio(ours, tuned),
        "row by row": number(alone),
        "times that": ratio(ours, [alone]),
        "peak MB": number(max(usage.megabytes for _rate, usage in runs)),
    }


def formats(plan: Plan) -> list[dict[str, str]]:
    from tests.bench.aggregator import formats

    found = formats.measure(plan.servers, plan.records, plan.sizes[-1], plan.repeat)
    rates = {name: [rate for rate, _usage in runs] for name, runs in found.items()}
    seconds = {name: [usage.seconds for _rate, usage in runs] for name, runs in found.items()}
    return [
        {
            "records in": name,
            "events/s": median(rates[name]),
            "of JSON": ratio(rates[name], rates["json"]),
            "processor time of JSON's": ratio(seconds[name], seconds["json"]),
        }
        for name in formats.NAMES
    ]


def due(plan: Plan) -> list[dict[str, str]]:
    from tests.bench.aggregator import due

    rows = []
    for pending in (10_000, 100_000) if plan.quick else (10_000, 100_000, 1_000_000):
        found = due.measure(pending)
        rows.append({
            "pending": number(pending),
            "due query, ms": number(found["one look"]),
            "the claim's whole look, ms": number(found["claim"]),
            "GROUP BY of the seed, ms": number(found["seed"]),
            "times that": number(found["seed"] / found["one look"]),
        })  # fmt: skip
    return rows


def flush(plan: Plan) -> list[dict[str, str]]:
    from buffer.streams import GROUP
    from config.kafka import topic_name
    from tests.bench.aggregator import flush
    from tests.bench.events import forget

    forget(plan.servers, [topic_name(GROUP)])  # or the flusher waits until the topic has been read again
    return [flush_row(load, plan.repeat) for load in flush.loads(plan.quick)]


def flush_row(load: Any, repeat: int) -> dict[str, str]:
    from tests.bench.aggregator import flush

    runs, ceilings = in_turns(repeat, partial(flush.process, load), partial(flush.ceiling, load))
    events = [run[0] for run in runs]
    return {
        "buckets": f"{number(load.buckets)} × {load.events_each}",
        "events/s": median(events),
        "batches/s": median([run[1] for run in runs]),
        "bare claim, events/s": median(ceilings),
        "of it": ratio(events, ceilings),
        "peak MB": number(max(run[2].megabytes for run in runs)),
    }


def ledger(plan: Plan) -> list[dict[str, str]]:
    from tests.bench.aggregator import ledger

    ledger.fill(plan.known)
    alone = ledger.one_by_one(1000)
    return [ledger_row(plan, size, alone) for size in plan.sizes]


def ledger_row(plan: Plan, size: int, alone: float) -> dict[str, str]:
    from tests.bench.aggregator import ledger

    bare = partial(ledger.ceiling, ledger.ready(size))
    runs, ceilings = in_turns(plan.repeat, partial(ledger.process, plan.servers, plan.stock_records, size), bare)
    ours = [rate for rate, _usage in runs]
    double = [2 * rate for rate in ours]  # two movements a record
    return {
        "batch": str(size),
        "Spillway, movements/s": median(double),
        "record and adjust": median([2 * rate for rate in ceilings]),
        "of it": ratio(ours, ceilings),
        "row by row": number(2 * alone),
        "times that": ratio(ours, [alone]),
        "peak MB": number(max(usage.megabytes for _rate, usage in runs)),
    }


def lookup(plan: Plan) -> list[dict[str, str]]:
    from tests.bench import databases
    from tests.bench.aggregator import ledger

    rows, before = [], 0
    with databases.roomy() as pool:
        for size in (100_000, 1_000_000) if plan.quick else (100_000, 1_000_000, 10_000_000):
            ledger.fill(size, before)
            before = size
            found, refused = ledger.look_ups(size)
            rows.append({
                "rows in the ledger": number(size), "buffer pool": pool,
                "finding 500 known keys, ms": median(found),
                "trying to record them, ms": median(refused),
            })  # fmt: skip
    return rows


# Imported when they are asked for, as Django has to be set up before.
PATHS = {
    "outbox": "outbox.outbox.drain_rows", "full": "outbox.outbox.full_rows", "promises": "outbox.promises.rows",
    "capture": "outbox.capture.rows", "pages": "outbox.letters.rows", "batches": "outbox.batches.rows",
    "line": "outbox.line.rows", "seals": "outbox.seals.rows",
    "live": "throttler.throttled.live_rows", "delay": "throttler.throttled.delay_rows",
    "drain": "throttler.throttled.drain_rows", "restore": "throttler.throttled.restore_rows",
    "restart": "throttler.throttled.restart_rows", "fairness": "throttler.throttled.fairness_rows",
    "noisy": "throttler.throttled.noisy_rows", "overflow": "throttler.overflow.rows",
    "overhead": "overhead.overhead_rows", "scale": "scaling.scale_rows",
    "waiting": "throttler.overflow.page_rows", "bunches": "throttler.bunches.rows",
}  # fmt: skip


def made_by(path: str) -> Callable[[Plan], Iterable[dict[str, str]]]:
    return lambda plan: import_string(f"tests.bench.{path}")(plan)


PARTS: dict[str, Callable[[Plan], Iterable[dict[str, str]]]] = {
    "ingest": ingest, "formats": formats, "due": due, "flush": flush, "ledger": ledger, "lookup": lookup,
    **{name: made_by(path) for name, path in PATHS.items()},
}  # fmt: skip


def write_plan(path: Path, plan: Plan) -> None:
    path.write_text(json.dumps(asdict(plan)))


if __name__ == "__main__":
    main(*sys.argv[1:])
