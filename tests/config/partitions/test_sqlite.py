"""SQLite has no partitions: a period goes in chunks of rows, each behind the guard."""

import pytest
from django.db import connection

from config.partitions import drivers as sqlite_module
from config.partitions import rotate
from tests.config.partitions.conftest import add, month
from tests.config.partitions.models import Dropped, Monthly, record
from tests.config.partitions.test_rotation import conserved, crash_at, outcomes

pytestmark = pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite deletes in chunks")


def test_sqlite_deletes_in_chunks_and_a_crash_between_them_loses_no_count(monthly, monkeypatch):
    monkeypatch.setattr(sqlite_module, "CHUNK", 4)
    Monthly.objects.bulk_create([Monthly(month=month(-5), name=str(number)) for number in range(10)])
    with crash_at('DELETE FROM "test_monthly"', nth=2):
        rotate(specs=[monthly])
    connection.close()
    assert Monthly.objects.count() == 6
    assert conserved() == 10
    (plan,) = rotate(specs=[monthly])
    assert "5,000 rows at a time" in str(plan)
    assert Monthly.objects.count() == 0
    assert conserved() == 10
    assert Dropped.objects.count() == 3


def test_sqlite_keeps_a_row_that_turns_up_between_two_chunks(monthly, monkeypatch):
    def record_and_add(using, spec, partition):
        record(using, spec, partition)
        if not Monthly.objects.filter(name="late").exists():
            add(-5, name="late", status="pending")

    monkeypatch.setattr(sqlite_module, "CHUNK", 4)
    monkeypatch.setattr("tests.config.partitions.models.record", record_and_add)
    Monthly.objects.bulk_create([Monthly(month=month(-5), name=str(number)) for number in range(10)])
    (plan,) = rotate(specs=[monthly])
    assert outcomes(plan)[str(month(-5))].reason == "1 unfinished"
    assert list(Monthly.objects.order_by("pk").values_list("name", flat=True)) == ["8", "9", "late"]
    assert conserved() == 11
