"""The look-ups that must stay cheap however long the ledger grows: by key, by reference, by stock."""

from __future__ import annotations

import pytest
from django.db import connection

from buffer.ledger.statements import RECORD, KnownMovement
from buffer.models import InventoryTracking
from tests.buffer.ledger.conftest import paid, record, stocks, write

pytestmark = pytest.mark.django_db
TABLE = InventoryTracking._meta.db_table


@pytest.fixture(autouse=True)
def _some_rows():
    names = {f"ST{n}": 0 for n in range(40)}
    stocks(**names)
    for start in range(0, 2000, 500):
        write(*[record(paid(f"S{n}", **{f"ST{n % 40}": 1})) for n in range(start, start + 500)])
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute(f"ANALYZE {TABLE}")
            # So few rows are read faster without an index; the question is whether there is a fitting one.
            for way in ("seqscan", "hashjoin", "mergejoin"):
                cursor.execute(f"SET LOCAL enable_{way} = off")


def plan(sql: str, params: list) -> str:
    prefix = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN (COSTS OFF, ANALYZE, TIMING OFF, SUMMARY OFF) "}
    with connection.cursor() as cursor:
        cursor.execute(prefix.get(connection.vendor, "EXPLAIN ") + sql, params)
        return "\n".join(" ".join(map(str, row)) for row in cursor.fetchall())


def test_a_reference_is_found_in_one_part_by_the_key():
    rows = InventoryTracking.objects.of_reference("SALE_ORDER", "S77")
    sql, params = rows.query.sql_with_params()
    text = plan(sql, list(params))
    if connection.vendor == "postgresql":
        assert text.count("inventorytracking_h") in (1, 2), text
    assert any(name in text for name in ("PRIMARY", "inventorytracking_key", "reference_type=?", "_pkey")), text
    assert rows.count() == 1


def test_the_history_of_a_stock_is_read_by_its_index():
    rows = InventoryTracking.objects.history_of("ST7")[:20]
    sql, params = rows.query.sql_with_params()
    text = plan(sql, list(params))
    assert "inventorytracking_stock" in text or "stock_id" in text, text
    assert "Seq Scan" not in text
    assert len(rows) == 20


def test_known_keys_are_looked_up_by_the_key():
    """The statement of the worker itself."""
    seen: list[tuple[str, list]] = []

    def look(execute, sql, params, many, context):
        seen.append((sql, params))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(look):
        found = RECORD.read([("S77", "ST37"), ("S5", "ST5")], KnownMovement._fields, {"reference_type": "SALE_ORDER"})
    assert len(found) == 2
    text = plan(*seen[0])
    if connection.vendor == "postgresql":
        assert "reference_id)::text = k.reference_id) AND" in text, text
        assert text.count("never executed") >= 14, "each key looks into one part"
    assert "ALL" not in [word for line in text.splitlines() if TABLE in line for word in line.split()], text


def test_known_keys_are_looked_up_one_by_one_however_small_the_ledger():
    """The planner believes that every key needs all parts, and would rather read 100 000 rows than look 500 times."""
    if connection.vendor != "postgresql":
        pytest.skip("the others join in the order of the statement")
    seen: list[tuple[str, list]] = []

    def look(execute, sql, params, many, context):
        seen.append((sql, params))
        return execute(sql, params, many, context)

    with connection.cursor() as cursor:
        for way in ("seqscan", "hashjoin", "mergejoin"):
            cursor.execute(f"SET LOCAL enable_{way} = on")
    with connection.execute_wrapper(look):
        RECORD.read([("S77", "ST37"), ("S5", "ST5")], KnownMovement._fields, {"reference_type": "SALE_ORDER"})
    text = plan(*seen[0])
    assert text.startswith("Nested Loop"), text
    assert text.count("never executed") >= 14, text


def test_the_ledger_is_in_sixteen_parts_with_its_key_as_primary_key():
    if connection.vendor == "sqlite":
        pytest.skip("SQLite has no partitions")
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT COUNT(*) FROM pg_inherits WHERE inhparent = %s::regclass", [TABLE])
        else:
            cursor.execute(
                "SELECT COUNT(*) FROM information_schema.partitions WHERE table_schema = DATABASE() AND table_name = %s",
                [TABLE],
            )
        assert cursor.fetchone() == (16,)
        found = connection.introspection.get_constraints(cursor, TABLE).values()
    (key,) = [one["columns"] for one in found if one["primary_key"]]
    assert key == ["reference_id", "reference_type", "stock_id"]
