"""Plans: a page of letters takes its ids from an index that holds them, however old the letters of a group or flow are."""

import pytest
from django.db import connection

from config.database.clock import database_now
from outbox.groups.models import FailureGroup
from outbox.letters.burial import bury
from outbox.letters.models import DeadLetter
from tests.buffer.test_plans import analyze
from tests.outbox.delivery.test_plans import plan
from tests.outbox.groups.test_arrivals import letter

pytestmark = pytest.mark.django_db(transaction=True)  # statistics commit
OLD, YOUNG = 600, 5_000
# PostgreSQL names the indexes of partitions itself.
NAMES = {
    "deadletter_group": "group_id_status_id_idx",
    "deadletter_of_group": "group_id_id_idx",
    "deadletter_source": "source_status_id_idx",
    "deadletter_of_source": "source_id_idx",
}
WITHOUT_STATE = {"deadletter_group": "deadletter_of_group", "deadletter_source": "deadletter_of_source"}
# What is asked, how many letters were closed, and the indexes that have the ids of a group and of a source. Where half
# of the letters match, MySQL walks all of them, which costs a page no more. PostgreSQL takes state and source for
# independent: where most letters are open, an index without the state costs it as little.
CASES = [
    ("", OLD // 2, "deadletter_of_group", "deadletter_of_source"),
    ("open", OLD - 20, "deadletter_group", "deadletter_source"),
    ("resolved", 20, "deadletter_group", "deadletter_source"),
]


def add_old(number, closed):
    """Letters of one group and one source, of which so many have been closed; returns the group's key."""
    bury([letter(n, source=f"old{number}", revision=number) for n in range(OLD)], "g", database_now())
    found = FailureGroup.objects.order_by("-id")[0]
    assert DeadLetter.objects.filter(group=found).count() == OLD
    DeadLetter.objects.filter(group=found, offset__lt=closed).update(status="resolved")
    return found.pk


def add_younger():
    now = database_now()
    DeadLetter.objects.bulk_create(
        [
            DeadLetter(group_id=1000 + n % 10, source="young", step="s", reason="r", created_at=now, updated_at=now)
            for n in range(YOUNG)
        ],
        batch_size=1000,
    )


def assert_from(index, rows, status):
    """The first page takes its ids from this index, in its order."""
    rows = rows.newest_first()
    rows = rows.filter(status=status) if status else rows
    said = plan(rows.values_list("pk", flat=True)[:51])
    assert any(name in said for name in names_of(index, status)), (status, said)
    assert connection.vendor == "postgresql" or "Sort" not in said  # which sorts the one row that it expects
    assert "filesort" not in said.replace('"using_filesort": false', "")
    assert "TEMP B-TREE" not in said


def names_of(index, status):
    if connection.vendor != "postgresql":
        return [index]
    return [NAMES[name] for name in (index, WITHOUT_STATE.get(index if status == "open" else "")) if name]


def test_ids_of_old_letters_come_from_an_index():
    groups = [add_old(number, closed) for number, (_status, closed, *_indexes) in enumerate(CASES)]
    add_younger()
    analyze("outbox_deadletter")
    for number, (status, _closed, of_group, of_source) in enumerate(CASES):
        assert_from(of_group, DeadLetter.objects.of_group(groups[number]), status)
        assert_from(of_source, DeadLetter.objects.of_source(f"old{number}"), status)
