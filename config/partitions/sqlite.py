"""SQLite has no partitions: every period counts as existing, and a drop deletes its rows in chunks."""

from __future__ import annotations

from django.db import transaction
from django.db.models import Min

from config.database.clock import database_now
from config.partitions.driver import Driver, State, narrowed, oldest_first
from config.partitions.encodings import day_of
from config.partitions.periods import start_of
from config.partitions.spec import Keep, Partition

CHUNK = 5_000


class SQLite(Driver):
    """Every period exists; the old ones are those that hold rows."""

    note = f"SQLite has no partitions: a drop is a guarded DELETE, {CHUNK:,} rows at a time"

    def state(self) -> State:
        with self.connection.cursor() as cursor:
            tables = self.connection.introspection.table_names(cursor)
        return "partitioned" if self.table in tables else "missing"

    def existing(self) -> list[Partition]:
        wanted = self.wanted(database_now(self.using).date())
        return oldest_first([*self._with_rows(before=wanted[0]), *wanted])

    def _with_rows(self, before: Partition) -> list[Partition]:
        """The periods below `before` that hold rows: one index look-up each, however many rows."""
        found: list[Partition] = []
        rest = self.spec.rows(self.using, Partition("", "", None, before.lower))
        while (value := rest.aggregate(first=Min(self.spec.column))["first"]) is not None:
            day = day_of(self.spec.encoding, str(value))
            if day is None:  # such a value belongs to no period: leave it and what follows
                break
            found.append(self.spec.partition(start_of(self.spec.period, day)))
            rest = self.spec.rows(self.using, Partition("", "", found[-1].upper, before.lower))
        return found

    def create(self, partition: Partition) -> None:
        """Nothing to do."""

    def drop(self, partition: Partition) -> None:
        if count := self.unfinished(partition):  # the whole period or nothing, as far as the rows say now
            raise Keep(f"{count} unfinished")
        while self._drop_chunk(partition):
            pass

    def _drop_chunk(self, partition: Partition) -> bool:
        # IMMEDIATE: nobody else writes between the guard and the DELETE.
        with transaction.atomic(self.using):
            keys = self.spec.rows(self.using, partition).order_by("pk").values_list("pk", flat=True)
            last = keys[CHUNK - 1 : CHUNK].first() or keys.last()
            if last is None:
                return False
            chunk = narrowed(partition, last)
            self.release(chunk)
            self.spec.rows(self.using, chunk).delete()
            return True
