"""What `verify` sees of each change by hand, and what it does not: for every table, so that a new one is looked at."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models

from tests.buffer.test_verify import busy
from tests.notifications.post import email
from tests.tampering.blind import BLIND, FOREIGN
from tests.tampering.changes import APPS, changes, tables
from tests.tampering.filled import fill
from tests.tampering.sight import Sight

__all__ = ["busy", "email"]

PAGE = Path(__file__).parents[2] / "docs" / "verify.md"
CHAPTER = PAGE.read_text().partition("## What no rule sees, table by table")[2]
ROW = re.compile(r"^\| `(\w+)` \| (.*?) \|", re.MULTILINE)


def tried(name: str) -> bool:
    """All of them on SQLite. The rules are the same on a server, where a query takes longer: there a row of each kind
    goes."""
    return connection.vendor == "sqlite" or name.rstrip("?").endswith("gone")


def blind_spots(sight: Sight, model: type[models.Model]) -> list[str]:
    """The changes that no rule sees; with a "?" those that are seen in some rows only."""
    found: dict[str, list[bool]] = defaultdict(list)
    for change in filter(lambda change: tried(change.name), changes(model)):
        found[change.name].append(sight.sees(change))
    return sorted(name + "?" * any(seen) for name, seen in found.items() if not all(seen))


@pytest.mark.django_db
def test_what_no_rule_sees_is_known(busy: Any, email: Any) -> None:
    """A rule that sees less, or a column that nobody has thought of, fails here: see it, or name it."""
    fill()
    assert [model._meta.label for model in tables() if not model._base_manager.exists()] == []
    sight = Sight()
    found = {model._meta.label: blind_spots(sight, model) for model in tables()}
    assert found == {label: sorted(filter(tried, names.split())) for label, names in BLIND.items()}


def test_every_table_is_ours_or_somebody_elses() -> None:
    assert {model._meta.label for model in tables()} == BLIND.keys()
    others = {config.label for config in apps.get_app_configs() if list(config.get_models())} - set(APPS)
    assert others == FOREIGN


def test_what_no_rule_sees_stands_in_the_manual() -> None:
    """Each column in the line of its table, and no other."""
    written = {table: set(re.findall(r"`([^`]+)`", told)) for table, told in ROW.findall(CHAPTER)}
    meant = {apps.get_model(label)._meta.db_table: subjects(names) for label, names in BLIND.items() if names}
    assert written == meant


def subjects(names: str) -> set[str]:
    """Columns; counters by their own names; "row" where one may be gone."""
    return {re.split("[:=?]", name)[0].replace("gone", "row") for name in names.split()}
