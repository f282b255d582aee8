"""Keys of lists: pages that cost the same everywhere, and the search by topic/partition/offset."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import models
from django.db.models import Q

from config.database.queries import through
from config.flows import flows
from config.gate import InvalidRecord
from config.kafka.client import KafkaError
from config.kafka.reader import record_at

Row = TypeVar("Row", bound=models.Model)

# -- Pages by key --------------------------------------------------------------------------------------------
BEFORE, AFTER = "before", "after"
BETWEEN = "~"  # in no number, no UUID and no ISO time


@dataclass(frozen=True)
class Keyset:
    """The order of a list: an indexed field, and the primary key where the field alone is not unique.

    InnoDB ends every index with the rising primary key. Behind a falling column it must be read rising, too
    (`ties_opposed`), or the whole table is sorted for one page.

    `ids_first`: the keys of a page come from an index that holds them, then those rows. Asked for whole rows and a LIMIT, a
    planner walks the primary key until enough of them fit: past 700 000 rows, where a group's letters are older.
    """

    field: str = "pk"
    descending: bool = True
    ties_opposed: bool = False
    back: str = "Newer"
    on: str = "Older"
    ids_first: bool = False

    def page(self, rows: models.QuerySet[Row], cursor: str, backwards: bool, size: int) -> tuple[list[Row], bool]:
        """The `size` rows behind the cursor (before it: `backwards`), and whether there are more that way."""
        descending = self.descending != backwards
        if cursor:
            rows = rows.filter(self._behind(rows.model, cursor, descending))
        rows = rows.order_by(*self._ordering(descending))
        read = by_ids(rows, size + 1) if self.ids_first else list(rows[: size + 1])
        page = read[:size]
        return (page[::-1] if backwards else page), len(read) > size

    def cursor(self, row: models.Model) -> str:
        """The place of one row, as it travels in a URL."""
        values = [getattr(row, name) for name in self._names]
        return BETWEEN.join(value.isoformat() if hasattr(value, "isoformat") else str(value) for value in values)

    @property
    def _names(self) -> list[str]:
        return ["pk"] if self.field == "pk" else [self.field, "pk"]

    def _ordering(self, descending: bool) -> list[str]:
        directions = [descending, descending != self.ties_opposed]
        return [f"-{name}" if down else name for name, down in zip(self._names, directions, strict=False)]

    def _behind(self, model: type[models.Model], cursor: str, descending: bool) -> Q:
        texts = cursor.split(BETWEEN)
        if len(texts) != len(self._names):
            raise ValidationError("not a place in this list")
        values = [field_of(model, name).to_python(text) for name, text in zip(self._names, texts, strict=True)]
        beyond = "lt" if descending else "gt"
        if len(values) == 1:
            return Q(**{f"pk__{beyond}": values[0]})
        ties = "lt" if descending != self.ties_opposed else "gt"
        # The first condition alone gives the database an index range; the second keeps ties apart.
        return Q(**{f"{self.field}__{beyond}e": values[0]}) & (
            Q(**{f"{self.field}__{beyond}": values[0]}) | Q(**{f"pk__{ties}": values[1]})
        )


def by_ids(rows: models.QuerySet[Row], most: int) -> list[Row]:
    """The first `most` of ordered `rows`: their keys first, then the rows with these keys."""
    keys = list(rows.values_list("pk", flat=True)[:most])
    if not keys:
        return []
    # MySQL plans a list of keys once for each index, which takes longer than to read the rows.
    with through(rows.model, "PRIMARY", rows.db):
        by_key = {row.pk: row for row in rows.order_by().filter(pk__in=keys)}
    return [by_key[key] for key in keys if key in by_key]  # it may have gone from the list meanwhile


def field_of(model: type[models.Model], name: str) -> Any:
    if name == "pk":
        return model._meta.pk
    try:
        return model._meta.get_field(name)
    except FieldDoesNotExist:
        raise ValidationError(f"no field {name}") from None


# -- Search by topic/partition/offset ------------------------------------------------------------------------
# No table has an index of positions, so Kafka is asked what lies there.
POSITION = re.compile(r"(?P<topic>[\w.-]+)/(?P<partition>\d{1,9})/(?P<offset>\d{1,18})", re.ASCII)


class LogPosition(NamedTuple):
    """A position in a topic."""

    topic: str
    partition: int
    offset: int


def place_of(key: str) -> LogPosition | None:
    """The position that was typed, or None."""
    typed = POSITION.fullmatch(key)
    return LogPosition(typed["topic"], int(typed["partition"]), int(typed["offset"])) if typed else None


def keys_at(place: LogPosition) -> tuple[Sequence[str], str]:
    """What the record at a position is about, as the search knows it; and why nothing is, in words."""
    for flow in flows():
        if (about := flow.searched().get(place.topic)) is None:
            continue
        try:
            record = record_at(*place)
            return (about(record), "") if record else ((), "Kafka has no record there, or has it no longer.")
        except InvalidRecord:
            return (), "The record there cannot be read; if it was, it is a dead letter."
        except KafkaError:
            return (), "Kafka does not answer, and without it only dead letters are found by their position."
    return (), "No flow reads or writes this topic."
