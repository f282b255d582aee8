"""A flow that reads topics as one consumer group: its row on home, gauges, invariants, and what doctor says of its reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Generic, TypeVar

from django.urls import reverse

from config.database.clock import database_now
from config.database.isolation import consistent_snapshot
from config.flows import Check, Flow, HomeRow, Need, Reading, Stage, name_of
from config.kafka import topic_name
from config.kafka.positions import TopicPartition
from outbox.bookkeeping import counters, progress
from outbox.bookkeeping.models import Watermark
from outbox.bookkeeping.progress import Progress, Trends, position_needs
from outbox.bookkeeping.verify import (
    every_position_is_kept,
    every_record_has_an_outcome,
    no_partition_is_stopped,
    positions_fit_the_log,
)
from outbox.letters import overview
from outbox.letters.overview import letter_counts, letter_needs
from outbox.letters.verify import letters_counted


@dataclass
class TopicNumbers(Trends):
    """Counters and indexed look-ups of one page or scrape, each read once; `names` are the sources of letters."""

    group: str = ""
    topics: Sequence[str] = ()

    @cached_property
    def progress(self) -> Progress:
        return Progress.of(topic_name(self.group), [topic_name(topic) for topic in self.topics], self.now)

    @cached_property
    def totals(self) -> Counter[str]:
        """Of all names together, since the first record."""
        totals: Counter[str] = Counter()
        for name in self.names:
            totals.update(counters.totals(name))
        return totals


Figures = TypeVar("Figures", bound=TopicNumbers)


class TopicFlow(Flow, Generic[Figures]):
    """Base of a flow that reads topics. A flow names what it reads and counts, and draws its own stages."""

    group = ""  # by its contract name, as topics are
    command = ""  # the worker that reads
    reader = ""  # what people call that worker
    purpose = ""  # of the flow, on home
    page = ""  # the admin's list that the row on home leads to
    unread = ""  # what people call records that wait in Kafka
    outcomes: Sequence[str] = ()  # counters: each record adds one to one of them
    parked: Sequence[str] = ("parked", "late")  # counters of what became letters
    urgent_steps: Sequence[str] = ()  # steps whose letters somebody waits for
    scope_length = 0  # characters of a topic in the scope of a counter
    numbers_class: type[Figures]

    def topics(self) -> Sequence[str]:
        """What is read at present, by contract names."""
        raise NotImplementedError

    def stages(self, numbers: Figures) -> Iterator[Stage | Sequence[Stage]]:
        """The boxes of its row on home, from left to right."""
        raise NotImplementedError

    def own_needs(self, numbers: Figures) -> Iterator[Need]:
        """What needs a person besides stopped partitions, a silent reader, and letters."""
        return iter(())

    def own_checks(self) -> Iterator[Check]:
        """Invariants of its own tables, in the snapshot in which its records and letters are counted."""
        return iter(())

    def readers(self) -> Mapping[str, str]:
        return {topic_name(self.group): self.command}

    def numbers(self, now: datetime) -> Figures:
        return self.numbers_class(now, self.sources(), self.group, self.topics())

    def home_row(self, now: datetime) -> HomeRow | None:
        numbers = self.numbers(now)
        return HomeRow(
            name=name_of(self),
            purpose=self.purpose,
            stages=list(self.stages(numbers)),
            needs=[
                *position_needs(numbers.progress, self.reader, self.command, numbers.names),
                *letter_needs(numbers.names, self.urgent_steps),
                *self.own_needs(numbers),
            ],
            **letter_counts(numbers.names),
            letters_last_hour=numbers.in_last_hour(*self.parked),
            url=reverse(self.page),
            letters_url=reverse("admin:outbox_failuregroup_changelist"),
        )

    def gauges(self, now: datetime) -> Iterator[Reading]:
        numbers = self.numbers(now)
        yield from overview.gauges(numbers.names)
        yield from progress.gauges(numbers.progress)

    def verify(self) -> Iterator[Check]:
        group = topic_name(self.group)
        with consistent_snapshot():
            yield every_record_has_an_outcome(self.name, self.outcomes)
            yield every_position_is_kept(self.name, group, self._partition_of)
            yield no_partition_is_stopped(self.name, group)
            yield from self.own_checks()
            yield letters_counted([self.name])

    def verify_kafka(self) -> Iterator[Check]:
        topics = [topic_name(topic) for topic in self.topics()]
        yield positions_fit_the_log(self.name, topic_name(self.group), topics)

    def arrived(self) -> int:
        return counters.totals(self.name).get("read", 0)

    def waiting(self) -> Sequence[tuple[str, int]]:
        return [(self.unread, Watermark.objects.of_group(self.group).unread())]

    def diagnose(self) -> Iterator[tuple[str, bool, str]]:
        yield Watermark.objects.of_group(self.group).diagnosis(self.name, self.command, database_now())

    def _partition_of(self, scope: str) -> TopicPartition | None:
        """None for a topic that is not read any more."""
        name, _, number = scope.rpartition("/")
        topics = {topic[: self.scope_length]: topic for topic in self.topics()}
        return (topic_name(topics[name]), int(number)) if name in topics and number.isdigit() else None
