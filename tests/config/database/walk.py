"""Run by test_migrate.py in a database of its own: goes through the history of the tables, as `migrate` would find them.

`steps`: one migration after the other, and before each the checks that `migrate` runs first. `cuts`: `migrate` itself,
cut behind a statement of each migration and each twentieth further one, or with `every` behind each of them, and begun
again until it is through. `back`: behind each step that names a way back, beside rows, and forward again.
Prints, as JSON, how often it went on. What is refused ends it.
"""

import json
import sys
from collections import defaultdict
from functools import partial
from typing import Any

import django

django.setup()

from django.core import checks  # noqa: E402 (after django.setup, as all below)
from django.core.management import call_command  # noqa: E402
from django.db import connection, connections  # noqa: E402
from django.db.migrations.executor import MigrationExecutor  # noqa: E402

from config.database.clock import database_now  # noqa: E402


def steps() -> int:
    """The checks of the database say nothing against any state on the way."""
    executor = MigrationExecutor(connection)
    plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    for migration, _ in plan:
        executor.migrate([(migration.app_label, migration.name)])
        executor.loader.build_graph()
        refuse_nothing()
    return len(plan)


def refuse_nothing() -> None:
    """What `migrate` does first, as far as it looks at the database."""
    found = checks.run_checks(tags=[checks.Tags.database], databases=["default"])
    assert not [message for message in found if message.is_serious(checks.ERROR)], found


class Cut(BaseException):
    """As if the process had been killed."""


class Scissors:
    """Cut behind a statement of each migration: of one the first, of the next the second, and so on; or behind every one.

    Of a long migration, behind each twentieth after it, too; and behind the first foreign key that goes for a moment.
    """

    def __init__(self, every: bool) -> None:
        self.every = every
        self.cut: dict[str, set[str]] = defaultdict(set)  # behind which statements each migration was
        self.migration = ""
        self.done = 0  # statements of it, this time

    def __enter__(self) -> None:
        apply = MigrationExecutor.apply_migration

        def noted(executor: Any, state: Any, migration: Any, **options: Any) -> Any:
            self.migration, self.done = str(migration), 0
            return apply(executor, state, migration, **options)

        MigrationExecutor.apply_migration = noted  # type: ignore[method-assign]

    def __exit__(self, *_: Any) -> None:
        """The process ends."""

    def __call__(self, execute: Any, sql: str, *rest: Any) -> Any:
        answer = execute(sql, *rest)
        if self.migration and sql.split()[0] in ("ALTER", "CREATE", "DROP", "RENAME"):
            self.done += 1
            behind = self.cut[self.migration]
            due = (
                self.every
                or ("DROP FOREIGN KEY" in sql and "DROP FOREIGN KEY" not in str(behind))
                or self.done % 20 == 0
                or (not behind and self.done > len(self.cut) % 3)
            )
            if due and sql not in behind:
                behind.add(sql)
                raise Cut
        return answer


def cuts(every: bool) -> int:
    scissors = Scissors(every)
    with scissors:
        while True:
            try:
                refuse_nothing()
                with connection.execute_wrapper(scissors):
                    call_command("migrate", verbosity=0)
            except Cut:
                session = connection.connection
                del connections["default"]
                session.close()
            else:
                return sum(map(len, scissors.cut.values()))


def back() -> int:
    """With a row in each table that such a step changes."""
    from outbox.notices.models import Incident
    from throttler.lanes.models import Lane

    call_command("migrate", verbosity=0)
    now = database_now()
    numbers = dict.fromkeys(("partition", "backlog", "first", "drained", "seen"), 0)
    rows = [Lane(customer_id="acme", updated_at=now, **numbers), Incident(kind="worker", key="relay", opened_at=now)]
    for row in rows:
        row.save()
    steps = [step for step in MigrationExecutor(connection).loader.graph.nodes.values() if getattr(step, "back", "")]
    for step in steps:
        call_command("migrate", *step.back.split(), verbosity=0)
    call_command("migrate", verbosity=0)
    assert [type(row).objects.count() for row in rows] == [1] * len(rows)
    return len(steps)


def tables() -> dict[str, Any]:
    """What there is, as the catalogue says: columns, keys and indexes of each table."""
    # MariaDB names the database of a sequence.
    here = f"`{connection.settings_dict['NAME']}`."
    with connection.cursor() as cursor:
        ask = connection.introspection
        return {
            name: [
                # Without the width of what it holds.
                sorted(
                    str(column._replace(display_size=None)).replace(here, "")
                    for column in ask.get_table_description(cursor, name)
                ),
                sorted(str(sorted(found.items())) for found in ask.get_constraints(cursor, name).values()),
            ]
            for name in ask.table_names(cursor)
        }


if __name__ == "__main__":
    how = sys.argv[1]
    went = {"steps": steps, "back": back}.get(how) or partial(cuts, how == "every")
    print(json.dumps({"went": went(), "tables": tables()}))
