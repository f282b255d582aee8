"""What the migration operations make, and how such a table takes rows."""

import uuid
from datetime import timedelta

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from config.database.retry import Remedy, is_duplicate, remedy_for
from config.fields import smallest_uuid7, uuid7
from config.partitions import days_left, ensure_partitions, plan_for, rotate
from config.partitions.rotation import driver_for
from config.probes import doctor
from tests.config.partitions.conftest import OPERATIONS, add, constraints, month, months, state_of
from tests.config.partitions.models import DAILY, LETTERS, MONTHLY, Daily, Ledger, Letter, Monthly

PARTITIONS_EXIST = connection.vendor != "sqlite"
real = pytest.mark.skipif(not PARTITIONS_EXIST, reason="SQLite has no partitions")


def primary_key(table):
    return next(found["columns"] for found in constraints(table).values() if found["primary_key"])


@pytest.mark.parametrize("spec", [MONTHLY, LETTERS, DAILY], ids=lambda spec: spec.model)
def test_the_operation_partitions_the_table_for_today(schema, spec):
    schema.create(spec.resolve().__name__)
    assert driver_for(spec, "default").state() == "partitioned"
    plan = plan_for(spec)
    assert {step.action for step in plan.steps} == {"keep"}
    assert plan.days_left == pytest.approx(days_left(spec), abs=0.01)
    assert plan.days_left > (80 if spec.period == "month" else 3)


@real
def test_the_primary_key_holds_the_partition_column(schema):
    schema.create("Monthly")
    schema.create("Letter")
    assert primary_key("test_monthly") == ["id", "month"]
    assert primary_key("test_letter") == ["id"]


def test_indexes_and_constraints_are_those_of_the_state(schema):
    schema.create("Monthly")
    found = constraints("test_monthly")
    assert found["test_monthly_name"]["columns"] == ["month", "name"]
    assert found["test_monthly_name"]["unique"]
    assert found["test_monthly_status"]["columns"] == ["status"]
    assert any(one["index"] and one["columns"] == ["group"] for one in found.values())
    assert found["test_monthly_group"]["check"]
    assert found["test_monthly_open"]["columns"] == ["name", "id"]


def test_ids_are_given_and_rows_are_found_by_id_alone(schema):
    schema.create("Monthly")
    rows = [add(count, name=str(count)) for count in range(-3, 4)]
    assert len({row.pk for row in rows}) == 7
    for row in rows:
        assert Monthly.objects.get(pk=row.pk).month == row.month
    rows[0].status = "pending"
    rows[0].save()
    assert Monthly.objects.filter(status="pending").count() == 1


def test_a_key_is_unique_within_its_month(schema):
    schema.create("Monthly")
    add(0)
    add(1)
    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        add(0)
    assert is_duplicate(caught.value)


@real
def test_a_row_beyond_the_last_partition_is_refused_as_such(schema):
    schema.create("Monthly")
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        add(4)
    assert remedy_for(caught.value) is Remedy.PARTITION


@pytest.mark.skipif(connection.vendor != "postgresql", reason="elsewhere ranges have no lower bound")
def test_a_row_of_a_missing_month_is_refused_until_it_is_made(schema):
    schema.create("Monthly")
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE test_monthly_p{month(-1)}")
    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        add(-1)
    assert remedy_for(caught.value) is Remedy.PARTITION
    assert ensure_partitions(MONTHLY) == 1
    add(-1)


@pytest.mark.skipif(connection.vendor != "mysql", reason="only here ranges have no lower bound")
def test_a_row_of_a_missing_month_goes_with_the_next_one(schema):
    schema.create("Monthly")
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE test_monthly DROP PARTITION p{month(-1)}")
    add(-1)
    assert ensure_partitions(MONTHLY) == 0
    heir = next(found for found in driver_for(MONTHLY, "default").existing() if found.label == str(month()))
    assert MONTHLY.rows("default", heir).count() == 1


def test_uuids_go_to_the_month_of_their_time(schema):
    schema.create("Letter")
    letter = Letter.objects.create()
    assert Letter.objects.get(pk=letter.pk).pk == letter.pk
    found = driver_for(LETTERS, "default").existing()
    holding = [partition.label for partition in found if LETTERS.rows("default", partition).exists()]
    assert holding == [str(month())]


@real
def test_a_uuid_from_beyond_the_partitions_is_refused(schema):
    schema.create("Letter")
    with pytest.raises(DatabaseError) as caught, transaction.atomic():
        Letter.objects.create(pk=smallest_uuid7(2**47))
    assert remedy_for(caught.value) is Remedy.PARTITION


