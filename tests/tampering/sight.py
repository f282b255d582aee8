"""Runs the rules of `verify` that read a table, in process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.db import DatabaseError, connection, models, transaction
from django.test.utils import CaptureQueriesContext

from config.flows import Check, flows
from tests.tampering.changes import Change

Rules = Callable[[], Iterator[Check]]


class Sight:
    """Learns on a database that is whole which rules ask which table."""

    def __init__(self) -> None:
        self.rules: list[tuple[Rules, str]] = []
        for rules in [rules for flow in flows() for rules in (flow.verify, flow.verify_payloads)]:
            with CaptureQueriesContext(connection) as asked:
                broken = failing(rules())
            assert not broken, f"what was filled adds up: {broken}"
            self.rules.append((rules, " ".join(query["sql"] for query in asked)))

    def sees(self, change: Change) -> bool:
        """Whether a rule fails, or the database itself refuses the change. Everything is as before afterwards."""
        try:
            with transaction.atomic():
                change.apply()
                seen = any(failing(rules()) for rules in self._of(change.model))
                if not seen:
                    connection.check_constraints()
                transaction.set_rollback(True)
        except DatabaseError:
            return True
        return seen

    def _of(self, model: type[models.Model]) -> list[Rules]:
        table = connection.ops.quote_name(model._meta.db_table)
        return [rules for rules, asked in self.rules if table in asked]


def failing(checks: Iterator[Any]) -> str:
    """The first rule that does not hold."""
    return next((check.name for check in checks if not check.ok), "")
