"""Sentences about the positions of consumer groups."""

from __future__ import annotations

from django.db import models

from config.kafka import topic_name


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

    def diagnosis(self) -> tuple[bool, str]:
        """Whether all of them run, and why not."""
        alarms = [f"{mark.topic}/{mark.partition}: {mark.alarm}" for mark in self.stopped()]
        return not alarms, "; ".join(alarms) or "no partition is stopped"
