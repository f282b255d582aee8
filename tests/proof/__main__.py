"""python -m tests.proof: take out each guard and see that a test notices."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter

from tests.proof import mutants
from tests.proof.guards import everything
from tests.services import supervisor


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("words", nargs="*", help="only guards whose file or name holds one of these")
    parser.add_argument("--jobs", type=int, default=2, help="copies of the tree that work side by side (default 2)")
    parser.add_argument("--list", action="store_true", help="the guards, and nothing else")
    options = parser.parse_args()
    guards = [
        guard
        for guard in everything()
        if not options.words or any(word in f"{guard.file} {guard.keeps}" for word in options.words)
    ]
    if options.list:
        print(*(f"{guard.file}: {guard.keeps}" for guard in guards), sep="\n")
        return 0
    server = os.environ.get("TEST_POSTGRES_URL") or supervisor.addresses(["postgres"]).get("TEST_POSTGRES_URL", "")
    if not server and any(guard.server for guard in guards):
        print("some guards need PostgreSQL: make services starts it, TEST_POSTGRES_URL names one", file=sys.stderr)
        return 2
    began, tally = time.monotonic(), Counter[str]()
    for guard, verdict, by, seconds in mutants.run(guards, server, options.jobs):
        tally[verdict] += 1
        print(f"{verdict:9} {seconds:5.1f} s  {guard.file}: {guard.keeps}   {by}", flush=True)
    print(f"{len(guards)} guards in {time.monotonic() - began:.0f} s: {dict(tally)}")
    return int(bool(tally[mutants.SURVIVED] + tally[mutants.BROKEN]))


if __name__ == "__main__":
    sys.exit(main())
