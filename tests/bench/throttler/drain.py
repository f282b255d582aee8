"""Ten thousand customers far over their rate: how much of what their rates allow leaves, and whether ever more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from tests.bench import worker
from tests.bench.throttler.notifications import OUTPUT, customers, fill, fresh, records

CUSTOMERS = 10_000
RATE, INTERVAL = "12/min", 5.0  # seconds between two messages; the burst is 1
THROTTLED = b'"throttled":true'


def measure(servers: str, each: int) -> tuple[float, float, worker.Usage]:
    """`each` messages a customer; `(drained of what is allowed, largest overshoot in messages, used)`.

    By the broker's clock, from the moment a customer's first buffered message leaves.
    """
    with fresh(servers) as topics:
        fill(topics, customers(CUSTOMERS), CUSTOMERS * each)
        idle = str(2 * INTERVAL)
        usage = worker.run("run_throttler", "--until-idle", idle, **topics.environment, THROTTLER_DEFAULT_RATE=RATE)
        sent, drained = defaultdict(list), defaultdict(list)
        for found in records(topics, OUTPUT):
            sent[found.key()].append(found.timestamp()[1] / 1000)
            if THROTTLED in found.value():
                drained[found.key()].append(found.timestamp()[1] / 1000)
    if {len(times) for times in sent.values()} != {each} or len(sent) != CUSTOMERS:
        raise RuntimeError(f"{sum(map(len, sent.values()))} of {CUSTOMERS * each} notifications left")
    return share(drained), max(map(overshoot, sent.values())), usage


def share(drained: Mapping[bytes, Sequence[float]]) -> float:
    """The time that the rates ask for, of the time it took."""
    ideal = sum((len(times) - 1) * INTERVAL for times in drained.values())
    return ideal / sum(times[-1] - times[0] for times in drained.values())


def overshoot(times: Sequence[float]) -> float:
    """How many messages more than burst + rate × span there were in any span; 0 at least."""
    worst = 0.0
    for first, began in enumerate(times):
        for last in range(first + 1, len(times)):
            worst = max(worst, last - first + 1 - (1 + (times[last] - began) / INTERVAL))
    return worst
