"""The letters of a batch are listed as long as letters are kept; its totals stay, and `verify` counts what is listed."""

from datetime import UTC, datetime, timedelta

import pytest

from config.database.clock import database_now
from outbox.replay_batches.items import sweep_items
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from outbox.verify import SWEEPS, batches_are_counted
from tests.logged import lines
from tests.outbox.replay_batches.scripted_flow import confirmed, counts, letters, previewed, run_until, step

TIMES = "the state of every replay batch fits its times"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
pytestmark = pytest.mark.django_db(transaction=True)


def age(batch, name):
    """As if that had been longer ago than letters are kept."""
    ReplayBatch.objects.filter(pk=batch.pk).update(**{name: database_now() - timedelta(days=181)})


def faults():
    return [check.name for check in batches_are_counted() if not check.ok]


def test_items_go_with_the_letters_and_the_totals_stay():
    letters(5)
    letters(2, "slow")
    old = run_until(confirmed(source="swift"), "done")
    young = run_until(confirmed("resolve", source="slow"), "done")
    age(old, "finished_at")
    assert sweep_items(database_now()) == 5
    assert set(ReplayItem.objects.values_list("batch_id", flat=True)) == {young.pk}
    assert counts(old) == {"verified": 5}
    assert faults() == []
    assert sweep_items(database_now()) == 0


@pytest.mark.parametrize("ago", [timedelta(hours=1), timedelta(days=8)])
def test_what_a_killed_sweep_has_left_goes_the_next_time(ago):
    letters(3)
    batch = run_until(confirmed(), "done")
    age(batch, "finished_at")
    ReplayBatch.objects.update(items_gone_at=database_now() - ago)
    assert bool(faults()) is (ago > SWEEPS)
    assert sweep_items(database_now()) == 3
    assert faults() == []


def test_a_batch_with_letters_on_their_way_keeps_its_items(scripted):
    letters(3, "slow")
    batch = run_until(confirmed(rate=10_000), "verifying")
    age(batch, "finished_at")
    assert sweep_items(database_now()) == 0
    assert ReplayItem.objects.count() == 3


def test_a_preview_that_nobody_confirmed_is_cancelled_and_another_stays(caplog):
    keys = letters(4)
    forgotten, fresh = previewed(), previewed()
    age(forgotten, "previewed_at")
    ReplayItem.objects.filter(batch=forgotten).update(business_key="A1")
    caplog.clear()
    with caplog.at_level("INFO"):
        sweep_items(database_now())
        step(2)
    moved, left = (line for line in lines(caplog) if line["event"] in ("replay_batch_moved", "replay_chunk_settled"))
    assert (moved["batch"], moved["was"], moved["became"]) == (forgotten.pk, "previewed", "cancelled")
    assert (left["batch"], left["outcomes"], sorted(left["letter_id"])) == (
        forgotten.pk,
        {"left": 4},
        sorted(map(str, keys)),
    )
    assert left["business_key"] == ["A1"] * 4
    forgotten.refresh_from_db()
    fresh.refresh_from_db()
    assert (forgotten.state, forgotten.note, fresh.state) == (
        "cancelled",
        "Cancelled: nobody confirmed it.",
        "previewed",
    )
    assert (counts(forgotten), counts(fresh)) == ({"left": 4}, {"eligible": 4})


@pytest.mark.parametrize(
    ("harm", "name"),
    [
        (lambda: ReplayItem.objects.first().delete(), "every replay batch has an item for each letter it pinned"),
        (lambda: ReplayBatch.objects.update(verified=2), "counters of replay batches = a recount of their items"),
        (lambda: ReplayBatch.objects.all().delete(), "every replay batch has an item for each letter it pinned"),
        (lambda: ReplayBatch.objects.update(items_gone_at=database_now()), TIMES),
        (lambda: ReplayBatch.objects.update(state="running"), TIMES),
        (lambda: ReplayBatch.objects.update(finished_at=None), TIMES),
        (lambda: ReplayBatch.objects.update(items_gone_at=database_now(), finished_at=None, state="running"), TIMES),
        (lambda: ReplayBatch.objects.update(items_gone_at=LONG_AGO, finished_at=LONG_AGO), TIMES),
    ],
    ids=[
        "an item is gone",
        "a counter is wrong",
        "the batch is gone",
        "its items are called gone",
        "it runs again",
        "it never ended",
        "it runs and its items are called gone",
        "its items were called gone long ago",
    ],
)
def test_verify_finds_what_does_not_add_up(harm, name):
    letters(3)
    run_until(confirmed(), "done")
    assert faults() == []
    harm()
    assert name in faults()
