"""What a flow tells the rest of Spillway: its workers, its picture, its sample traffic, its invariants.

The registry `settings.FLOWS` names one subclass per flow; home, `verify`, `simulate`, `run_all` and
`doctor` walk it, so a new flow appears in all of them with one line of settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar

from django.conf import settings
from django.utils.module_loading import import_string

from config.causes import Fact
from config.letters import Letters, Refusal, Tone
from config.telemetry.metrics import Gauge

if TYPE_CHECKING:
    from config.kafka.consumer.writer import Replayable

Urgency = Literal["now", "soon", "watch"]
MOST_FOLLOWING = 4  # that are named with their cause


@dataclass(frozen=True)
class Stage:
    """One box of a flow's drawing: a live number with its unit, up to two detail lines, a sparkline."""

    name: str
    value: str
    unit: str = ""
    details: Sequence[str] = ()
    url: str = ""
    tone: Tone = "idle"
    word: str = ""  # what is wrong, one word; empty when healthy
    trend: Sequence[float] = ()  # the last 24 minutes, oldest first; () draws no line


class Kin(NamedTuple):
    """Needs of which home shows a few, and says how many more there are: `words` with 1 and with several, their list."""

    most: int
    words: tuple[str, str]
    url: str


@dataclass(frozen=True)
class Need:
    """One line of "what needs you": most urgent first, with exactly one thing to do about it.

    People can be told of it: `kind` is what they subscribe to (`outbox.notices.models.KINDS`), `key` what it is about,
    which stays the same while its numbers change.
    """

    urgency: Urgency
    title: str
    why: str
    url: str
    lever: str  # the words on its button
    amount: int | None = None
    unit: str = ""
    since: datetime | None = None
    until: datetime | None = None
    rank: int = 0  # within an urgency: 0 loss of data, 1 people waiting, 2 the rest
    place: int = 0  # within a rank: before its age, which puts what is new last
    kind: str = ""
    key: str = ""
    kin: Kin | None = None
    flow: str = ""  # of a failure group: its title begins with it
    quiet: bool = False  # home has a line about it already: people are told of it all the same
    runbook: str = ""  # the page of docs/ that says more, with its anchor
    fact: Fact | None = None  # among causes: what follows from another one has no line of its own
    follows: tuple[str, ...] = ()  # the titles of what follows from it
    news: bool = True  # False: another line covers it for now; it begins nothing, and is not over either

    @property
    def cause(self) -> str:
        """The title where the flow stands beside it."""
        return self.title.removeprefix(f"{self.flow}: ")

    @property
    def follows_in_words(self) -> str:
        """`From it follows: A; B; 2 more.`"""
        named, more = self.follows[:MOST_FOLLOWING], len(self.follows) - MOST_FOLLOWING
        return f"From it follows: {'; '.join([*named, *([f'{more} more'] if more > 0 else [])])}." if named else ""


@dataclass(frozen=True)
class HomeRow:
    """A flow as home draws it."""

    name: str
    purpose: str
    stages: Sequence[Stage | Sequence[Stage]]  # a sequence among them: side by side
    needs: Sequence[Need] = ()
    letters_open: int = 0
    letters_requeued: int = 0  # taken back, without proof of their effect
    letters_failed_again: int = 0  # of the groups with open letters: what came back from a replay
    letters_last_hour: int = 0
    url: str = ""
    letters_url: str = ""

    @property
    def worst(self) -> Stage | None:
        """The stage in the worst state, or None when all are healthy."""
        order: list[Tone] = ["bad", "warn"]
        every = [one for stage in self.stages for one in ([stage] if isinstance(stage, Stage) else stage)]
        troubled = [stage for stage in every if stage.tone in order]
        return min(troubled, key=lambda stage: order.index(stage.tone), default=None)


@dataclass(frozen=True)
class Check:
    """One invariant that `verify` proves: holds when expected equals actual and no row offends."""

    name: str
    expected: object = None
    actual: object = None
    rows: Sequence[object] = ()

    @property
    def ok(self) -> bool:
        return self.expected == self.actual and not self.rows


@dataclass(frozen=True)
class Worker:
    """A process that `run_all` starts: `manage.py <command> <arguments>`."""

    command: str
    arguments: Sequence[str] = ()


@dataclass
class Sample:
    """Records of sample traffic, ready to be produced."""

    topic: str
    key: str
    value: bytes
    headers: list[tuple[str, bytes]] = field(default_factory=list)


@dataclass(frozen=True)
class SampleAction:
    """Sample traffic that enters through a flow's own code and not through Kafka."""

    run: Callable[[], object]


@dataclass(frozen=True)
class Reading:
    """One sample of a gauge of the catalogue, read from the database when somebody scrapes /metrics."""

    gauge: Gauge
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


