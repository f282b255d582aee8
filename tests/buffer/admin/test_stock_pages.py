"""The stock's pages: search by exact key, the running balance page by page, the stocktake; and the replays'."""

import re
from datetime import timedelta

import pytest

from buffer.admin.stocks import PAGE, Cursor, movements, of_reference
from buffer.models import InventoryItem, InventoryLocation, InventoryStock, InventoryTracking
from config.database.clock import database_now
from outbox.audit_log.models import OperatorAction
from outbox.models import TopicReplay
from tests.config.admin.conftest import client_with, lever_of, list_of, page_of, queries_of, seen

pytestmark = pytest.mark.django_db
MODELS = [InventoryStock, InventoryTracking, InventoryItem, InventoryLocation, TopicReplay]
VIEWS = [f"view_{model._meta.model_name}" for model in MODELS]


def move(reference_id, delta, stock_id="ST-1", kind="SALE_ORDER", offset=None):
    return InventoryTracking.objects.create(
        reference_type=kind, reference_id=reference_id, stock_id=stock_id, delta=delta, created_at=database_now(),
        **({"topic": "PAYMENT_SUCCESS", "source_partition": 3, "source_offset": offset} if offset is not None else {}),
    )  # fmt: skip


@pytest.fixture
def stock(db):
    """130 movements, whose sum is the quantity."""
    now = database_now()
    captured = {"created_at": now, "updated_at": now}
    item = InventoryItem.objects.create(id="V/1", merchant_id="M-1", **captured)
    location = InventoryLocation.objects.create(merchant_id="M-1", name="default", is_default=True, **captured)
    deltas = [(number * 7) % 11 - 5 for number in range(130)]
    for number, delta in enumerate(deltas):
        move(f"SO-{number:03d}", delta, offset=number)
    return InventoryStock.objects.create(id="ST-1", quantity=sum(deltas), item=item, location=location)


@pytest.fixture
def replay(db):
    now = database_now()
    return TopicReplay.objects.create(
        topic="transfer-requests", since=now - timedelta(hours=2), until=now, dry_run=True, state="done", reason="a bug",
        requested_by="Anna", created_at=now, started_at=now, total=10, looked_at=10, read=10, already=7, applied=3,
    )  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_an_empty_list_says_what_would_be_there(boss, model):
    assert "yet" in seen(boss, list_of(model))


def test_the_balance_of_every_page_is_what_was_there(stock):
    """Backwards from the quantity and forwards again: both ways lead to the same sums."""
    expected, total = [], 0
    for row in InventoryTracking.objects.order_by("pk"):
        total += row.delta
        expected.append((row.pk, total))
    quantity, page = movements("ST-1")
    assert quantity == total
    pages = [page]
    while pages[-1].older:
        pages.append(movements("ST-1", before=pages[-1].older)[1])
    lines = [(line.movement.pk, line.balance) for page in pages for line in page.lines]
    assert lines == expected[::-1]
    assert [len(page.lines) for page in pages] == [PAGE, PAGE, 130 - 2 * PAGE]
    back = movements("ST-1", after=pages[-1].newer)[1]
    assert [(line.movement.pk, line.balance) for line in back.lines] == [
        (line.movement.pk, line.balance) for line in pages[1].lines
    ]
    assert movements("ST-1", after=back.newer)[1] == pages[0]


@pytest.mark.parametrize("text", ["", "nonsense", "1", "~", "1~x"])
def test_a_broken_cursor_is_the_newest_page(stock, text):
    assert Cursor.parse(text) is None
    assert movements("ST-1", before=text) == movements("ST-1")


def test_a_stock_page_asks_as_often_for_ten_movements_as_for_a_thousand(boss, stock):
    boss.get(page_of(stock))
    few = queries_of(boss, page_of(stock))
    InventoryTracking.objects.bulk_create(
        InventoryTracking(reference_type="TRANSFER", reference_id=f"T{n}", stock_id="ST-1", delta=0, created_at=database_now())
        for n in range(1000)
    )  # fmt: skip
    many = queries_of(boss, page_of(stock))
    assert len(many) == len(few)
    assert not [sql for sql in many if "COUNT(*)" in sql and "inventory" in sql]


def test_every_key_finds_its_movements(boss, stock):
    move("KT-1", -1, kind="KITCHEN_TICKET_ITEM")
    move("TR-1", -4, kind="TRANSFER"), move("TR-1", 4, "ST-2", kind="TRANSFER")
    move("PO-1/R1", 5, kind="PURCHASE_ORDER"), move("PO-1/R2", 6, kind="PURCHASE_ORDER")
    move("PO-10/R1", 5, kind="PURCHASE_ORDER"), move("A~1B/R1", 5, kind="PURCHASE_ORDER")

    def found(key):
        return sorted((row.reference_id, row.delta) for row in of_reference(key, 50))

    assert found("SO-007") == [("SO-007", -5 + 49 % 11)]
    assert found("KT-1") == [("KT-1", -1)]
    assert found("TR-1") == [("TR-1", -4), ("TR-1", 4)]
    assert found("PO-1") == [("PO-1/R1", 5), ("PO-1/R2", 6)]
    assert found("PO-1/R2") == [("PO-1/R2", 6)]
    assert found("A/B") == [("A~1B/R1", 5)]
    assert found("so-007") == found("SO-00") == []
    assert "TR-1" in seen(boss, f"{list_of(InventoryTracking)}?q=TR-1")
    assert boss.get("/admin/find/?q=KT-1").status_code == 302
    assert "PAYMENT_SUCCESS/3/7" in seen(boss, page_of(of_reference("SO-007", 1)[0]))


