"""Sentences about the positions of consumer groups."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import models
from django.db.models import Max

from config.admin import humanize
from config.kafka import topic_name

UNSEEN = timedelta(seconds=30)  # a worker reports every second, also when nothing comes


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

    def diagnosis(self, worker: str, now: datetime) -> tuple[bool, str]:
        """Whether all of them run and `worker` reports, and why not."""
        alarms = [f"{mark.topic}/{mark.partition}: {mark.alarm}" for mark in self.stopped()]
        seen = self.running().aggregate(seen=Max("updated_at"))["seen"]
        if seen and now - seen > UNSEEN:
            since = f"{humanize.clock(seen, now)} UTC ({humanize.ago(seen, now)})"
            alarms.append(f"nothing reported since {since}: is {worker} running, does Kafka answer it?")
        if not alarms and not seen:
            return True, f"{worker} has not reported yet"
        return not alarms, "; ".join(alarms) or f"no partition is stopped, reported {humanize.ago(seen, now)}"
