"""Plans: what begins with a text is a range of an index, in its order, on every page that is searched so."""

import pytest
from django.contrib.admin import site
from django.db import connection
from django.test.utils import CaptureQueriesContext

from config.admin.pages import ReadOnlyAdmin
from tests.outbox.delivery.test_plans import explained

pytestmark = pytest.mark.django_db
SCANS = {"postgresql": ("Seq Scan", "Sort"), "sqlite": ("SCAN", "TEMP B-TREE")}


@pytest.fixture
def no_choice():
    """PostgreSQL reads and sorts empty tables, unless it is told what that would cost in a large one."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off"
            )


def test_each_beginning_is_a_range_of_an_index(no_choice):
    pages = [page for page in site._registry.values() if isinstance(page, ReadOnlyAdmin) and page.begins]
    assert len(pages) > 10
    for page in pages:
        with CaptureQueriesContext(connection) as asked:
            page.beginning("0190abcd", 11)
        assert asked.captured_queries, page
        for query in asked.captured_queries:
            said = explained(query["sql"], None)
            if connection.vendor == "mysql":
                assert '"possible_keys"' in said, (page, said)
                assert '"using_filesort": true' not in said.lower(), (page, said)
            else:
                assert not [scan for scan in SCANS[connection.vendor] if scan in said], (page, query["sql"], said)
                assert "Index Cond" in said or "SEARCH" in said, (page, said)
