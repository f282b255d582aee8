"""Tables of positions, counters and leases, with their queries."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import datetime, timedelta

from django.db import models
from django.db.models import Max

from config.admin import humanize
from config.causes import SILENT, STOPPED, Line, fact
from config.database.queries import Names
from config.fields import IdentifierField
from config.flows import reader_of
from config.kafka import topic_name

# -- Sentences about the positions of consumer groups --------------------------------------------------------
UNSEEN = timedelta(seconds=30)  # a worker reports every second, also when nothing comes


def cause_of(mark: Watermark) -> str:
    """Why a partition is stopped, the same for all that are for one reason: their offsets differ."""
    return re.sub(r"\d[\d,]*", "…", mark.alarm)


class WatermarkQuerySet(models.QuerySet):
    """One row per partition and group; both are asked for without the prefix of their names."""

    def of_group(self, group: str) -> WatermarkQuerySet:
        return self.filter(group=topic_name(group))

    def of_topic(self, topic: str) -> WatermarkQuerySet:
        return self.filter(topic=topic_name(topic))

    def running(self) -> WatermarkQuerySet:
        return self.filter(alarm="")

    def stopped(self) -> WatermarkQuerySet:
        return self.exclude(alarm="")

    def unread(self) -> int:
        """How many records their workers know to be in the log, and have not written."""
        return sum(max(0, end - following) for following, end in self.values_list("next_offset", "end_offset"))

    def why_stopped(self, worker: str) -> str:
        """Why `worker` has stopped at the first of these, and what helps, in one line; empty when all of them run."""
        mark = self.stopped().order_by("topic", "partition").first()
        return f"{worker} has stopped at {mark.topic}, partition {mark.partition}: {mark.alarm}" if mark else ""

    def diagnosis(self, name: str, worker: str, now: datetime) -> Line:
        """Whether all of them run and `worker` reports, and why not."""
        alike: dict[tuple[str, str], list[Watermark]] = defaultdict(list)
        for mark in self.stopped().order_by("topic", "partition"):
            alike[mark.topic, cause_of(mark)].append(mark)
        alarms = [
            f"{topic}/{','.join(str(mark.partition) for mark in marks)}: {marks[0].why}"
            for (topic, _cause), marks in alike.items()
        ]
        found = fact(STOPPED if alarms else SILENT, worker)
        seen = self.running().aggregate(seen=Max("updated_at"))["seen"]
        if not alarms and seen and now - seen > UNSEEN:  # where some are stopped their reader has ended
            since = f"{humanize.clock_in_zone(seen, now)} ({humanize.ago(seen, now)})"
            alarms.append(f"nothing reported since {since}: is {worker} running, does Kafka answer it?")
        if not alarms and not seen:
            return Line(name, True, f"{worker} has not reported yet")
        right = f"no partition is stopped, reported {humanize.ago(seen, now)}"
        return Line(name, not alarms, "; ".join(alarms) or right, found)


# -- Tables of positions, counters and leases ----------------------------------------------------------------
class Watermark(models.Model):
    """How far a consumer group has come in a partition, written in the transaction of the data itself.

    A restored backup therefore remembers less than Kafka does, and its consumer reads the gap again.
    """

    group = IdentifierField(max_length=100)
    topic = IdentifierField(max_length=249)
    partition = models.IntegerField()
    topic_id = models.CharField(max_length=36, default="", help_text="Tells a recreated topic from its namesake.")
    next_offset = models.BigIntegerField()
    end_offset = models.BigIntegerField(default=0)
    caught_up_at = models.DateTimeField(null=True, help_text="The last time everything in the log had been read.")
    alarm = models.CharField(max_length=500, default="", help_text="Why this partition is stopped; empty: it runs.")
    updated_at = models.DateTimeField()

    objects = WatermarkQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["group", "topic", "partition"], name="watermark_position")]

    def __str__(self) -> str:
        return f"{self.group} {self.topic}/{self.partition} at {self.next_offset}"

    @property
    def why(self) -> str:
        """The alarm, with the command that is to be started."""
        return self.alarm.replace(" start with --", f" start {reader_of(self.group) or 'its worker'} with --")


class CountQuerySet(models.QuerySet):
    """Counts of flows."""

    def of_flows(self, flows: Names) -> CountQuerySet:
        return self if flows is None else self.filter(flow__in=list(flows))


class FlowCounter(models.Model):
    """A durable count of what happened, written in the transaction in which it happened."""

    flow = IdentifierField(max_length=100)
    scope = IdentifierField(max_length=50, help_text="Source partition, channel, or empty.")
    slot = models.IntegerField(
        default=0, db_default=0, help_text="So that processes do not wait for each other; sum them."
    )
    name = IdentifierField(max_length=50)
    value = models.BigIntegerField(default=0)

    objects = CountQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["flow", "scope", "slot", "name"], name="flowcounter_key")]

    def __str__(self) -> str:
        return f"{self.flow}[{self.scope}].{self.name} = {self.value}"


class FlowMinute(models.Model):
    """The same counts per minute: rates and sparklines without a second store. Kept for a day."""

    flow = IdentifierField(max_length=100)
    name = IdentifierField(max_length=50)
    minute = models.IntegerField(help_text="Minutes since 1970.")
    slot = models.IntegerField(default=0, db_default=0, help_text="As of the counters.")
    value = models.BigIntegerField(default=0)

    objects = CountQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["flow", "name", "minute", "slot"], name="flowminute_key")]
        indexes = [models.Index(fields=["minute"], name="flowminute_minute")]

    def __str__(self) -> str:
        return f"{self.flow}.{self.name} in minute {self.minute}: {self.value}"


class JobLease(models.Model):
    """Which process runs a scheduled job now, so that two beats are one."""

    job = IdentifierField(max_length=100, primary_key=True)
    token = models.UUIDField(null=True)
    until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.job} until {self.until:%F %T}"
