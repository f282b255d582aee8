"""Sample traffic at a steady rate, and its account on disk: who sends may be killed before it could say what went in."""

from __future__ import annotations

import itertools
import json
import math
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from django.db import DatabaseError, InterfaceError

from config.database.retry import drop_lost_sessions
from config.environment.env import BadSetting
from config.flows import Flow, Sample, SampleAction, flows
from config.kafka import Outgoing, Producer, Sent
from config.telemetry.logs import log

TICK = 0.25  # seconds between two parts
LATE = 1.0  # seconds that are made up for; a machine that is later than that has no room for more

Named = tuple[str, Sample | SampleAction]  # the flow it is for
Traffic = Iterator[Named]


def rate_argument(text: str) -> float:
    """Samples a second, for a command line."""
    if not 0 < (rate := float(text)) < math.inf:
        raise ValueError
    return rate


def count_argument(text: str) -> int:
    """A number of samples, for a command line."""
    if (count := int(text)) < 0:
        raise ValueError
    return count


def simulate(
    stop: threading.Event, flow: str | None, rate: float, count: int | None, seed: int, account: Account
) -> None:
    """Send `rate` samples a second of each flow until `stop` or `count`; `account` says how many.

    What an earlier life had begun is not sent again.
    """
    begun, _sent = account.before
    sources = [
        itertools.islice(_named(known, seed), begun[known.name], None)
        for known in flows()
        if flow in (None, known.name)
    ]
    if not sources:
        raise BadSetting(f"--flow {flow}: no such flow")
    producer = Producer()
    samples = itertools.islice(_alternate(sources), None if count is None else count * len(sources))
    try:
        _send_steadily(samples, rate * len(sources), producer, stop, account)
    finally:
        producer.close()


def _send_steadily(samples: Traffic, rate: float, producer: Producer, stop: threading.Event, account: Account) -> None:
    due = time.monotonic()
    while not stop.is_set():
        part = list(itertools.islice(samples, max(1, int(rate * TICK))))
        if not part:
            break
        _produce([(name, sample) for name, sample in part if isinstance(sample, Sample)], producer, account)
        _do([(name, action) for name, action in part if isinstance(action, SampleAction)], stop, account)
        due = max(due + len(part) / rate, time.monotonic() - LATE)
        stop.wait(max(0.0, due - time.monotonic()))


def _produce(records: Sequence[tuple[str, Sample]], producer: Producer, account: Account) -> None:
    account.begin(name for name, _ in records)
    messages = [Outgoing(sample.topic, sample.key, sample.value, sample.headers) for _, sample in records]
    outcomes = producer.send_all(messages)
    account.enter(name for (name, _), outcome in zip(records, outcomes, strict=True) if isinstance(outcome, Sent))
    if refused := [outcome for outcome in outcomes if not isinstance(outcome, Sent)]:
        log.warning("samples_failed", number=len(refused), error=refused[0].error)


def _do(actions: Sequence[tuple[str, SampleAction]], stop: threading.Event, account: Account) -> None:
    """On a slow machine they take longer than the part should: told to stop, it leaves the others undone."""
    for name, action in actions:
        if stop.is_set():
            return
        drop_lost_sessions()
        account.begin([name])
        try:
            action.run()
        except (DatabaseError, InterfaceError) as error:
            log.warning("sample_failed", error=str(error).strip())
        else:
            account.enter([name])


def _named(flow: Flow, seed: int) -> Traffic:
    return ((flow.name, sample) for sample in flow.samples(seed))


def _alternate(sources: Sequence[Traffic]) -> Traffic:
    """One sample of each flow in turn; a flow without samples takes no turn."""
    peeked = [(first, source) for source in sources for first in itertools.islice(source, 1)]
    yield from (first for first, _source in peeked)
    for row in zip(*(source for _first, source in peeked), strict=False):
        yield from row


# -- The account: how many samples went in -------------------------------------------------------------------
Counts = Mapping[str, int]  # of samples, by flow


class Account:
    """The samples of one run of the simulation; with a `path` in that file as they go, added to those of earlier runs.

    A sample that was begun and not entered may have gone in: its broker or its database did not say so, or a kill
    came between.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self.begun: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.before = read_account(path) if path else (Counter[str](), Counter[str]())

    def begin(self, names: Iterable[str]) -> None:
        """Samples of these flows are about to be sent."""
        self.begun.update(names)
        self._keep()

    def enter(self, names: Iterable[str]) -> None:
        """Samples of these flows are in Kafka or in the database."""
        self.sent.update(names)
        self._keep()

    @property
    def failed(self) -> int:
        return self.begun.total() - self.sent.total()

    def _keep(self) -> None:
        if self.path is None:
            return
        begun, sent = self.before
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps({"begun": begun + self.begun, "sent": sent + self.sent}))
        fresh.replace(self.path)


def read_account(path: Path) -> tuple[Counter[str], Counter[str]]:
    """Samples begun and samples sent, of all lives that kept their account in this file; none without it."""
    try:
        kept = json.loads(path.read_text())
    except FileNotFoundError:
        kept = {"begun": {}, "sent": {}}
    return Counter(kept["begun"]), Counter(kept["sent"])


def from_elsewhere(begun: Counts, arrived: Counts) -> int:
    """How much came that this simulation did not send: records by hand, orders by the API."""
    return sum(max(0, number - begun.get(flow, 0)) for flow, number in arrived.items())


def samples_lost(sent: Counts, arrived: Counts) -> Iterable[str]:
    """A sentence for each flow in which fewer samples arrived than were sent."""
    for flow, number in sent.items():
        if number > arrived.get(flow, 0):
            yield f"{number:,} samples of {flow} were sent and {arrived.get(flow, 0):,} arrived."
