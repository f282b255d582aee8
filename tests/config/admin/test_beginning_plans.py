"""Plans: what begins with a text is a range of an index, in its order, on every page that is searched so."""

import pytest
from django.contrib.admin import site
from django.db import connection
from django.test.utils import CaptureQueriesContext

from config.admin.pages import ReadOnlyAdmin
from config.fields import uuid7
from tests.outbox.delivery.test_plans import explained

pytestmark = pytest.mark.django_db
RANGES = {"postgresql": "Index Cond", "sqlite": "SEARCH", "mysql": "possible_keys"}
SCANS = {"postgresql": ["Seq Scan", "Sort  ("], "sqlite": ["SCAN", "TEMP B-TREE"], "mysql": ["filesort"]}


def plan(sql):
    """Of MySQL its columns that say something: which index serves the range; of an empty table it may walk the whole index."""
    if connection.vendor != "mysql":
        return explained(sql, None)
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN FORMAT=TRADITIONAL {sql}")
        names = [column[0] for column in cursor.description]
        return "\n".join(f"{name}={value}" for row in cursor for name, value in zip(names, row, strict=True) if value)


@pytest.fixture
def no_choice():
    """PostgreSQL reads and sorts empty tables, unless it is told what that would cost in a large one."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            for way in ("seqscan", "sort", "bitmapscan"):
                cursor.execute(f"SET LOCAL enable_{way} = off")


def test_each_beginning_is_a_range_of_an_index(no_choice):
    pages = [page for page in site._registry.values() if isinstance(page, ReadOnlyAdmin) and page.ranges()]
    assert len(pages) > 10
    for page in pages:
        with CaptureQueriesContext(connection) as asked:
            page.beginning(str(uuid7())[:8], 11)  # of today, which has a partition
        assert asked.captured_queries, page
        for query in asked.captured_queries:
            said = plan(query["sql"])
            assert not [scan for scan in SCANS[connection.vendor] if scan in said], (page, said)
            assert RANGES[connection.vendor] in said, (page, said)
