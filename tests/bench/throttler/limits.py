"""python -m tests.bench.throttler.limits: decisions a second of the limiter, one thread, 1 000 customers asked in turn."""

import time

from throttler.limits.limiter import LimiterState, take_one
from throttler.limits.rate import parse_rates

CUSTOMERS, ROUNDS, STEP_US = 1000, 500, 50_000


def decisions(text: str) -> float:
    """A second of processor time; every second one or so is granted at 10/s."""
    rates, now = parse_rates(text), 10**15
    states = [LimiterState() for _ in range(CUSTOMERS)]
    begun = time.process_time()
    for _ in range(ROUNDS):
        now += STEP_US
        for state in states:
            take_one(rates, state, now)
    return CUSTOMERS * ROUNDS / (time.process_time() - begun)


def main() -> None:
    for text in ("10/s", "10/s;10000/day"):
        print(f"{text}: {decisions(text):,.0f} decisions/s")


if __name__ == "__main__":
    main()
