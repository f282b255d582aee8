"""Fixtures: the test models are known while a test runs; the migration operations make their tables."""

import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.db import connection, connections
from django.db.migrations.state import ModelState, ProjectState

from config.partitions import drivers as driver_module
from config.partitions.operations import HashPartitionTable, PartitionTable
from config.partitions.rotation import driver_for
from config.partitions.spec import shift, start_of
from tests.config.partitions import models

OPERATIONS = {
    "Monthly": PartitionTable("tests.config.partitions.models.MONTHLY"),
    "Letter": PartitionTable("tests.config.partitions.models.LETTERS"),
    "Daily": PartitionTable("tests.config.partitions.models.DAILY"),
    "Ledger": HashPartitionTable("Ledger", "reference", 4, key=["kind", "reference"]),
}

for model in models.MODELS:
    # No other test shall find models in config.
    apps.all_models["config"].pop(model._meta.model_name)


@pytest.fixture(autouse=True)
def known(settings):
    """The models are registered, retention is short, and the project's own partitions are left alone."""
    registry = apps.all_models["config"]
    registry.update({model._meta.model_name: model for model in models.MODELS})
    apps.clear_cache()
    settings.PARTITIONS = []
    settings.TEST_KEEP_MONTHS = 3
    settings.TEST_KEEP_DAYS = 3
    yield
    for model in models.MODELS:
        del registry[model._meta.model_name]
    apps.clear_cache()


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Locks are waited for a second, not two."""
    monkeypatch.setattr(driver_module, "LOCK_SECONDS", 1)


@pytest.fixture
def schema(transactional_db):
    """`schema.create("Monthly")` makes a table as a migration would; all of them are gone afterwards."""
    made = []

    def create(name, *, partitioned=True):
        state = state_of(name)
        model = state.apps.get_model("config", name)
        with connection.schema_editor() as editor:
            editor.create_model(model)
            made.append(model)
            if partitioned and name in OPERATIONS:
                OPERATIONS[name].database_forwards("config", editor, state, state)

    def revert(name):
        state = state_of(name)
        with connection.schema_editor() as editor:
            OPERATIONS[name].database_backwards("config", editor, state, state)

    yield SimpleNamespace(create=create, revert=revert)
    with connection.schema_editor() as editor:
        for model in reversed(made):
            editor.delete_model(model)


@pytest.fixture
def monthly(schema, settings):
    """The monthly table and its record of drops; made with a year of retention, three months are left."""
    settings.TEST_KEEP_MONTHS = 12
    schema.create("Dropped")
    schema.create("Monthly")
    settings.TEST_KEEP_MONTHS = 3
    return models.MONTHLY


def state_of(name):
    """The migration state that holds just this model, managed as it would be."""
    state = ProjectState()
    model_state = ModelState.from_model(getattr(models, name))
    model_state.options.pop("managed")
    state.add_model(model_state)
    return state


def month(count=0):
    """The month so many months from now, as yyyymm."""
    start = shift("month", start_of("month", datetime.now(UTC).date()), count)
    return start.year * 100 + start.month


def add(count, **fields):
    """A row of the month so many months from now."""
    return models.Monthly.objects.create(month=month(count), **{"name": "a", **fields})


def months(spec=models.MONTHLY):
    """Labels of the partitions that exist."""
    return [partition.label for partition in driver_for(spec, "default").existing()]


@contextmanager
def in_thread(function):
    """Run it beside the test on a connection of its own; leaving waits for it and raises what it raised."""
    raised = []

    def run():
        try:
            function()
        except BaseException as error:
            raised.append(error)
        finally:
            connections["default"].close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(60)
    assert not thread.is_alive()
    if raised:
        raise raised[0]


def constraints(table):
    with connection.cursor() as cursor:
        return connection.introspection.get_constraints(cursor, table)
