"""Who gets how much: customers under one output rate in one process and in three, and quiet ones beside a noisy one."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, repeat

from config.kafka.wire_format import partition_of
from tests.bench import worker
from tests.bench.events import PARTITIONS, paced
from tests.bench.throttler.delay import CUSTOMERS, listening, source_of
from tests.bench.throttler.notifications import INPUT, OUTPUT, Source, Topics, customers, fresh, records
from tests.crash.wire import wait_for

LIMIT = 1000  # messages a second of all
FAST, SLOW = 100.0, 1.0  # of a customer: most could have all of the limit in common, a sixth is content with little
SETTLING, COUNTED = 15, 20  # seconds
EACH = 400  # messages of a customer, more than leave
BACKLOGGED = 300
QUIET_RATE, NOISY_TIMES = 10, 100
NOISY = "noisy", partition_of(b"noisy", PARTITIONS)
QUIET_SENDS = 500  # messages a second of all quiet customers


def index_of(served: Iterable[float]) -> float:
    """Jain's: 1 if all are equal, 1 / n if one has everything."""
    found = list(served)
    return sum(found) ** 2 / (len(found) * sum(one * one for one in found))


def share_out(servers: str, processes: int) -> tuple[float, float, int, float]:
    """`(Jain's index of served / allowed, of the limit that left, messages of the fullest second, above limit × span)`.

    Customers wait in their partitions unequally: of 300, 180 in the first third, 90 and 30 in the others.
    """
    with fresh(servers) as topics, ExitStack() as running:
        waiting = unequal()
        produce(topics, waiting)
        environment = {
            **topics.environment, "THROTTLER_OUTPUT_RATE": f"{LIMIT}/s", "THROTTLER_DEFAULT_RATE": f"{FAST:.0f}/s",
        }  # fmt: skip
        set_slow(waiting)
        for number in range(processes):
            running.enter_context(worker.running("run_throttler", "--instance", f"t{number}", **environment))
        wait_for_buffered(len(waiting) * EACH * 9 // 10)
        began = time.time() + SETTLING
        time.sleep(SETTLING + COUNTED)
        running.close()
        left = [(found.key().decode(), found.timestamp()[1] / 1000) for found in records(topics, OUTPUT)]
    served = Counter(name for name, at in left if began <= at < began + COUNTED)
    allowed = allowances(waiting)
    fairness = index_of(served[name] / allowed[name] for name in waiting)
    times = sorted(at for _name, at in left)
    return fairness, sum(served.values()) / (LIMIT * COUNTED), fullest(times), overshoot(times)


def unequal() -> list[str]:
    """Customers: 180 of the first third of the partitions, 90 of the second, 30 of the last."""
    wanted = [BACKLOGGED * 6 // 10, BACKLOGGED * 3 // 10, BACKLOGGED // 10]
    chosen = []
    for name, partition in customers(10 * BACKLOGGED):
        third = partition * 3 // PARTITIONS
        if wanted[third]:
            wanted[third] -= 1
            chosen.append(name)
    return chosen


def is_slow(index: int) -> bool:
    return index % 6 == 0


def set_slow(waiting: Sequence[str]) -> None:
    from django.utils import timezone

    from throttler.models import Customer

    now = timezone.now()
    slow = [name for index, name in enumerate(waiting) if is_slow(index)]
    Customer.objects.bulk_create(
        Customer(customer_id=name, rates=f"{SLOW:.0f}/s", created_at=now, updated_at=now) for name in slow
    )


def allowances(waiting: Sequence[str]) -> Mapping[str, float]:
    """Messages of each customer in the counted time: its own rate, or its part of what those leave who want less."""
    slow = [name for index, name in enumerate(waiting) if is_slow(index)]
    level = (LIMIT - SLOW * len(slow)) / (len(waiting) - len(slow))
    return dict.fromkeys(waiting, COUNTED * level) | dict.fromkeys(slow, COUNTED * SLOW)


def produce(topics: Topics, waiting: Sequence[str]) -> None:
    places, source = dict(customers(10 * BACKLOGGED)), Source(topics)
    for index, name in enumerate(chain.from_iterable(repeat(waiting, EACH))):
        source.send(name, places[name], index)
    source.flush()


def wait_for_buffered(number: int) -> None:
    from throttler.models import OverflowMessage

    wait_for(lambda: OverflowMessage.objects.count() >= number, 240, f"{number} notifications to be buffered", 0.5)


def fullest(times: Sequence[float]) -> int:
    """Messages of the second that has most, by the broker's times."""
    most = first = 0
    for number, at in enumerate(times, 1):
        while times[first] <= at - 0.9995:  # they are whole milliseconds
            first += 1
        most = max(most, number - first)
    return most


def overshoot(times: Sequence[float]) -> float:
    """How many messages more than limit × span left in any span."""
    worst = least = 0.0
    for number, at in enumerate(times):
        ahead = number - LIMIT * (at - times[0])
        least = min(least, ahead)
        worst = max(worst, ahead + 1 - least)
    return worst


def beside(servers: str, seconds: int, noisy: bool) -> list[float]:
    """Milliseconds that each quiet message is later than in Kafka, sorted; at most a tenth of the noisy ones may leave."""
    with fresh(servers) as topics, listening(topics) as listener:
        source = Source(topics, **{"linger.ms": 0})
        with worker.running("run_throttler", **topics.environment, THROTTLER_DEFAULT_RATE=f"{QUIET_RATE}/s"):
            steadily(source, 5, noisy)
            time.sleep(2)
            warm = set(listener.arrived)
            steadily(source, seconds, noisy)
            sent = {
                source_of(found): found.timestamp()[1] for found in records(topics, INPUT) if found.key() != b"noisy"
            }
            wait_for(lambda: sent.keys() <= listener.arrived.keys(), 60, "every quiet message to arrive", 0.1)
        return sorted(listener.arrived[place] - sent[place] for place in sent.keys() - warm)


def steadily(source: Source, seconds: int, noisy: bool) -> None:
    """Quiet customers by turns, and as many noisy messages between them as belong there."""
    known = customers(CUSTOMERS)
    each = QUIET_RATE * NOISY_TIMES // QUIET_SENDS if noisy else 0
    for index in paced(QUIET_SENDS, QUIET_SENDS * seconds, lambda: source.producer.poll(0)):
        source.send(*known[index % CUSTOMERS], index)
        for number in range(each):
            source.send(*NOISY, index * each + number)
    source.flush()
