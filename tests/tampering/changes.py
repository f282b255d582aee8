"""Every change by hand that is tried: a row gone, a counter one more or less, another state, a time that comes or goes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from django.apps import apps
from django.db import models

from config.database.clock import database_now

APPS = ("buffer", "notifications", "outbox", "throttler")
# States that are text without choices, and each legal value.
STATES = {
    "outbox.Watermark.alarm": ("", "stopped"),
    "outbox.DeliveryAttempt.outcome": ("", "sent", "permanent", "transient", "ambiguous"),
}
# What a table's rows are about: one row of each kind is tried, and of each state.
KINDS = {
    "buffer.Batch": ("status",),
    "buffer.Bucket": ("open_count",),
    "outbox.FlowCounter": ("flow", "name"),
    "outbox.Watermark": ("group",),
    "throttler.OverflowMessage": ("customer_id", "offset"),
}
Rows = models.QuerySet[Any]
States = dict[str, tuple[Any, ...]]


class Change(NamedTuple):
    """`name` is what the table of blind spots calls it; `make` takes a query for one row."""

    model: type[models.Model]
    name: str
    pk: Any
    make: Callable[[Rows], Any]

    def apply(self) -> None:
        """As somebody with a client of the database would: no manager refuses, nothing cascades."""
        assert self.make(models.QuerySet(self.model).filter(pk=self.pk)) == 1


def tables() -> list[type[models.Model]]:
    return [model for app in APPS for model in apps.get_app_config(app).get_models()]


def changes(model: type[models.Model]) -> Iterator[Change]:
    """Of one row of each kind in each state; what is counted in the first state only."""
    states = {field.attname: values for field in columns(model) if (values := _values(field))}
    kind = KINDS.get(model._meta.label, ())
    tried = set()
    for row in models.QuerySet(model).order_by("pk"):
        of_kind = tuple(getattr(row, name) for name in kind)
        in_state = (*of_kind, *(getattr(row, name) for name in states))
        if in_state in tried:
            continue
        for name, make in _of_row(row, states, numbers=of_kind not in tried or not states):
            yield Change(model, _named(row, name), row.pk, make)
        tried |= {of_kind, in_state}


def columns(model: type[models.Model]) -> Iterator[models.Field[Any, Any]]:
    for field in model._meta.concrete_fields:
        if not (field.primary_key or field.is_relation or isinstance(field, models.GeneratedField)):
            yield field


def _of_row(row: models.Model, states: States, *, numbers: bool) -> Iterator[tuple[str, Callable[[Rows], Any]]]:
    yield "gone", lambda rows: rows._raw_delete("default")
    for field in columns(type(row)):
        name, value = field.attname, getattr(row, field.attname)
        if name in states:
            others = {str(other) or "empty": other for other in states[name] if other != value}
        elif numbers and isinstance(field, models.IntegerField) and value is not None:
            others = {"+1": value + 1, "-1": value - 1}
        elif isinstance(field, models.DateField) and field.null:
            others = {"now": database_now()} if value is None else {"null": None}
        else:
            continue
        for text, other in others.items():
            yield f"{name}={text}", _sets(name, other)


def _values(field: models.Field[Any, Any]) -> tuple[Any, ...]:
    if isinstance(field, models.BooleanField):
        return (False, True)
    chosen = [value for value, _ in field.choices or ()]
    return tuple(chosen) or STATES.get(f"{field.model._meta.label}.{field.attname}", ())


def _sets(name: str, value: Any) -> Callable[[Rows], Any]:
    return lambda rows: rows.update(**{name: value})


def _named(row: Any, name: str) -> str:
    """A counter is a column of its own, in whichever slot."""
    of_counter = row._meta.label == "outbox.FlowCounter" and not name.startswith("slot=")
    return f"{row.flow}/{row.name}:{name}" if of_counter else name
