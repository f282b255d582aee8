"""The project's own partitioned tables, as its migrations made them."""

import pytest
from django.conf import settings as project
from django.core.management import call_command
from django.db import connection
from django.utils.module_loading import import_string

from config.partitions import plan_for
from config.partitions.checks import check_models, check_tables
from config.partitions.rotation import driver_for

SPECS = list(project.PARTITIONS)


@pytest.mark.django_db
@pytest.mark.parametrize("path", SPECS)
def test_migrations_partition_the_table_and_leave_nothing_to_do(path):
    spec = import_string(path)
    assert driver_for(spec, "default").state() == "partitioned"
    assert {step.action for step in plan_for(spec).steps} == {"keep"}
    table, column = spec.resolve()._meta.db_table, driver_for(spec, "default").column
    with connection.cursor() as cursor:
        found = connection.introspection.get_constraints(cursor, table).values()
    keys = [one["columns"] for one in found if one["unique"] and connection.vendor != "sqlite"]
    assert all(column in columns for columns in keys)


@pytest.mark.django_db
def test_the_models_pass_the_checks(settings):
    settings.PARTITIONS = SPECS
    assert check_models(None) == []
    assert check_tables(None, databases=["default"]) == []


@pytest.mark.django_db
def test_operations_leave_no_drift():
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
