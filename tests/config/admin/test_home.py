"""Home: the verdict, what needs a person in which order, and the picture of the flow."""

from datetime import timedelta

import pytest
from django.urls import reverse

from buffer.events.models import Batch, Bucket
from buffer.flow import Aggregator
from config.admin.home import by_urgency, headline, quiet
from config.database.clock import database_now
from config.flows import Need
from config.partitions import rotation
from outbox.audit_log.models import OperatorAction
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from tests.conftest import order

pytestmark = pytest.mark.django_db


def mark(partition=0, **more):
    now = database_now()
    fields = {"next_offset": 5, "end_offset": 5, "caught_up_at": now, "updated_at": now, **more}
    place = {"group": "buffer-ingest", "topic": "transfer-requests", "partition": partition}
    return Watermark.objects.update_or_create(**place, defaults=fields)[0]


def stages():
    """By name; the first is the input, whose name tells how many streams there are."""
    first, *others = Aggregator().home_row(database_now()).stages
    return {"input": first, **{stage.name: stage for stage in others}}


def needs():
    return [need.title for need in Aggregator().home_row(database_now()).needs]


def test_nothing_needs_you(boss):
    mark()
    OperatorAction.objects.create(
        actor_name="M. Okafor", verb="release", subject="WH-7", reason="r", result="done", created_at=database_now()
    )
    html = boss.get("/admin/").content.decode()
    assert "<b>Nothing needs you</b>" in html
    assert "All five flows run, no failure group is open." in html
    assert "by M. Okafor: Release: WH-7." in html
    assert "Healthy" in html


def test_an_installation_that_has_not_run_yet_is_quiet(boss):
    html = boss.get("/admin/").content.decode()
    assert "Nothing needs you" in html
    assert "not measured yet" in html


def test_a_bad_morning(boss, rows):
    mark(partition=3, alarm="The topic was created again.", end_offset=400)
    html = boss.get("/admin/").content.decode()
    assert "things need you" in html
    places = [html.index(text) for text in ("partition 3 is stopped", "Batch refused", "Late event")]
    assert places == sorted(places)
    assert "Ingest: Stopped" in html
    assert reverse("admin:outbox_failuregroup_change", args=[rows.group.pk]) in html


def test_the_refresh_gets_the_same_page_without_its_frame(boss):
    part = boss.get("/admin/?part=1").content.decode()
    assert part.lstrip().startswith('<div class="sw-home"')
    assert "<html" not in part
    whole = boss.get("/admin/").content.decode()
    assert "<noscript><meta" in whole
    assert "refresh.js" in whole


def test_home_asks_who_you_are(client):
    assert client.get("/admin/?part=1").status_code == 302


def test_a_stopped_partition_is_red_and_what_waits_behind_it_amber(ingest, records):
    ingest(records(order()))
    mark(alarm="The topic was created again.", end_offset=900, caught_up_at=database_now() - timedelta(minutes=9))
    found = stages()
    assert (found["Ingest"].tone, found["Ingest"].word) == ("bad", "Stopped")
    assert (found["input"].tone, found["input"].word) == ("warn", "Behind")
    assert found["input"].details[0] == "lag 895 records"
    assert found["Event buffer"].tone == "idle"


def test_what_waits_at_a_stopped_partition_is_unknown_not_0(boss):
    mark(0, alarm="gone", end_offset=400)
    mark(1, alarm="gone")  # it had read everything when it stopped
    mark(2, alarm="gone", next_offset=0, end_offset=0, caught_up_at=None)
    numbers = [(need.amount, need.unit) for need in Aggregator().home_row(database_now()).needs]
    assert numbers == [(395, "records or more")]
    assert stages()["input"].details[0] == "lag over 395 records"
    html = boss.get("/admin/").content.decode()
    assert "395</b> records or more" in html
    mark(0, alarm="gone")
    assert [need.amount for need in Aggregator().home_row(database_now()).needs] == [None]
    assert "0</b> records" not in boss.get("/admin/").content.decode().replace("395</b>", "")
    assert "–</b>" not in html


def test_a_lag_that_nobody_has_measured_is_unknown(db):
    assert stages()["input"].details[0] == "lag unknown"
    mark(end_offset=0, next_offset=0, caught_up_at=None)
    assert stages()["input"].details[0] == "lag unknown"
    mark(end_offset=0, next_offset=0)
    assert stages()["input"].details[0] == "lag 0 records"
    mark(1, alarm="gone")
    assert stages()["input"].details[0] == "lag unknown"