class Flow:
    """Base of a flow; every method may be left as it is."""

    name = ""
    headline: Sequence[str] = ()  # those of its `summary` that a status line has room for

    def workers(self) -> Sequence[Worker]:
        """The processes this flow needs."""
        return ()

    def readers(self) -> Mapping[str, str]:
        """The command that reads as a consumer group, by the group's name on the broker."""
        return {}

    def home_row(self, now: datetime) -> HomeRow | None:
        """Counts, ages, lag: from maintained counters and indexed look-ups only."""
        return None

    def still_so(self, kind: str, keys: Collection[str], now: datetime) -> Collection[str]:
        """Which of these needs of a kind, by their keys, are not over, though the lists of the picture are cut before them."""
        return ()

    def gauges(self, now: datetime) -> Iterator[Reading]:
        """Gauges that are read from the database for /metrics: counts, ages, lag; as cheap as `picture`."""
        return iter(())

    def verify(self) -> Iterator[Check]:
        """Invariants, in one consistent snapshot."""
        return iter(())

    def verify_payloads(self) -> Iterator[Check]:
        """What is stored against the digests taken when it came, in chunks and outside of any transaction."""
        return iter(())

    def verify_kafka(self) -> Iterator[Check]:
        """What the database says of Kafka against Kafka itself; raises KafkaError when no broker answers."""
        return iter(())

    def samples(self, seed: int) -> Iterator[Sample | SampleAction]:
        """Endless plausible traffic, the same for the same seed."""
        return iter(())

    def arrived(self) -> int:
        """How many of the samples have arrived: what a demo compares with what was sent."""
        return 0

    def replays(self) -> Mapping[str, Callable[[], Replayable]]:
        """The handler of each topic (by its contract name) whose past `replay_topic` can apply again."""
        return {}

    def not_replayed(self) -> Mapping[str, str]:
        """Why `replay_topic` refuses a topic of this flow, for those it is likely to be asked for."""
        return {}

    def searched(self) -> Mapping[str, Callable[[Any], Sequence[str]]]:
        """How to tell the keys that the search knows a record by, for each topic of this flow (as the broker calls it)."""
        return {}

    def letters(self) -> Sequence[Letters]:
        """The dead letters that this flow can take back, by source and steps; in the order in which they are locked."""
        return ()

    def sources(self) -> Sequence[str]:
        """The dead-letter sources of these."""
        return list(dict.fromkeys(letters.source for letters in self.letters()))

    def letters_about(self, key: str) -> Sequence[str]:
        """The business keys of the letters that somebody looks for who searches for this key; a few, by an index."""
        return ()

    def called(self, key: str) -> str:
        """What people call what a business key or an aggregate is about, told from the key alone; empty for other flows' keys."""
        return ""

    def events(self) -> Mapping[str, str]:
        """`{"order.paid": "Mail: paid"}`: the types of this flow's messages, in words."""
        return {}

    def diagnose(self) -> Iterator[tuple[str, bool, str]]:
        """(name, is it right, what was seen) for `doctor`; a `config.causes.Line` says among causes what is wrong."""
        return iter(())

    def waiting(self) -> Sequence[tuple[str, int]]:
        """What of this flow is still in progress, by name; all numbers are 0 when nothing is."""
        return ()

    def is_drained(self) -> bool:
        """Whether nothing of this flow is still in progress."""
        return not any(number for _name, number in self.waiting())

    def sweep(self, now: datetime) -> int:
        """Delete, in chunks, what outlived its retention and stands in no partition; daily."""
        return 0

    def summary(self) -> Sequence[tuple[str, int]]:
        """What has gone through, in lines, for the account at the end of a demo."""
        return ()


def flows() -> list[Flow]:
    """The flows of `settings.FLOWS`, in order."""
    return list(_made(tuple(settings.FLOWS)))


@lru_cache(maxsize=8)
def _made(paths: tuple[str, ...]) -> tuple[Flow, ...]:
    """Made once: a list asks for its flows in each row, and they keep nothing."""
    return tuple(import_string(path)() for path in paths)


def name_of(flow: Flow) -> str:
    """What people call a flow, the words of its class: the same on home, in filters and in lists."""
    first, *others = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", type(flow).__name__).split()
    return " ".join([first, *(word if word.isupper() else word.lower() for word in others)])


def source_in_words(source: str) -> str:
    """The flow of a dead-letter source; where a flow has several, the source is said, too."""
    return _source_in_words(source, tuple(settings.FLOWS), tuple(settings.STREAMS))


