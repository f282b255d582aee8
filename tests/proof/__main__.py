"""python -m tests.proof: take out every guard; kill and freeze the workers in every state of what is outside them."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from tests.crash import databases
from tests.crash.run import alone
from tests.proof import mutants, page, run
from tests.proof.flows import FLOWS
from tests.proof.guards import everything
from tests.services import supervisor


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    kinds = parser.add_subparsers(dest="kind", required=True)
    guards = kinds.add_parser("guards", help="take out each guard in a copy, and see that a test notices")
    guards.add_argument("words", nargs="*", help="only those whose file or name holds one of these")
    guards.add_argument("--jobs", type=int, default=2, help="copies of the tree that work side by side (default 2)")
    guards.add_argument("--list", action="store_true", help="the guards, and nothing else")
    for deed in ("kill", "freeze"):
        states = kinds.add_parser(
            deed, help=f"{deed} a worker before each of its effects, and judge what became of the work"
        )
        states.add_argument("flows", nargs="*", metavar="FLOW", help=f"of {', '.join(FLOWS)} (default all)")
        states.add_argument("--database", metavar="URL", help="only this one (default each server that is known)")
        states.add_argument("--times", type=int, default=1, help="how often each state (default 1)")
        states.add_argument("--most", type=int, default=0, help="at most so many points a flow; 0: all")
        states.add_argument("--at", type=int, nargs="+", metavar="N", help="only before these effects")
        states.add_argument("--seed", type=int, default=1)
        states.add_argument("--keep", action="store_true", help="write the outcome where `page` finds it")
        states.add_argument("--logs", type=Path, metavar="DIR", help="keep the logs of the workers there")
    kinds.add_parser("page", help="write docs/proof.md")
    options = parser.parse_args()
    if options.kind == "page":
        return page.main()
    return _guards(options) if options.kind == "guards" else _states(options)


def _guards(options: argparse.Namespace) -> int:
    chosen = [
        guard
        for guard in everything()
        if not options.words or any(word in f"{guard.file} {guard.keeps}" for word in options.words)
    ]
    if options.list:
        print(*(f"{guard.file}: {guard.keeps}" for guard in chosen), sep="\n")
        return 0
    server = os.environ.get("TEST_POSTGRES_URL") or supervisor.addresses(["postgres"]).get("TEST_POSTGRES_URL", "")
    if not server and any(guard.server for guard in chosen):
        print("some guards need PostgreSQL: make services starts it, TEST_POSTGRES_URL names one", file=sys.stderr)
        return 2
    began, tally = time.monotonic(), Counter[str]()
    for guard, verdict, by, seconds in mutants.run(chosen, server, options.jobs):
        tally[verdict] += 1
        print(f"{verdict:9} {seconds:5.1f} s  {guard.file}: {guard.keeps}   {by}", flush=True)
    print(f"{len(chosen)} guards in {time.monotonic() - began:.0f} s: {dict(tally)}")
    return int(bool(tally[mutants.SURVIVED] + tally[mutants.BROKEN]))


def _states(options: argparse.Namespace) -> int:
    servers = databases.kafka_servers()
    if not servers:
        print("TEST_KAFKA_SERVERS is not set and no broker runs here: make services starts one", file=sys.stderr)
        return 2
    if unknown := set(options.flows) - set(FLOWS):
        print(f"no such flow: {', '.join(sorted(unknown))} (there are {', '.join(FLOWS)})", file=sys.stderr)
        return 2
    urls = databases.named(options.database) if options.database else {
        name: url for name, url in databases.known().items() if name != "sqlite"
    }  # fmt: skip
    outcomes = [
        alone(run.run, name, database, url, servers, vars(options))
        for database, url in urls.items()
        for name in options.flows or FLOWS
    ]
    if options.keep:
        page.keep(outcomes)
    return int(any(outcome["faults"] for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