def test_positions_show_no_0_for_unknown(boss):
    silent = mark(updated_at=database_now() - timedelta(minutes=2))
    known = mark(1, updated_at=database_now() - timedelta(minutes=2), end_offset=9)
    html = boss.get(reverse("admin:outbox_watermark_changelist")).content.decode()
    assert html.count('<span class="sw-number">–</span>') == 1
    assert html.count('<span class="sw-number">4</span>') == 1
    page = boss.get(reverse("admin:outbox_watermark_change", args=[silent.pk])).content.decode()
    assert "how many records behind is not known" in page
    page = boss.get(reverse("admin:outbox_watermark_change", args=[known.pk])).content.decode()
    assert "<b>4</b> <span>records behind</span>" in page


def test_many_stopped_partitions_are_one_line(db):
    for partition in range(9):
        mark(partition, alarm="gone")
    assert needs() == ["transfer-requests, 9 partitions are stopped"]
    for partition in range(5):
        mark(partition, alarm=f"the log ends at {partition}, but {partition + 1},000 was already read")
    assert needs() == ["transfer-requests, 5 partitions are stopped", "transfer-requests, 4 partitions are stopped"]


def test_a_silent_consumer(db):
    mark(updated_at=database_now() - timedelta(minutes=2))
    assert stages()["Ingest"].word == "Not seen"
    assert "Ingest does not report" in needs()


def test_what_waits_and_since_when(ingest, records):
    ingest(records(order("A1"), order("A2", "WH-2")))
    buffered = stages()["Event buffer"]
    assert buffered.value == "2"
    assert buffered.details[1] == "2 warehouses"


def test_nobody_flushes(ingest, records):
    ingest(records(order()))
    Bucket.objects.update(due_at=database_now() - timedelta(minutes=3))
    assert stages()["Flush"].word == "Stuck"
    assert "Warehouses are due and no batch is cut" in needs()


def test_nobody_publishes(rows):
    mark(1)
    Batch.objects.filter(pk=rows.sent.pk).update(
        status="claimed", claimed_at=database_now() - timedelta(minutes=9), error="NoBrokersAvailable"
    )
    (need,) = [need for need in Aggregator().home_row(database_now()).needs if need.title.startswith("Batches are cut")]
    assert need.urgency == "now"
    assert "NoBrokersAvailable" in need.why


def test_a_full_buffer_and_a_forgotten_hold(ingest, records, settings):
    ingest(records(order()))
    settings.BUFFER_HIGH_WATER = 1
    Bucket.objects.update(held=True, due_at=None)
    assert stages()["Event buffer"].word == "Full"
    assert {"The event buffer is full", "1 warehouse is held"} <= set(needs())


def test_rates_come_from_the_counters(db):
    now = database_now()
    counters.add({("transfer-requests", "0", "read"): 600}, now)
    found = stages()["input"]
    assert float(found.value) > 4
    assert len(found.trend) == 24


def test_a_short_runway_is_watched(boss, monkeypatch):
    monkeypatch.setattr(rotation, "days_by_table", lambda now: {"outbox_deadletter": 12.0})
    html = boss.get("/admin/").content.decode()
    assert "Partitions of outbox_deadletter end in 12 days" in html
    assert "in 12 days" in html


def test_order_of_needs():
    now = database_now()

    def need(urgency, rank, minutes):
        return Need(urgency, f"{urgency}{rank}{minutes}", "", "", "", since=now - timedelta(minutes=minutes), rank=rank)

    found = by_urgency(
        [need("watch", 0, 9), need("now", 1, 5), need("soon", 0, 1), need("now", 1, 50), need("now", 0, 1)]
    )
    assert [each.title for each in found] == ["now01", "now150", "now15", "soon01", "watch09"]


def test_headlines():
    now, soon = (Need(urgency, "", "", "", "") for urgency in ("now", "soon"))
    assert headline([]) == ("Nothing needs you", "")
    assert headline([soon]) == ("1 thing needs you", "")
    assert headline([now]) == ("1 thing needs you", ", now")
    assert headline([now, soon]) == ("2 things need you", ", 1 of them now")
    assert headline([now, now]) == ("2 things need you", ", all of them now")
    assert headline([soon, soon]) == ("2 things need you", "")
    assert quiet([]) == "No flow is configured."
