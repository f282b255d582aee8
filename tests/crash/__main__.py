"""python -m tests.crash: orders, stock movements or messages, repeats and poison against killed workers, on every database."""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash import databases, notices, outage, run
from tests.crash.mail.flow import QUICK, Mails
from tests.crash.replay import resends
from tests.crash.replay.run import Replays
from tests.crash.run import Plan
from tests.crash.stock import run as stock_run
from tests.crash.throttler import broker_away
from tests.crash.throttler import run as throttler_run


@dataclass(frozen=True)
class Flow:
    """What there is to be killed, and how much of what it then has to do."""

    runner: Any
    quick: int
    full: int
    places: int
    words: str
    killed: bool = True
    each: bool = True  # whether each worker is killed so often, or all of them together
    servers_only: bool = False


FLOWS = {
    "aggregator": Flow(run, 20_000, 200_000, 500, "orders over {} warehouses"),
    "ledger": Flow(stock_run, 10_000, 100_000, 1000, "payments and transfers over {} stocks"),
    "outbox": Flow(Mails("smtp"), QUICK, 20_000, 0, "order events by SMTP"),
    "outbox-keys": Flow(Mails("keys"), QUICK, 20_000, 0, "order events to a provider that honours keys"),
    "messages-in": Flow(Mails("smtp", promised="kafka"), QUICK, 10_000, 0, "mails that services promise in Kafka"),
    "messages-http": Flow(Mails("smtp", promised="http"), QUICK, 10_000, 0, "mails that services promise by HTTP"),
    "replay": Flow(Replays(), 1_000, 10_000, 40, "letters of each source", each=False),
    "edit": Flow(Replays(edits=True), 1_000, 10_000, 40, "letters of each source, the ledger's edited", each=False),
    "resend": Flow(resends, 1_000, 10_000, 0, "mails that are sent again", each=False),
    "notices": Flow(notices, 16, 16, 0, "partitions that stop and run again, and two who are told"),
    "throttler": Flow(throttler_run, 20_000, 200_000, 300, "messages of {} customers"),
    "broker-away": Flow(broker_away, 6, 20, 0, "messages of a customer for each absence of the broker", killed=False),
    "outage": Flow(outage, 2, 30, 0, "simulated minutes without the provider", killed=False, servers_only=True),
}


def main() -> int:
    arguments = parse()
    servers = databases.kafka_servers()
    if not servers:
        print("TEST_KAFKA_SERVERS is not set and no broker runs here: make services starts one", file=sys.stderr)
        return 1
    if arguments.store == "cassandra" and not databases.cassandra():
        print("TEST_CASSANDRA_URL is not set and no Cassandra runs here: make services starts one", file=sys.stderr)
        return 1
    flow = FLOWS[arguments.flow]
    orders = arguments.orders or (flow.full if arguments.full else flow.quick)
    places = min(arguments.places or flow.places, orders)
    plan = Plan(
        orders, places, arguments.kills, arguments.seed, arguments.seconds, arguments.logs,
        broker_kills=arguments.broker_kills, store=arguments.store,
    )  # fmt: skip
    chosen = databases.named(arguments.database) if arguments.database else databases.known()
    if flow.servers_only and not arguments.database:
        print(f"--flow {arguments.flow} is for servers: SQLite is left out")
        del chosen["sqlite"]
    return int(not all([one(flow, name, url, servers, plan) for name, url in chosen.items()]))


def one(flow: Flow, name: str, url: str, servers: str, plan: Plan) -> bool:
    what = "kills of each worker" if flow.each else "kills inside of chunks"
    kills = f", {plan.kills} {what}, seed {plan.seed}" if flow.killed else ""
    print(f"\n=== {name}: {plan.orders} {flow.words.format(plan.warehouses)}{kills}", flush=True)
    outcome = flow.runner.run(name, url, servers, plan, lambda text: print(f"      {text}", flush=True))
    print(*outcome.findings, sep="\n")
    for figure, value in outcome.figures.items():
        print(f"      {figure:14} {value}")
    print(f"{'PASS' if outcome.ok else 'FAIL'}: {name}", flush=True)
    return outcome.ok


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--flow", choices=FLOWS, default="aggregator", help="which workers (default aggregator)")
    parser.add_argument(
        "--orders", type=int, default=0,
        help="distinct orders, payments and transfers, messages, or minutes (default " + ", ".join(f"{name} {flow.quick}" for name, flow in FLOWS.items()) + ")",
    )  # fmt: skip
    parser.add_argument("--places", type=int, default=0, help="warehouses, stocks or customers (default as that flow)")
    parser.add_argument(
        "--broker-kills", type=int, default=0, metavar="N", help="of the throttler: N SIGKILLs of a broker of its own"
    )
    parser.add_argument(
        "--store", choices=("django", "cassandra"), default="django", help="of the throttler's overflow (django)"
    )
    parser.add_argument("--full", action="store_true", help="ten times as many; of the outage all 30 minutes")
    parser.add_argument(
        "--kills", type=int, default=3, help="SIGKILLs of each worker, of replay batches inside of chunks (default 3)"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="default: another each time")
    parser.add_argument("--seconds", type=float, default=0.0, help="spread the traffic (of a run without kills)")
    parser.add_argument("--database", metavar="URL", help="only this one; sqlite:// for a new file")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the logs of the workers there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
