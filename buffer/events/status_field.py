"""The status of an order: its row says that a batch has claimed it, the batch says whether it was sent."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Transform
from django.db.models.expressions import Col

from config.fields import IdentifierField, IsStatus, StatusField

# Without an alias: under LOCK TABLES, where MySQL drops a month, there are none.
UNSENT = "SELECT buffer_batch.batch_id FROM buffer_batch WHERE buffer_batch.status IN ('claimed', 'parked')"


class EventStatusField(StatusField):
    """Stored `pending`, `claimed`, `discarded` and, after a restore, `sent`; a `claimed` order whose batch no longer
    waits is read as `sent`, in `filter`, `values` and everywhere else of the ORM.

    To write "sent" into each order of a batch was half of what a flush asked of the database (docs/adr/0015). SQL of
    our own sees what is stored; its guards ask for `pending` only, which is stored and read alike.
    """

    AS_STORED = frozenset({"pending", "discarded"})  # no batch changes how they are read

    def get_col(self, alias: str, output_field: Any = None) -> Col:
        return StatusCol(alias, self, output_field)


class StatusCol(Col):
    """The column, and a look at the batch of a claimed order, by its key.

    `batch_id IN (…)` would be cheaper for a whole table, but with some thousand unsent batches PostgreSQL then reads
    even one row with parallel workers, which takes 50 ms instead of 2.
    """

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        status, params = super().as_sql(compiler, connection)
        return (
            f"CASE WHEN {status} = 'claimed' AND NOT {self._waits(compiler)} THEN 'sent' ELSE {status} END",
            params,
        )

    def stored(self) -> Col:
        return Col(self.alias, self.target, self.output_field)

    def _waits(self, compiler: Any) -> str:
        """Whether its batch is unsent; one that was deleted had been sent or discarded."""
        names = [self.alias, "batch_id"] if self.alias else ["batch_id"]
        mine = ".".join(map(compiler.quote_name_unless_alias, names))
        return f"EXISTS ({UNSENT} AND buffer_batch.batch_id = {mine})"


@EventStatusField.register_lookup
class IsEventStatus(IsStatus):
    """`status="pending"` without a look at any batch, so that the indexes on the column serve it."""

    def process_lhs(self, compiler: Any, connection: BaseDatabaseWrapper, lhs: Any = None) -> Any:
        plain = isinstance(self.lhs, StatusCol) and self.rhs in EventStatusField.AS_STORED
        return super().process_lhs(compiler, connection, self.lhs.stored() if plain else lhs)


@EventStatusField.register_lookup
class Stored(Transform):
    """`status__stored="claimed"`: what the row says, whatever became of its batch."""

    lookup_name = "stored"
    output_field = IdentifierField()

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper, *_: Any, **__: Any) -> tuple[str, Any]:
        column: Any = self.lhs
        return compiler.compile(column.stored())
