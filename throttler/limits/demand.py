"""What owners could send of the output rate, and how it is divided so that all customers are served alike; pure.

Max-min fairness by weight over the customers of all owners: each has what it can send, up to one level per weight. An
owner says how much its customers could send as buckets, `(thousandths of a message a second, weight)` each.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice

PARTS = 1_000_000
FLOOR = 50  # a fiftieth of the rate goes by partitions: who begins to send need not wait for the next report
LOOKED_AT = 5000  # lanes that wait, at a time: the others are taken to be like them
ROOM = 5  # of four: who was not cut short may send a little more in the next second
SECOND_US = 1_000_000
SHORTEST_US = 500_000  # between two measurements

Bucket = tuple[int, int]
Demand = tuple[Bucket, ...]


def demand_of(wants: Iterable[Bucket]) -> Demand:
    """The same in buckets of which each is twice as fast as the one before."""
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for want, weight in wants:
        found = sums[(want // max(weight, 1)).bit_length()]
        found[0] += want
        found[1] += max(weight, 1)
    return tuple((want, weight) for _size, (want, weight) in sorted(sums.items()))


def level(demand: Iterable[Bucket], room: float) -> float | None:
    """Up to how much per weight everybody can have; None: all that they want."""
    buckets = sorted(demand, key=lambda bucket: bucket[0] / bucket[1])
    weights = sum(weight for _want, weight in buckets)
    for want, weight in buckets:
        if want * weights > room * weight:
            return room / weights
        room -= want
        weights -= weight
    return None


def at_level(demand: Demand, most: float | None) -> float:
    """What an owner of this demand sends at a level."""
    return sum(want if most is None else min(want, most * weight) for want, weight in demand)


def fair_share(pool: int, rate: int, claims: Mapping[str, tuple[int, Demand]], name: str) -> int:
    """What `name` should have of `pool`, in millionths of `rate`, which is in thousandths of a message a second.

    `claims` are of all who divide the pool: how many partitions, and what they could send. What nobody wants is
    divided by partitions, and a little of the rest as well.
    """
    owned, demand = claims[name]
    part = owned / sum(number for number, _demand in claims.values())
    floor = pool / FLOOR
    room = (pool - floor) * rate / PARTS
    everybody = [bucket for _number, one in claims.values() for bucket in one]
    most = level(everybody, room)
    spare = 0.0 if most is not None else room - sum(want for want, _weight in everybody)
    return int(floor * part + (at_level(demand, most) + spare * part) * PARTS / rate)


class DemandMeter:
    """What the customers of this process send, and what those who are cut short could send. One thread."""

    def __init__(self) -> None:
        self.demand: Demand = ()  # replaced as a whole: others may read it
        self._sent: Counter[str] = Counter()
        self._since = 0

    def sent(self, customers: Iterable[str]) -> None:
        self._sent.update(customers)

    def measure(
        self, now_us: int, waiting: Sequence[Hashable] | Iterable[Hashable], count: int,
        could: Callable[[Hashable], tuple[str, int, int]], weight_of: Callable[[str], int],
    ) -> None:  # fmt: skip
        """Twice a second at most. `waiting`: keys of `count` lanes that are cut short; `could`: `(customer, want, weight)`."""
        took = now_us - self._since
        if took < SHORTEST_US:
            return
        looked = list(islice(waiting, LOOKED_AT))
        found = [could(key) for key in looked]
        times = max(1, round(count / len(found))) if found else 1
        for customer, _want, _weight in found:
            self._sent.pop(customer, None)
        wants = [(want * times, weight * times) for _customer, want, weight in found]
        wants += [
            (number * 1000 * SECOND_US * ROOM // (4 * took), weight_of(customer))
            for customer, number in self._sent.items()
        ]
        self.demand = demand_of(wants)
        self._sent.clear()
        self._since = now_us
