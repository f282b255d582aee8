"""Plan, apply, report: partitions are made before they are needed and dropped when nobody needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Literal

from django.apps import AppConfig
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, models, router
from django.urls import reverse
from django.utils.module_loading import import_string

from config.database.clock import database_now
from config.database.retry import Remedy, remedy_for
from config.flows import Need, Reading
from config.partitions.drivers import Driver, MySQL, PostgreSQL, SQLite
from config.partitions.spec import DropRefused, Keep, Partition, PartitionSpec, Value, day_of
from config.telemetry import metrics
from config.telemetry.logs import log
from config.telemetry.redaction import one_line

# -- The plan, pure ------------------------------------------------------------------------------------------
DONE = {"create": "created", "drop": "dropped", "keep": "keep"}


@dataclass(frozen=True)
class Step:
    """One partition: what to do with it and why; after `apply`, whether it was done or what went wrong."""

    action: Literal["create", "drop", "keep"]
    partition: Partition
    reason: str
    done: bool = False
    error: str = ""

    @property
    def word(self) -> str:
        return "failed" if self.error else DONE[self.action] if self.done else self.action

    def __str__(self) -> str:
        span = f"{self.partition.lower or 'any'} … {self.partition.upper or 'any'}"
        return f"  {self.word:8} {self.partition.name}  {span:24} {self.error or self.reason}"


@dataclass(frozen=True)
class Plan:
    """The steps for one table; prints itself. `error` is set when the table cannot be rotated at all."""

    spec: PartitionSpec
    using: str
    table: str
    days_left: float = 0.0  # until rows find no partition
    steps: Sequence[Step] = ()
    note: str = ""
    error: str = ""

    def only(self, action: str) -> list[Step]:
        return [step for step in self.steps if step.action == action]

    @property
    def failures(self) -> list[str]:
        """One line for each thing that had to be done and could not be."""
        lines = [f"{self.table}: {self.error}"] if self.error else []
        failed = [step for step in self.steps if step.error]
        return lines + [f"{self.table}: {step.partition.name}: {step.error}" for step in failed]

    def __str__(self) -> str:
        if self.error:
            return f"{self.table}: {self.error}"
        words = Counter(step.word for step in self.steps)
        counts = ", ".join(f"{number} {word}" for word, number in sorted(words.items()))
        head = f"{self.table}: {counts}; room for {self.days_left:.0f} days"
        return "\n".join([head, *([f"  {self.note}"] if self.note else []), *map(str, self.steps)])


def steps_for(
    spec: PartitionSpec,
    existing: Sequence[Partition],
    now: datetime,
    unfinished: Callable[[Partition], int],
    prefix: str = "p",
) -> list[Step]:
    """Creations first, oldest first, then what happens to each existing partition.

    Every partition is decided by itself: a gap does not protect those behind it. `unfinished` counts the rows that
    keep a partition alive; it is called only for partitions that are old enough to be dropped.
    """
    today = now.astimezone(UTC).date()
    missing = [
        wanted for wanted in spec.wanted(today, prefix) if not any(partition.covers(wanted) for partition in existing)
    ]
    creations = [Step("create", partition, _when(partition, today)) for partition in missing]
    return creations + [_decide(spec, partition, today, unfinished) for partition in existing]


def _decide(spec: PartitionSpec, partition: Partition, today: date, unfinished: Callable[[Partition], int]) -> Step:
    oldest = spec.oldest(today)
    if partition.upper is None:
        return Step("keep", partition, "its bounds are unknown: somebody else made it")
    if oldest is None or partition.upper > oldest:
        return Step("keep", partition, _when(partition, today))
    if count := unfinished(partition):
        return Step("keep", partition, f"{count} unfinished")
    return Step("drop", partition, f"ended before {oldest}, nothing unfinished")


def _when(partition: Partition, today: date) -> str:
    if partition.holds(today):
        return "current"
    return "ahead" if partition.lower and partition.lower > today else "within retention"


def days_left_of(existing: Sequence[Partition], now: datetime) -> float:
    """Days from `now` until the first moment that no partition holds; 0 when that is now."""
    today = end = now.astimezone(UTC).date()
    while partition := next((partition for partition in existing if partition.holds(end)), None):
        end = partition.upper or end
    if end == today:
        return 0.0
    return (datetime.combine(end, time(), UTC) - now).total_seconds() / 86_400


# -- Look, plan, apply ---------------------------------------------------------------------------------------
DRIVERS: dict[str, type[Driver]] = {"postgresql": PostgreSQL, "mysql": MySQL, "sqlite": SQLite}
ATTEMPTS = 3


class PartitionError(Exception):
    """A partition that must exist could not be made; the text is one line."""


def configured() -> list[PartitionSpec]:
    """The specs that settings.PARTITIONS names."""
    return [import_string(path) for path in settings.PARTITIONS]


def driver_for(spec: PartitionSpec, using: str, model: type[models.Model] | None = None) -> Driver:
    """The driver of that database for that table; migrations hand in their own `model`."""
    return DRIVERS[connections[using].vendor](spec, using, model)


def rotate(
    dry_run: bool = False, no_drop: bool = False, *, specs: Sequence[PartitionSpec] = (), using: str = DEFAULT_DB_ALIAS
) -> list[Plan]:
    """Plan and, unless `dry_run`, apply all specs. A failure of one table stops no other; see `Plan.failures`."""
    plans = []
    for spec in specs or configured():
        plan = plan_for(spec, using)
        if no_drop:
            plan = replace(plan, steps=[_skipped(step) for step in plan.steps])
        plans.append(plan if dry_run else apply(plan))
    return plans


def plan_for(spec: PartitionSpec, using: str = DEFAULT_DB_ALIAS) -> Plan:
    """What rotation would do now. Changes nothing."""
    driver = driver_for(spec, using)
    return _plan(driver, driver.unfinished)


def ensure_partitions(*specs: PartitionSpec, using: str = DEFAULT_DB_ALIAS) -> int:
    """Make what is missing of the given or all specs; returns how many were made, drops nothing.

    For `migrate`, and for a worker whose insert hit a missing partition: 0 then means that the row's period is not
    one that must exist, and trying again will not help. Call it outside transactions. Raises PartitionError.
    """
    plans = [_plan(driver_for(spec, using), lambda _: 0) for spec in specs or configured()]
    plans = [apply(replace(plan, steps=plan.only("create"))) for plan in plans]
    if failures := [line for plan in plans for line in plan.failures]:
        raise PartitionError("; ".join(failures))
    return sum(step.done for plan in plans for step in plan.steps)


def ensure_after_migrate(sender: AppConfig, using: str = DEFAULT_DB_ALIAS, **_: object) -> None:
    """Receiver of post_migrate: a fresh or long untouched database accepts rows at once."""
    for spec in configured():
        if spec.app_label != sender.label or not router.allow_migrate_model(using, spec.resolve()):
            continue
        # Migrations may not have come that far.
        if driver_for(spec, using).state() == "partitioned":
            ensure_partitions(spec, using=using)


def days_left(spec: PartitionSpec, using: str = DEFAULT_DB_ALIAS) -> float:
    """Days until rows find no partition; 0 when that is now."""
    return days_left_of(driver_for(spec, using).existing(), database_now(using))


def living_keys(spec: PartitionSpec, using: str = DEFAULT_DB_ALIAS) -> set[str]:
    """Keys of partitions that still exist: what `before_drop` recorded under them has not been dropped yet."""
    return {partition.key for partition in driver_for(spec, using).existing()}


def storable(spec: PartitionSpec, values: Collection[Value], using: str = DEFAULT_DB_ALIAS) -> set[Value]:
    """Those of these column values for which there is a partition now."""
    existing, days = driver_for(spec, using).existing(), {value: day_of(spec.encoding, str(value)) for value in values}
    return {value for value, day in days.items() if day and any(partition.holds(day) for partition in existing)}


def apply(plan: Plan) -> Plan:
    """Carry out the plan, creations first; returns it with the result of each step."""
    if plan.error:
        return plan
    driver = driver_for(plan.spec, plan.using)
    steps = [_carry_out(driver, step) for step in plan.steps]
    return replace(plan, steps=steps, days_left=days_left_of(driver.existing(), database_now(plan.using)))


def _plan(driver: Driver, unfinished: Callable[..., int]) -> Plan:
    spec, now = driver.spec, database_now(driver.using)
    state = driver.state()
    if state != "partitioned":
        error = "the table does not exist" if state == "missing" else "the table is not partitioned"
        return Plan(spec, driver.using, driver.table, error=f"{error}: run migrate")
    existing = driver.existing()
    steps = steps_for(spec, existing, now, unfinished, driver.prefix)
    return Plan(spec, driver.using, driver.table, days_left_of(existing, now), steps, driver.note)


def _skipped(step: Step) -> Step:
    return replace(step, action="keep", reason=f"{step.reason}; --no-drop") if step.action == "drop" else step


def _carry_out(driver: Driver, step: Step) -> Step:
    if step.action == "keep":
        return step
    outcome = _create(driver, step) if step.action == "create" else _drop(driver, step)
    log.info(
        "partition_failed" if outcome.error else "partition_drop" if outcome.action == "drop" else "partition_create",
        table=driver.table, partition=step.partition.name, done=outcome.done, why=outcome.error or outcome.reason,
    )  # fmt: skip
    return outcome


def _create(driver: Driver, step: Step) -> Step:
    for attempt in range(ATTEMPTS):
        try:
            driver.create(step.partition)
            break
        except Keep as reason:
            return replace(step, action="keep", reason=str(reason))
        except DatabaseError as error:
            if any(partition.covers(step.partition) for partition in driver.existing()):
                return replace(step, action="keep", reason="another run made it")
            if remedy_for(error) is not Remedy.RERUN or attempt == ATTEMPTS - 1:
                return replace(step, error=one_line(error))
    return replace(step, done=True)


def _drop(driver: Driver, step: Step) -> Step:
    try:
        driver.drop(step.partition)
        return replace(step, done=True)
    except Keep as reason:
        return replace(step, action="keep", reason=str(reason))
    except DropRefused as reason:
        return replace(step, error=str(reason))
    except DatabaseError as error:
        if all(partition.name != step.partition.name for partition in driver.existing()):
            return replace(step, action="keep", reason="gone already: another run dropped it")
        if remedy_for(error) is Remedy.RERUN:
            return replace(step, action="keep", reason="busy, the next run tries again")
        return replace(step, error=one_line(error))
    except Exception as error:  # noqa: BLE001 (a bug in a hook must not cost other tables their partitions)
        log.exception("partition_hook_failed", table=driver.table, partition=step.partition.name)
        return replace(step, error=f"{driver.spec.before_drop}: {one_line(error)}")


# -- Days until the last partition ends ----------------------------------------------------------------------
NOW_DAYS = 3  # from when SpillwayPartitionRunwayShort wakes people
PERIOD_DAYS = {"month": 31, "day": 1}


@lru_cache(maxsize=1)
def _days_by_table(minute: int) -> dict[str, float]:
    return {spec.resolve()._meta.db_table: days_left(spec) for spec in configured()}


def days_by_table(now: datetime) -> dict[str, float]:
    """Days by table. The catalogue is asked once a minute: home is refreshed far more often."""
    return _days_by_table(int(now.timestamp() // 60))


def short(now: datetime) -> dict[str, float]:
    """Days by table, where less than a third is left of what the daily rotation keeps ahead."""
    kept = kept_ahead()
    return {table: days for table, days in days_by_table(now).items() if days < kept[table] / 3}


def kept_ahead() -> dict[str, int]:
    """About how many days ahead, by table, partitions exist right after a rotation."""
    return {spec.resolve()._meta.db_table: spec.ahead * PERIOD_DAYS[spec.period] for spec in configured()}


def partition_needs(now: datetime) -> Iterator[Need]:
    """Tables whose last partition ends soon."""
    for table, days in short(now).items():
        yield Need(
            urgency="now" if days < NOW_DAYS else "soon",
            title=f"Partitions of {table} end in {days:.0f} days" if days else f"{table} has no partition for now",
            why="rotate_partitions has not run for long. Inserts fail after the last partition.",
            url=reverse("admin:partitions"),
            lever="Show plan…",
            amount=int(days),
            unit="days left",
            until=now + timedelta(days=days),
            rank=0,
            kind="runway",
            key=table,
            runbook="alerts.md#spillwaypartitionrunway",
        )


def partition_gauges(now: datetime) -> Iterator[Reading]:
    kept = kept_ahead()
    for table, days in days_by_table(now).items():
        yield Reading(metrics.PARTITION_RUNWAY, days, {"table": table})
        yield Reading(metrics.PARTITION_AHEAD, kept.get(table, 0), {"table": table})
