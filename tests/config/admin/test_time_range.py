"""The time range of lists: what each choice means, at both ends, by an index, with the same few queries."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.contrib.admin import site
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from buffer.ledger.models import InventoryTracking
from config.admin.filters import ByNumber, ByTime, ByUuid, TimeRange
from config.admin.pages import ReadOnlyAdmin
from config.fields import smallest_uuid7
from outbox.audit_log.models import OperatorAction
from outbox.letters.models import DeadLetter
from outbox.messages.models import OutboxMessage
from tests.config.admin.conftest import list_of

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 2, 12, 12, tzinfo=UTC)


def act(*moments):
    OperatorAction.objects.bulk_create(
        OperatorAction(actor_name="a", verb="did", subject=f"s{index}", reason="r", result="done", created_at=when)
        for index, when in enumerate(moments)
    )


def move(*moments):
    InventoryTracking.objects.bulk_create(
        InventoryTracking(reference_type="TRANSFER", reference_id=f"T{index:04d}", stock_id="S", delta=1, created_at=when)
        for index, when in enumerate(moments)
    )  # fmt: skip


def letter(when, key):
    number = smallest_uuid7(int(when.timestamp() * 1000)).int
    DeadLetter.objects.create(
        id=UUID(int=number), group_id=1, source="ledger", step="decode", reason="r", business_key=key,
        created_at=when, updated_at=when,
    )  # fmt: skip


def shown(client, model, query, words):
    html = client.get(f"{list_of(model)}?{query}").content.decode()
    return [word for word in words if word in html]


ACTIONS = ["Did: s0", "Did: s1", "Did: s2", "Did: s3"]


def test_a_start_belongs_to_the_range_and_an_end_does_not(boss):
    act(NOON - timedelta(seconds=1), NOON, NOON + timedelta(hours=1) - timedelta(seconds=1), NOON + timedelta(hours=1))
    query = "from=2026-02-12T12:00&to=2026-02-12T13:00"
    assert shown(boss, OperatorAction, query, ACTIONS) == ["Did: s1", "Did: s2"]
    assert shown(boss, OperatorAction, "from=2026-02-12T12:00", ACTIONS) == ["Did: s1", "Did: s2", "Did: s3"]
    assert shown(boss, OperatorAction, "to=2026-02-12T12:00", ACTIONS) == ["Did: s0"]
    assert shown(boss, OperatorAction, "from=2026-02-12T12:00%2B01:00&to=2026-02-12T12:00Z", ACTIONS) == ["Did: s0"]


def test_a_day_as_an_end_is_that_whole_day(boss):
    day = NOON.replace(hour=0)
    act(day - timedelta(seconds=1), day, day + timedelta(days=1, seconds=-1), day + timedelta(days=1))
    assert shown(boss, OperatorAction, "from=2026-02-12&to=2026-02-12", ACTIONS) == ["Did: s1", "Did: s2"]


def test_yesterday_and_the_last_hours(boss, monkeypatch):
    monkeypatch.setattr(timezone, "now", lambda: NOON)
    act(NOON - timedelta(minutes=59), NOON - timedelta(hours=13), NOON - timedelta(days=6), NOON - timedelta(days=8))
    for chosen, rows in {"hour": 1, "day": 2, "week": 3, "month": 4, "all": 4}.items():
        assert shown(boss, OperatorAction, f"when={chosen}", ACTIONS) == ACTIONS[:rows], chosen
    assert shown(boss, OperatorAction, "when=yesterday", ACTIONS) == ["Did: s1"]


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("from=soon", "From: “soon” is no time."),
        ("to=2026-13-40", "To: “2026-13-40” is no time."),
        ("to=9999-12-31", "To: “9999-12-31” is no time."),
        ("from=0001-01-01T00:00%2B14:00", "From: “0001-01-01T00:00+14:00” is no time."),
        ("from=2026-02-13&to=2026-02-12", "The end must be after the start."),
    ],
)
def test_a_bad_time_says_which_end_and_shows_nothing(boss, query, fault):
    act(NOON)
    html = boss.get(f"{list_of(OperatorAction)}?{query}").content.decode()
    assert fault in html
    assert "Did: s0" not in html


def test_an_id_of_version_7_is_a_time(boss):
    start = timezone.now().replace(microsecond=0) - timedelta(seconds=4)  # there is a partition for now
    for second in range(4):
        letter(start + timedelta(seconds=second), f"key-{second}")
    since, until = (f"{start + timedelta(seconds=second):%Y-%m-%dT%H:%M:%S}" for second in (1, 3))
    keys = [f"key-{second}" for second in range(4)]
    assert shown(boss, DeadLetter, f"from={since}&to={until}", keys) == ["key-1", "key-2"]
    assert shown(boss, DeadLetter, "to=1900-01-01", keys) == []


def test_a_rising_number_is_found_by_its_time(boss):
    move(*(NOON + timedelta(minutes=minute) for minute in range(60)))
    InventoryTracking.objects.filter(reference_id="T0030").delete()  # numbers have gaps
    by_number = ByNumber("recorded", "created_at")
    for start in range(-1, 62):
        for end in (start, start + 1, start + 7, 61):
            frame = TimeRange(NOON + timedelta(minutes=start), NOON + timedelta(minutes=end, seconds=-1))
            expected = InventoryTracking.objects.filter(created_at__gte=frame.since, created_at__lt=frame.until)
            rows = by_number.within(InventoryTracking.objects.all(), frame)
            assert set(rows.values_list("pk")) == set(expected.values_list("pk")), (start, end)
    words = [f"T{number:04d}" for number in range(60)]
    assert shown(boss, InventoryTracking, "from=2026-02-12T12:10&to=2026-02-12T12:13", words) == words[10:13]


def test_an_end_of_a_number_costs_the_logarithm(db):
    move(*(NOON + timedelta(minutes=minute) for minute in range(1000)))
    with CaptureQueriesContext(connection) as captured:
        ByNumber("recorded", "created_at").within(
            InventoryTracking.objects.all(), TimeRange(NOON + timedelta(minutes=700))
        )
    assert len(captured) <= 2 + 10
    assert ByNumber("recorded", "created_at").within(OperatorAction.objects.all(), TimeRange(NOON)).count() == 0


def test_every_list_of_what_happened_has_a_range_and_every_other_says_none(boss):
    """A new list decides: what happened, or None because it shows what is there now."""
    now = {
        "bucket", "channelstate", "watermark", "customer", "inventorystock", "inventoryitem", "inventorylocation", "apitoken",
        "workerprocess", "savedview", "subscription",
    }  # fmt: skip
    for model, page in site._registry.items():
        if isinstance(page, ReadOnlyAdmin):
            assert (page.happened is None) == (model._meta.model_name in now), model
            response = boss.get(f"{list_of(model)}?{'when=week' if page.happened else ''}")
            assert response.status_code == 200, model
            assert (b"From \xe2\x80\x93 to" in response.content) == bool(page.happened), model


def test_each_column_of_a_range_begins_an_index_or_needs_none():
    for model, page in site._registry.items():
        if not isinstance(page, ReadOnlyAdmin) or type(page.happened) is not ByTime:
            continue
        first = {index.fields_orders[0][0] for index in model._meta.indexes}
        assert page.happened.field in first, model
    assert isinstance(site._registry[OutboxMessage].happened, ByUuid)


def test_a_list_keeps_its_other_filters_and_says_that_a_time_is_empty(boss):
    letter(timezone.now(), "key-0")
    html = boss.get(f"{list_of(DeadLetter)}?state=all&source=ledger&when=yesterday").content.decode()
    assert "No dead letters in this time" in html
    assert '<input type="hidden" name="source" value="ledger">' in html
    assert '<a href="?source=ledger&amp;state=all">At any time</a>' in html


def test_levers_on_a_whole_list_are_not_offered_for_a_time_that_is_none(boss):
    letter(timezone.now(), "key-0")
    for query in ("", "?when=all", "?when=day", "?from=2026-01-01", "?to=2099-01-01"):
        assert "Requeue all of these" in boss.get(f"{list_of(DeadLetter)}{query}").content.decode(), query
    for query in ("?from=soon", "?from=2026-02-13&to=2026-02-12"):
        assert "Requeue all of these" not in boss.get(f"{list_of(DeadLetter)}{query}").content.decode(), query


def test_the_next_page_of_a_range_is_in_the_range(boss, monkeypatch):
    monkeypatch.setattr(site._registry[OperatorAction], "list_per_page", 2)
    act(*(NOON + timedelta(hours=hour) for hour in range(4)), NOON - timedelta(days=1))
    html = boss.get(f"{list_of(OperatorAction)}?from=2026-02-12").content.decode()
    assert "from=2026-02-12" in html.partition('rel="next" href="')[2].partition('"')[0]


def test_a_search_looks_in_every_time(boss):
    letter(timezone.now(), "key-0")
    assert shown(boss, DeadLetter, "q=key-0&when=yesterday", ["key-0"]) == ["key-0"]
    assert shown(boss, DeadLetter, "q=key-0&from=2099-01-01", ["key-0"]) == ["key-0"]
