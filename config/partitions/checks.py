"""System checks: what a partitioned model may not contain, and whether its table really is partitioned."""

from __future__ import annotations

from collections.abc import Sequence

from django.apps import apps
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import FieldDoesNotExist
from django.db import models, router
from django.utils.module_loading import import_string

from config.partitions.rotation import configured, driver_for
from config.partitions.spec import PartitionSpec, column_of

NOWHERE = (ImportError, LookupError, ValueError, FieldDoesNotExist)


@register(Tags.models)
def check_models(app_configs: object, **_: object) -> list[CheckMessage]:
    """Databases refuse a unique key without the partition column, and foreign keys to or from the table."""
    try:
        return [message for spec in configured() for message in _check_spec(spec)]
    except (ImportError, ValueError) as error:
        return [Error(f"PARTITIONS: {error}", id="partitions.E001")]


@register(Tags.database)
def check_tables(app_configs: object, databases: Sequence[str] | None = None, **_: object) -> list[CheckMessage]:
    """Find tables that are not partitioned, say after `--nomigrations`: they work, but nothing drops their rows."""
    messages: list[CheckMessage] = []
    for using in databases or []:
        for spec in _sound():
            if not router.allow_migrate_model(using, spec.resolve()):
                continue
            driver = driver_for(spec, using)
            # A warning: an Error would stop the `migrate` that repairs it. A missing table has not been migrated yet.
            if driver.state() == "plain":
                text = f"{driver.table} in {using!r} is not partitioned, so rotation can drop nothing"
                hint = "Was it created without migrations?"
                messages.append(Warning(text, hint=hint, obj=spec.resolve(), id="partitions.W001"))
    return messages


def _check_spec(spec: PartitionSpec) -> list[CheckMessage]:
    """Check that what a spec names exists, and that its model can be partitioned."""
    try:
        model = spec.resolve()
        column_of(model, spec.column)
        for label in spec.locks:
            apps.get_model(label)
        if spec.before_drop:
            import_string(spec.before_drop)
    except NOWHERE as error:
        return [Error(f"{spec.model}: {error}", id="partitions.E001")]
    unique = [_without_column(model, name, spec.column) for name in _loose_keys(model, spec.column)]
    foreign = [_foreign_key(field) for field in _foreign_keys(model)]
    return [*unique, *foreign]


def _sound() -> list[PartitionSpec]:
    """The specs whose models can be imported; the other check reports the rest."""
    try:
        return [spec for spec in configured() if column_of(spec.resolve(), spec.column)]
    except NOWHERE:
        return []


def _loose_keys(model: type[models.Model], column: str) -> list[str]:
    """Names of unique keys that lack the partition column; expressions count as lacking it."""
    meta = model._meta
    loose = [
        constraint.name
        for constraint in meta.constraints
        if isinstance(constraint, models.UniqueConstraint) and column not in constraint.fields
    ]
    if isinstance(meta.pk, models.CompositePrimaryKey) and column not in meta.pk.field_names:
        loose.append("pk")
    loose += [field.name for field in meta.local_fields if field.unique and not field.primary_key]
    return loose + [str(fields) for fields in meta.unique_together if column not in fields]


def _without_column(model: type[models.Model], name: str, column: str) -> Error:
    return Error(
        f"unique key {name} does not contain the partition column {column}",
        hint="Keep what must be unique across partitions in a table of its own that is not partitioned.",
        obj=model,
        id="partitions.E002",
    )


def _foreign_keys(model: type[models.Model]) -> list[models.ForeignKey]:
    """Foreign keys with a constraint, from this model and to it."""
    return [
        field
        for other in apps.get_models()
        for field in other._meta.local_fields
        if isinstance(field, models.ForeignKey)
        and field.db_constraint  # type: ignore[attr-defined]
        and model in (other, field.remote_field.model)
    ]


def _foreign_key(field: models.ForeignKey) -> Error:
    return Error(
        f"{field} is a foreign key to or from a partitioned table",
        hint="Say db_constraint=False.",
        obj=field,
        id="partitions.E003",
    )
