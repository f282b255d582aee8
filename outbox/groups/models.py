"""Tables of failure groups: counts and state, letters per hour, quotas; with their queries."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime

from django.db import models
from django.db.models import F, Q
from django.urls import reverse

from config.admin import humanize
from config.database.queries import Names
from config.fields import IdentifierField

# -- Queries about failure groups and their hours ------------------------------------------------------------
HOUR = 3600


def hour_of(now: datetime) -> int:
    """Hours since 1970."""
    return int(now.timestamp() // HOUR)


def ignored_long_enough(now: datetime) -> Q:
    """Groups whose time to be ignored is over, or whose count has doubled; as `FailureGroup.shown_state`."""
    late = Q(ignored_until__isnull=False, ignored_until__lte=now)
    many = Q(ignored_total__isnull=False, total_count__gte=F("ignored_total"))
    return Q(state="ignored") & (late | many)  # never NULL, so that it can be negated


def needs_work(now: datetime) -> Q:
    """Groups with open letters, without those that are ignored at that time."""
    return Q(open_count__gt=0) & ~(Q(state="ignored") & ~ignored_long_enough(now))


class FailureGroupQuerySet(models.QuerySet):
    """Failure groups. There are few; their counts are stored, never computed for a page."""

    def with_open_letters(self) -> FailureGroupQuerySet:
        return self.filter(open_count__gt=0)

    def needing_work(self, now: datetime) -> FailureGroupQuerySet:
        """Those with open letters, without those that are ignored at that time."""
        return self.filter(needs_work(now))

    def in_state(self, state: str, now: datetime, in_work: Collection[int] = ()) -> FailureGroupQuerySet:
        """Those that a page shows in this state at that time (`FailureGroup.shown_state`)."""
        resolving = Q(pk__in=in_work) | Q(open_count=0, requeued_count__gt=0)
        if state == "resolving":
            return self.filter(resolving)
        over = ignored_long_enough(now)
        shown = Q(state=state) & ~over
        if state in ("open", "acknowledged"):
            owned = ~Q(owner_name="") if state == "acknowledged" else Q(owner_name="")
            shown |= over & owned & Q(open_count__gt=0)
        elif state == "resolved":
            shown |= over & Q(open_count=0)
        return self.filter(shown).exclude(resolving)

    def takeable(self) -> FailureGroupQuerySet:
        """They have no owner, and something to work on."""
        return self.filter(owner_name="").workable()

    def workable(self) -> FailureGroupQuerySet:
        """They have letters that are open or on their way."""
        return self.filter(Q(open_count__gt=0) | Q(requeued_count__gt=0))

    def in_nobodys_hand(self) -> FailureGroupQuerySet:
        """Nobody works on them: whoever owns one that came back has not seen it yet."""
        return self.exclude(~Q(owner_name="") & ~Q(state__in=["regressed", "new"]))

    def owned(self) -> FailureGroupQuerySet:
        return self.exclude(owner_name="")

    def of_sources(self, sources: Names) -> FailureGroupQuerySet:
        return self if sources is None else self.filter(source__in=list(sources))


class GroupHourQuerySet(models.QuerySet):
    """Letters per group and hour."""

    def of_groups(self, ids: Iterable[int]) -> GroupHourQuerySet:
        return self.filter(group_id__in=list(ids))

    def since(self, hour: int) -> GroupHourQuerySet:
        return self.filter(hour__gte=hour)

    def before(self, hour: int) -> GroupHourQuerySet:
        return self.filter(hour__lt=hour)


# -- Tables of failure groups --------------------------------------------------------------------------------
# Counts and state, letters per hour, and how many groups a source has made in an hour.
class FailureGroup(models.Model):
    """Dead letters with one cause: counted as they arrive, owned by whoever works on it.

    Owner, note, ticket and hint are never cleared by what happens to the letters. The owner is a name and a number, no
    foreign key: it outlives the account.
    """

    class State(models.TextChoices):
        NEW = "new"
        OPEN = "open"
        ACKNOWLEDGED = "acknowledged"
        RESOLVED = "resolved"
        REGRESSED = "regressed"
        IGNORED = "ignored"

    fingerprint = IdentifierField(max_length=32, unique=True)
    source = IdentifierField(max_length=100)
    step = models.CharField(max_length=50)
    reason = models.CharField(max_length=100)
    title = models.CharField(max_length=300)
    open_count = models.BigIntegerField(default=0)
    requeued_count = models.BigIntegerField(
        default=0, db_default=0, help_text="Taken back, without proof of their effect."
    )
    total_count = models.BigIntegerField(default=0)
    returned_count = models.BigIntegerField(
        default=0, db_default=0, help_text="Of the total: letters of a replay that failed again."
    )
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()

    # Defaults of the database: a burial of the version before, or of an upsert, names none of these columns.
    state = models.CharField(max_length=12, choices=State, default=State.NEW, db_default=State.NEW)
    state_since = models.DateTimeField(null=True)
    ignored_until = models.DateTimeField(null=True, help_text="Ignored until then at the longest.")
    ignored_total = models.BigIntegerField(null=True, help_text="Ignored until the total has reached this.")
    owner_id = models.BigIntegerField(null=True)
    owner_name = models.CharField(max_length=150, default="", db_default="")
    note = models.CharField(max_length=2000, default="", db_default="")
    note_by = models.CharField(max_length=150, default="", db_default="")
    ticket = models.CharField(max_length=300, default="", db_default="", help_text="An address, or its number.")
    hint = models.CharField(max_length=2000, default="", db_default="", help_text="What to do about this cause.")
    hint_by = models.CharField(max_length=150, default="", db_default="")
    hint_at = models.DateTimeField(null=True)

    objects = FailureGroupQuerySet.as_manager()

    class Meta:
        indexes = [
            models.Index(fields=["-last_seen"], name="failuregroup_recent"),
            models.Index(fields=["source", "state"], name="failuregroup_state"),
        ]
        permissions = [("take_failuregroup", "Can take groups"), ("manage_failuregroup", "Can manage groups")]

    def __str__(self) -> str:
        return humanize.quoted(self.title)

    @property
    def url(self) -> str:
        """Its page."""
        return reverse("admin:outbox_failuregroup_change", args=[self.pk])

    def shown_state(self, now: datetime, in_work: Collection[int] = ()) -> str:
        """The state as a page says it: `resolving` while a batch works on it (`in_work`) or all its letters are on their
        way, and no longer `ignored` when the time or the count that ends it has come."""
        if self.pk in in_work or (self.open_count == 0 and self.requeued_count > 0):
            return "resolving"
        return self.state_when_ignored_no_more if self._ignored_long_enough(now) else self.state

    @property
    def state_when_ignored_no_more(self) -> str:
        if not self.open_count:
            return self.State.RESOLVED
        return self.State.ACKNOWLEDGED if self.owner_name else self.State.OPEN

    def _ignored_long_enough(self, now: datetime) -> bool:
        if self.state != self.State.IGNORED:
            return False
        late = self.ignored_until is not None and self.ignored_until <= now
        return late or (self.ignored_total is not None and self.total_count >= self.ignored_total)


class GroupHour(models.Model):
    """Letters of a group in one hour; what the chart and the trend are drawn from."""

    group_id = models.BigIntegerField()
    hour = models.IntegerField(help_text="Hours since 1970.")
    arrived = models.BigIntegerField(default=0, db_default=0)
    closed = models.BigIntegerField(default=0, db_default=0, help_text="Resolved or discarded.")

    objects = GroupHourQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["group_id", "hour"], name="grouphour_key")]
        indexes = [models.Index(fields=["hour"], name="grouphour_hour")]

    def __str__(self) -> str:
        return f"group {self.group_id} in hour {self.hour}: {self.arrived}"


class GroupQuota(models.Model):
    """How many groups a source has made in an hour. Whoever makes one holds this row until the commit."""

    source = IdentifierField(max_length=100)
    hour = models.IntegerField(help_text="Hours since 1970.")
    made = models.IntegerField(default=0, db_default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["source", "hour"], name="groupquota_key")]

    def __str__(self) -> str:
        return f"{self.source} in hour {self.hour}: {self.made} groups"
