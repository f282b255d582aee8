"""Look, plan, apply: partitions are made before they are needed and dropped when nobody needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connections, models, router
from django.utils.module_loading import import_string

from config.database.clock import database_now
from config.database.errors import Remedy, remedy_for
from config.partitions.driver import Driver
from config.partitions.mysql import MySQL
from config.partitions.plan import Plan, Step, runway_of, steps_for
from config.partitions.postgresql import PostgreSQL
from config.partitions.spec import Keep, PartitionSpec
from config.partitions.sqlite import SQLite
from config.telemetry.logs import log

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
    dry_run: bool = False,
    no_drop: bool = False,
    *,
    specs: Sequence[PartitionSpec] = (),
    using: str = DEFAULT_DB_ALIAS,
) -> list[Plan]:
    """Plan and, unless `dry_run`, apply all specs. A failure of one table stops no other; see `Plan.failures`."""
    plans = []
    for spec in specs or configured():
        plan = plan_for(spec, using)
        if no_drop:
            plan = replace(plan, steps=[_spared(step) for step in plan.steps])
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
    plans = [apply(_creations(spec, using)) for spec in specs or configured()]
    if failures := [line for plan in plans for line in plan.failures]:
        raise PartitionError("; ".join(failures))
    return sum(step.done for plan in plans for step in plan.steps)


def ensure_after_migrate(sender: AppConfig, using: str = DEFAULT_DB_ALIAS, **_: Any) -> None:
    """Receiver of post_migrate: a fresh or long untouched database accepts rows at once."""
    for spec in configured():
        if spec.app_label != sender.label or not router.allow_migrate_model(using, spec.resolve()):
            continue
        # Migrations may not have come that far.
        if driver_for(spec, using).state() == "partitioned":
            ensure_partitions(spec, using=using)


def runway_days(spec: PartitionSpec, using: str = DEFAULT_DB_ALIAS) -> float:
    """Days until rows find no partition; 0 when that is now."""
    return runway_of(driver_for(spec, using).existing(), database_now(using))


def living_keys(spec: PartitionSpec, using: str = DEFAULT_DB_ALIAS) -> set[str]:
    """Keys of partitions that still exist: what `before_drop` recorded under them has not been dropped yet."""
    return {partition.key for partition in driver_for(spec, using).existing()}


def apply(plan: Plan) -> Plan:
    """Carry out the plan, creations first; returns it with the result of each step."""
    if plan.error:
        return plan
    driver = driver_for(plan.spec, plan.using)
    steps = [_carry_out(driver, step) for step in plan.steps]
    return replace(plan, steps=steps, runway=runway_of(driver.existing(), database_now(plan.using)))


def _plan(driver: Driver, unfinished: Callable[..., int]) -> Plan:
    spec, now = driver.spec, database_now(driver.using)
    state = driver.state()
    if state != "partitioned":
        error = "the table does not exist" if state == "missing" else "the table is not partitioned"
        return Plan(spec, driver.using, driver.table, error=f"{error}: run migrate")
    existing = driver.existing()
    steps = steps_for(spec, existing, now, unfinished, driver.prefix)
    return Plan(spec, driver.using, driver.table, runway_of(existing, now), steps, driver.note)


def _creations(spec: PartitionSpec, using: str) -> Plan:
    plan = _plan(driver_for(spec, using), lambda _: 0)
    return replace(plan, steps=plan.only("create"))


def _spared(step: Step) -> Step:
    return replace(step, action="keep", reason=f"{step.reason}; --no-drop") if step.action == "drop" else step


def _carry_out(driver: Driver, step: Step) -> Step:
    if step.action == "keep":
        return step
    outcome = _create(driver, step) if step.action == "create" else _drop(driver, step)
    event = "partition_failed" if outcome.error else f"partition_{outcome.action}"
    log.info(
        event, table=driver.table, partition=step.partition.name, done=outcome.done, why=outcome.error or outcome.reason
    )
    return outcome


def _create(driver: Driver, step: Step) -> Step:
    error: DatabaseError | None = None
    for _attempt in range(ATTEMPTS):
        try:
            driver.create(step.partition)
            return replace(step, done=True)
        except Keep as reason:
            return replace(step, action="keep", reason=str(reason))
        except DatabaseError as caught:
            error = caught
            if any(partition.covers(step.partition) for partition in driver.existing()):
                return replace(step, action="keep", reason="another run made it")
            if remedy_for(caught) is not Remedy.RERUN:
                break
    return replace(step, error=_one_line(error))


def _drop(driver: Driver, step: Step) -> Step:
    try:
        driver.drop(step.partition)
        return replace(step, done=True)
    except Keep as reason:
        return replace(step, action="keep", reason=str(reason))
    except DatabaseError as error:
        if all(partition.name != step.partition.name for partition in driver.existing()):
            return replace(step, action="keep", reason="gone already: another run dropped it")
        if remedy_for(error) is Remedy.RERUN:
            return replace(step, action="keep", reason="busy, the next run tries again")
        return replace(step, error=_one_line(error))
    except Exception as error:  # noqa: BLE001 (a bug in a hook must not cost other tables their partitions)
        log.exception("partition_hook_failed", table=driver.table, partition=step.partition.name)
        return replace(step, error=f"{driver.spec.before_drop}: {_one_line(error)}")


def _one_line(error: BaseException | None) -> str:
    return " ".join(str(error).split())
