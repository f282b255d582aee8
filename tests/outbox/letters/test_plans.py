"""Plans: a page of letters takes its ids from an index that holds them, however old the letters of a group are."""

import pytest
from django.db import connection

from config.database.clock import database_now
from outbox.groups.models import FailureGroup
from outbox.letters.burial import bury
from outbox.letters.models import DeadLetter
from tests.outbox.delivery.test_plans import plan
from tests.outbox.groups.test_arrivals import letter

pytestmark = pytest.mark.django_db
OLD, YOUNG = 600, 5_000
# PostgreSQL names the indexes of partitions itself.
NAMES = {"deadletter_group": "group_id_status_id_idx", "deadletter_of_group": "group_id_id_idx"}


@pytest.fixture
def group(closed):
    """One whose newest letter is older than thousands of others; so many of it have been closed."""
    now = database_now()
    bury([letter(number, "old") for number in range(OLD)], "g", now)
    found = FailureGroup.objects.get()
    DeadLetter.objects.filter(offset__lt=closed).update(status="resolved")
    bury([letter(number, f"young {'abcdefghij'[number % 10]}") for number in range(OLD, OLD + YOUNG)], "g", now)
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":  # on MySQL it would commit, and nobody does it on SQLite
            cursor.execute("ANALYZE outbox_deadletter")
    return found


# Where half of the letters match, MySQL walks all of them, which costs a page no more.
@pytest.mark.parametrize(
    ("status", "closed", "index"),
    [
        ("", OLD // 2, "deadletter_of_group"),
        ("open", OLD - 20, "deadletter_group"),
        ("resolved", 20, "deadletter_group"),
    ],
)
def test_ids_of_an_old_group_come_from_their_index(group, status, index):
    rows = DeadLetter.objects.of_group(group.pk).newest_first()
    rows = rows.filter(status=status) if status else rows
    said = plan(rows.values_list("pk", flat=True)[:51])
    assert NAMES[index] in said if connection.vendor == "postgresql" else index in said, said
    assert connection.vendor == "postgresql" or "Sort" not in said  # which sorts the one row that it expects
    assert "filesort" not in said.replace('"using_filesort": false', "")
    assert "TEMP B-TREE" not in said