def stocktake(client, stock, **given):
    data = {"id": stock.pk, "seen": stock.quantity, "counted": 40, "adjustment": "stocktake-1",
            "reason": "counted after closing", **given}  # fmt: skip
    return client.post(lever_of(InventoryStock, "stocktake"), data, follow=True).content.decode()


def test_a_stocktake_is_a_movement_with_a_reason_and_counts_once(boss, stock):
    before = stock.quantity
    assert "What really lies there now" in seen(boss, lever_of(InventoryStock, "stocktake", stock))
    assert "Stock ST-1 is 40 now" in stocktake(boss, stock)
    stocktake(boss, stock)  # sent twice by a double click
    stock.refresh_from_db()
    assert stock.quantity == 40
    assert InventoryTracking.objects.get(reference_type="ADJUSTMENT").delta == 40 - before
    assert OperatorAction.objects.get().reason == "counted after closing"


def test_a_stocktake_that_is_sent_again_with_another_count_is_refused_and_can_be_confirmed_anew(boss, stock):
    stocktake(boss, stock)
    page = stocktake(boss, stock, counted=41)
    assert "sent before, with another count" in page
    assert "40 now" not in page
    anew = re.search(r'name="adjustment" value="([^"]+)"', page)[1]
    stock.refresh_from_db()
    assert (stock.quantity, anew != "stocktake-1") == (40, True)
    assert re.search(r'name="seen" value="40"', page)
    assert "Stock ST-1 is 41 now" in stocktake(boss, stock, counted=41, adjustment=anew)


def test_a_stocktake_is_refused_with_the_reason_and_without_the_right(boss, stock):
    assert "At least 10 characters" in stocktake(boss, stock, reason="short")
    html = stocktake(boss, stock, counted="many", reason="short")
    assert '<a href="#id_counted">Counted: a whole number is needed.</a> <a href="#id_reason">At least 10' in html
    assert re.search(r'name="counted" value="many"[^>]+aria-describedby="id_counted_helptext id_counted_error"', html)
    assert "is outside 0" in stocktake(boss, stock, counted="-1")
    assert "It moved from 1 to" in stocktake(boss, stock, seen=1)
    assert not InventoryTracking.objects.filter(reference_type="ADJUSTMENT").exists()
    html = seen(client_with(*VIEWS), lever_of(InventoryStock, "stocktake", stock), 403)
    assert "needs the right" in html
    assert boss.get(lever_of(InventoryStock, "stocktake")).status_code == 404


def ask(client, **given):
    data = {"topic": "transfer-requests", "since": "2026-02-12T10:00:00", "until": "2026-02-12T11:00:00",
            "slack": "1h", "reason": "a bug in release 7", **given}  # fmt: skip
    return client.post("/admin/outbox/topicreplay/add/", data, follow=True).content.decode()


def test_a_replay_is_counted_first_and_then_applied(boss):
    html = ask(boss)
    assert "Waits for a worker" in html
    found = TopicReplay.objects.get()
    assert (found.dry_run, found.state, found.requested_by) == (True, "pending", "M. Okafor")
    assert found.since.isoformat() == "2026-02-12T10:00:00+00:00"
    TopicReplay.objects.update(state="done", read=9, already=6, applied=3, total=9, looked_at=9)
    assert "3 records are missing" in seen(boss, page_of(found))
    boss.post(lever_of(TopicReplay, "apply"), {"id": found.pk, "reason": "looks right to me"})
    real = TopicReplay.objects.order_by("-pk").first()
    assert (real.dry_run, real.state, real.since) == (False, "pending", found.since)
    assert OperatorAction.objects.get().result == "asked for"


def test_a_running_replay_shows_how_far_it_is_and_can_be_cancelled(boss, replay):
    TopicReplay.objects.update(state="running", dry_run=False, total=100, looked_at=42)
    html = seen(boss, page_of(replay))
    assert "42 % done" in html
    assert "refresh.js" in html
    part = seen(boss, f"{page_of(replay)}?part=1")
    assert "42 % done" in part
    assert "<html" not in part
    boss.post(lever_of(TopicReplay, "cancel"), {"id": replay.pk, "reason": "wrong day"})
    replay.refresh_from_db()
    assert replay.state == "cancelled"
    assert "refresh.js" not in seen(boss, page_of(replay))


def test_what_cannot_be_replayed_is_said_at_its_field(boss):
    assert "no flow replays this topic" in ask(boss, topic="nobody")
    assert "The end must be after the start" in ask(boss, until="2026-02-12T10:00:00")
    html = ask(boss, slack="soon")
    assert "no length of time" in html
    assert re.search(r'name="slack" value="soon"[^>]+aria-describedby="id_slack_helptext id_slack_error"', html)
    assert html.count('id="id_slack_error"') == html.count('href="#id_slack"') == 1
    assert "between 0 and 30 days" in ask(boss, slack="40d")
    assert "no ISO time" in ask(boss, since="yesterday")
    assert "At least 10 characters" in ask(boss, reason="bug")
    assert not TopicReplay.objects.exists()


def test_a_link_fills_in_what_it_knows_of_a_replay(boss):
    html = seen(boss, "/admin/outbox/topicreplay/add/?topic=transfer-requests&since=2026-02-12T10:00:00")
    assert '<option value="transfer-requests" selected>' in html
    assert 'name="since" value="2026-02-12T10:00:00"' in html
    assert 'name="slack" value="1h"' in html