@lru_cache(maxsize=256)  # a list asks in each row, and a stream is a source
def _source_in_words(source: str, paths: tuple[str, ...], streams: tuple[str, ...]) -> str:
    for flow in _made(paths):
        if source in (sources := flow.sources()):
            return name_of(flow) if len(sources) == 1 else f"{name_of(flow)}: {source}"
    return source


def reader_of(group: str) -> str:
    """The command that reads as this consumer group; empty when no flow has it."""
    return next((readers[group] for flow in flows() if group in (readers := flow.readers())), "")


def called(key: str) -> str:
    """`order 34DDC7D9C5`: a business key or an aggregate as its flow calls it, without a query; else the key itself."""
    return next(filter(None, (flow.called(key) for flow in flows())), key)


ORDER = "order:"  # before the id of an order, in the aggregate of its messages


def order_in(aggregate: str) -> str:
    """The id of the order that an aggregate is; empty for another one."""
    return aggregate.removeprefix(ORDER) if aggregate.startswith(ORDER) else ""


def promise_in_words(event_type: str, aggregate: str) -> str:
    """`Mail: paid, order 34DDC7D9C5`; what no flow has words for stays as it is."""
    return f"{_events(tuple(settings.FLOWS)).get(event_type, event_type)}, {called(aggregate)}"


@lru_cache(maxsize=8)
def _events(paths: tuple[str, ...]) -> dict[str, str]:
    return {event_type: words for flow in _made(paths) for event_type, words in flow.events().items()}


def letters_of(source: str, step: str = "") -> Letters:
    """What a flow knows of the letters of a source that failed in a step; raises Refusal when no flow has it."""
    of_source = [letters for flow in flows() for letters in flow.letters() if letters.source == source]
    for letters in of_source:
        if step in letters.steps:
            return letters
    for letters in of_source:
        if not letters.steps:
            return letters
    raise Refusal(no_flow_takes(source))


def no_flow_takes(source: str) -> str:
    return f"no flow of FLOWS takes letters of {source!r}; if a package brought them, name it in SPILLWAY_APPS"


class Row(Protocol):
    """A dead letter, of which only the layers above know the rest."""

    source: str
    step: str


AnyRow = TypeVar("AnyRow", bound=Row)


def by_kind(rows: Sequence[AnyRow]) -> Iterator[tuple[Letters, list[AnyRow]]]:
    """Dead letters with what their flow knows of them; those of no flow are left out.

    In the order of FLOWS and of `Flow.letters`, for everybody: so they are locked in one order, too.
    """
    kinds = [letters for flow in flows() for letters in flow.letters()]
    named = {(kind.source, step) for kind in kinds for step in kind.steps}
    for kind in kinds:
        mine = [
            row
            for row in rows
            if row.source == kind.source
            and (row.step in kind.steps if kind.steps else (row.source, row.step) not in named)
        ]
        if mine:
            yield kind, mine


def mask_of(source: str) -> tuple[Sequence[str], Sequence[str]]:
    """What may be read of a payload of this source: paths of values, paths of names. Nothing without a flow."""
    try:
        letters = letters_of(source)
    except Refusal:
        return (), ()
    return letters.readable, letters.named


# -- `verify`: the invariants of all flows --------------------------------------------------------------------
def prove(flow: str | None = None, *, payloads: bool = True, kafka: bool = False) -> dict[str, object]:
    """`{"ok": bool, "checks": [{"name", "ok", "expected", "actual", "rows"}]}`; LookupError for an unknown flow."""
    chosen = [each for each in flows() if flow in (None, each.name)]
    if not chosen:
        raise LookupError(f"--flow {flow}: not one of {', '.join(each.name for each in flows())}")
    checks = [
        {"name": check.name, "ok": check.ok, **vars(check)}
        for each in chosen
        for check in _checks(each, payloads, kafka)
    ]
    return {"ok": all(check["ok"] for check in checks), "checks": checks}


def _checks(flow: Flow, payloads: bool, kafka: bool) -> Iterator[Check]:
    yield from flow.verify()
    if payloads:
        yield from flow.verify_payloads()
    if kafka:
        yield from flow.verify_kafka()


def render(proof: dict[str, Any], *, as_json: bool) -> str:
    """One JSON object, or one line a check with the offending rows under it."""
    if as_json:
        return json.dumps(proof, default=str)
    lines = []
    for check in proof["checks"]:
        figures = "" if check["expected"] is None else f"  {check['expected']} = {check['actual']}"
        if not check["ok"] and check["expected"] is not None:
            figures = f"  expected {check['expected']}, found {check['actual']}"
        lines.append(f"{'ok  ' if check['ok'] else 'FAIL'}  {check['name']}{figures}")
        lines += [f"        {row}" for row in check["rows"]]
    lines.append("Everything adds up." if proof["ok"] else "Something is missing, there twice or changed: see FAIL.")
    return "\n".join(lines)
