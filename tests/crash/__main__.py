"""python -m tests.crash: orders, repeats, updates and poison against killed workers, on every database there is."""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from tests.crash import databases
from tests.crash.run import Plan, run

QUICK, FULL = 20_000, 200_000
WAREHOUSES = 500


def main() -> int:
    arguments = parse()
    servers = databases.kafka_servers()
    if not servers:
        print(
            "TEST_KAFKA_SERVERS is not set and no broker runs here: make services starts one", file=sys.stderr
        )
        return 1
    orders = arguments.orders or (FULL if arguments.full else QUICK)
    plan = Plan(
        orders, min(WAREHOUSES, orders), arguments.kills, arguments.seed, arguments.seconds, arguments.logs
    )
    chosen = databases.named(arguments.database) if arguments.database else databases.known()
    return int(not all([one(name, url, servers, plan) for name, url in chosen.items()]))


def one(name: str, url: str, servers: str, plan: Plan) -> bool:
    print(f"\n=== {name}: {plan.orders} orders over {plan.warehouses} warehouses, {plan.kills} kills of each worker, "
          f"seed {plan.seed}", flush=True)  # fmt: skip
    outcome = run(name, url, servers, plan, lambda text: print(f"      {text}", flush=True))
    print(*outcome.findings, sep="\n")
    for figure, value in outcome.figures.items():
        print(f"      {figure:14} {value}")
    print(f"{'PASS' if outcome.ok else 'FAIL'}: {name}", flush=True)
    return outcome.ok


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--orders", type=int, default=0, help=f"distinct orders (default {QUICK})")
    parser.add_argument("--full", action="store_true", help=f"{FULL} orders")
    parser.add_argument("--kills", type=int, default=3, help="SIGKILLs of each worker (default 3)")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(1_000_000), help="default: another each time"
    )
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="spread the traffic (of a run without kills)"
    )
    parser.add_argument("--database", metavar="URL", help="only this one; sqlite:// for a new file")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the logs of the workers there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