def test_days_take_rows(schema):
    schema.create("Daily")
    for partition in driver_for(DAILY, "default").existing():
        Daily.objects.create(day=partition.upper - timedelta(days=1), name="a")
    counts = [DAILY.rows("default", one).count() for one in driver_for(DAILY, "default").existing()]
    assert counts == [1] * 7


def test_the_ledger_is_unique_for_ever(schema):
    schema.create("Ledger")
    first = Ledger.objects.create(kind="order", reference="1")
    assert Ledger.objects.create(kind="order", reference="2").pk != first.pk
    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        Ledger.objects.create(kind="order", reference="1")
    assert is_duplicate(caught.value)
    assert Ledger.objects.get(pk=first.pk).reference == "1"


@real
def test_the_ledger_has_one_unique_key(schema):
    schema.create("Ledger")
    assert sorted(primary_key("test_ledger")) == ["kind", "reference"]
    found = constraints("test_ledger").values()
    assert len([one for one in found if one["unique"]]) == 1
    assert any(one["columns"] == ["id"] and one["index"] for one in found)


@pytest.mark.parametrize("name", ["Monthly", "Letter", "Ledger"])
def test_the_operation_can_be_taken_back_with_all_rows(schema, name):
    schema.create(name)
    model = {"Monthly": Monthly, "Letter": Letter, "Ledger": Ledger}[name]
    rows = {"Monthly": {"month": month(), "name": "a"}, "Ledger": {"kind": "k", "reference": "r"}}
    fields = rows.get(name, {})
    before = model.objects.create(**fields).pk
    schema.revert(name)
    assert primary_key(model._meta.db_table) == ["id"]
    assert [row.pk for row in model.objects.all()] == [before]
    if name != "Letter":
        with pytest.raises(IntegrityError), transaction.atomic():
            model.objects.create(**fields)
        unique = {"Monthly": "test_monthly_name", "Ledger": "test_ledger_reference"}[name]
        assert constraints(model._meta.db_table)[unique]["unique"]
        assert model.objects.create(**{**fields, list(fields)[-1]: "b"}).pk > before


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL rebuilds the table")
def test_a_table_with_rows_is_not_rebuilt(schema):
    schema.create("Monthly", partitioned=False)
    add(0)
    state = state_of("Monthly")
    with pytest.raises(ValueError, match="holds rows"), connection.schema_editor() as editor:
        OPERATIONS["Monthly"].database_forwards("config", editor, state, state)


@real
@pytest.mark.parametrize("name", ["Monthly", "Ledger"])
def test_the_operation_may_come_in_a_later_migration(schema, name):
    schema.create(name, partitioned=False)
    state = state_of(name)
    with connection.schema_editor() as editor:
        OPERATIONS[name].database_forwards("config", editor, state, state)
    assert len(primary_key(f"test_{name.lower()}")) == 2


def test_sqlmigrate_prints_and_changes_nothing(schema):
    schema.create("Monthly", partitioned=False)
    state = state_of("Monthly")
    with connection.schema_editor(collect_sql=True) as editor:
        OPERATIONS["Monthly"].database_forwards("config", editor, state, state)
    assert any("PARTITION BY RANGE" in sql for sql in editor.collected_sql) == PARTITIONS_EXIST
    assert primary_key("test_monthly") == ["id"]


@real
def test_a_plain_table_is_not_rotated(schema):
    schema.create("Monthly", partitioned=False)
    (plan,) = rotate(specs=[MONTHLY])
    assert plan.failures == ["test_monthly: the table is not partitioned: run migrate"]


def test_a_missing_table_is_not_rotated(transactional_db):
    (plan,) = rotate(specs=[MONTHLY])
    assert plan.failures == ["test_monthly: the table does not exist: run migrate"]
    assert "does not exist" in str(plan)


def test_ids_sort_with_time_on_every_database(schema):
    schema.create("Letter")
    made = [uuid7() for _ in range(20)]
    Letter.objects.bulk_create([Letter(pk=pk) for pk in reversed(made)])
    assert list(Letter.objects.order_by("pk").values_list("pk", flat=True)) == made
    assert isinstance(made[0], uuid.UUID)
    assert months(LETTERS)


@pytest.mark.django_db
def test_doctor_is_content_with_what_migrations_make(monkeypatch):
    """Daily partitions are made fewer days ahead than monthly ones; each is measured by its own."""
    ensure_partitions()
    assert all(found.ok for found in doctor._partitions())
    monkeypatch.setattr(doctor, "days_left", lambda spec: 2)
    assert not PARTITIONS_EXIST or not any(found.ok for found in doctor._partitions())
