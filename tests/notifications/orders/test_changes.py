"""The state machine: each edge is one guarded UPDATE, and its mail stands or falls with it."""

from __future__ import annotations

import time
from itertools import pairwise

import msgspec
import pytest
from django.db import IntegrityError, transaction
from django.template import TemplateDoesNotExist

from config.admin.levers import Operator
from config.database.clock import database_now
from config.database.retry import Remedy, Stale, remedy_for
from notifications.flow import checks
from notifications.mail import content
from notifications.orders import changes
from notifications.orders.changes import Impossible, UnknownOrder, change
from notifications.orders.models import Order, OrderEvent
from outbox.bookkeeping import counters
from outbox.delivery.levers import resend
from outbox.models import IdempotencyKey, OutboxMessage
from tests.notifications.conftest import new_order, race

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _everything_adds_up(transactional_db):
    yield
    assert [check for check in checks() if not check.ok] == []


def status_of(order: Order) -> tuple[str, int]:
    return Order.objects.values_list("status", "refunded_amount").get(pk=order.pk)


def messages_of(order: Order) -> list[str]:
    rows = OutboxMessage.objects.filter(aggregate=order.aggregate).order_by("id")
    return list(rows.values_list("event_type", flat=True))


# -- Edges -------------------------------------------------------------------------------------------
def test_creation_tells_nobody(order):
    assert status_of(order) == ("pending", 0)
    assert not OutboxMessage.objects.exists()


def test_the_whole_life_of_an_order(order):
    change(order.pk, "pay")
    change(order.pk, "refund", 300)
    assert status_of(order) == ("part_refunded", 300)
    change(order.pk, "refund", 200)
    last = change(order.pk, "refund", 500)
    assert status_of(order) == ("refunded", 1000)
    assert (last.status, last.version) == ("refunded", 4)
    assert messages_of(order) == ["order.paid", "order.part_refunded", "order.part_refunded", "order.refunded"]


REFUSED = {
    "pending": [("refund", 1)],
    "paid": [("pay", 0), ("cancel", 0), ("refund", 1001), ("refund", 0), ("refund", -5)],
    "cancelled": [("pay", 0), ("cancel", 0), ("refund", 1)],
    "part_refunded": [("pay", 0), ("cancel", 0), ("refund", 601)],
    "refunded": [("pay", 0), ("cancel", 0), ("refund", 1)],
}
WAYS = {
    "pending": [],
    "paid": [("pay", 0)],
    "cancelled": [("cancel", 0)],
    "part_refunded": [("pay", 0), ("refund", 400)],
    "refunded": [("pay", 0), ("refund", 1000)],
}


@pytest.mark.parametrize("status", REFUSED)
def test_what_is_not_an_edge_is_refused_and_changes_nothing(order, status):
    for action, amount in WAYS[status]:
        change(order.pk, action, amount)
    before = status_of(order), messages_of(order)
    assert before[0][0] == status
    for action, amount in REFUSED[status]:
        with pytest.raises(Impossible):
            change(order.pk, action, amount)
    assert (status_of(order), messages_of(order)) == before


def test_an_order_that_does_not_exist_is_unknown(order):
    with pytest.raises(UnknownOrder):
        change(OutboxMessage().pk, "pay")


# -- The promised mail -------------------------------------------------------------------------------
def test_the_mail_is_rendered_when_the_order_changes(order):
    change(order.pk, "pay")
    payload = msgspec.json.decode(OutboxMessage.objects.get().payload)
    assert payload["to"] == "ada@example.com"
    assert payload["order_id"] == str(order.pk)
    assert "10.00 EUR" in payload["text"]
    assert "<" in payload["html"]
    change(order.pk, "refund", 250)
    assert "2.50 EUR" in msgspec.json.decode(OutboxMessage.objects.latest("id").payload)["text"]


def test_the_key_of_a_message_is_the_number_of_its_event(order):
    change(order.pk, "pay")
    change(order.pk, "refund", 1)
    change(order.pk, "refund", 1)
    keys = IdempotencyKey.objects.filter(scope="publish").order_by("id").values_list("key", flat=True)
    assert list(keys) == [f"order:{order.pk}:{number}" for number in (1, 2, 3)]


def test_ids_rise_with_the_version_even_if_this_hosts_clock_is_behind(order, monkeypatch):
    change(order.pk, "pay")
    behind = iter(range(100))
    monkeypatch.setattr("config.fields.time.time_ns", lambda: 1_600_000_000_000_000_000 + next(behind))
    monkeypatch.setattr("config.fields._last", 0)
    change(order.pk, "refund", 1)
    ids = list(OrderEvent.objects.oldest_first().values_list("message_id", flat=True))
    assert all(one < two for one, two in pairwise(ids))


def test_they_rise_above_a_mail_that_a_host_whose_clock_is_ahead_has_sent_again(order, monkeypatch):
    change(order.pk, "pay")
    OutboxMessage.objects.update(state="sent", sent_at=database_now())
    counters.add({("outbox", "email", "confirmed"): 1}, database_now())
    here = time.time_ns
    with monkeypatch.context() as there:
        there.setattr("config.fields.time.time_ns", lambda: here() + 60 * 10**9)
        copy = resend(OutboxMessage.objects.get().pk, Operator("Anna"), "it never came")
    monkeypatch.setattr("config.fields._last", 0)
    change(order.pk, "refund", 1)
    change(order.pk, "refund", 1)
    ids = list(OrderEvent.objects.oldest_first().values_list("message_id", flat=True))
    assert ids[0] < copy < ids[1] < ids[2]


@pytest.mark.parametrize("meanwhile", [{"version": 7}, {"status": "cancelled"}, {"refunded_amount": 1}])
def test_an_order_that_is_no_longer_what_was_seen_does_not_change(order, meanwhile):
    """Whoever changed it: a status that was corrected by hand leaves the version as it is."""
    planned = changes.plan(order.pk, "pay")
    Order.objects.update(**meanwhile)
    before = Order.objects.values().get()
    with pytest.raises(Stale), transaction.atomic():
        changes.carry_out(planned)
    assert (Order.objects.values().get(), OutboxMessage.objects.count()) == (before, 0)
    Order.objects.update(version=0, status="pending", refunded_amount=0)


@pytest.mark.parametrize("place", ["notifications.orders.changes.publish", "outbox.messages.publish.write"])
def test_a_failure_inside_leaves_nothing(order, monkeypatch, place):
    def fail(*args, **kwargs):
        raise RuntimeError("power cut")

    monkeypatch.setattr(place, fail)
    with pytest.raises(RuntimeError):
        change(order.pk, "pay")
    assert status_of(order) == ("pending", 0)
    assert not OutboxMessage.objects.exists()
    assert not IdempotencyKey.objects.exists()


def test_a_broken_template_fails_before_anything_is_locked(order, monkeypatch):
    def fail(*args):
        raise TemplateDoesNotExist("order_paid.txt")

    monkeypatch.setattr(content, "render", fail)
    monkeypatch.setattr(changes, "carry_out", lambda planned: pytest.fail("a transaction was opened"))
    with pytest.raises(TemplateDoesNotExist):
        change(order.pk, "pay")
    assert status_of(order) == ("pending", 0)


def test_rendering_happens_outside_the_transaction(order, monkeypatch):
    render, inside = content.render, []

    def watch(*args):
        inside.append(transaction.get_connection().in_atomic_block)
        return render(*args)

    monkeypatch.setattr(content, "render", watch)
    change(order.pk, "pay")
    assert inside == [False]


def test_a_mail_that_could_never_be_delivered_changes_nothing(order, monkeypatch):
    monkeypatch.setattr(content, "render", lambda *args: {"to": "nobody"})
    with pytest.raises(ValueError, match="mail"):
        change(order.pk, "pay")
    assert status_of(order) == ("pending", 0)


# -- Races -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("way", "one", "two"),
    [
        ([], ("pay", 0), ("pay", 0)),
        ([], ("pay", 0), ("cancel", 0)),
        ([], ("cancel", 0), ("cancel", 0)),
        ([("pay", 0)], ("refund", 1000), ("refund", 1000)),
        ([("pay", 0), ("refund", 400)], ("refund", 600), ("refund", 600)),
        ([("pay", 0)], ("refund", 600), ("refund", 600)),
    ],
    ids=lambda part: "-".join(map(str, part)) if part and isinstance(part, tuple) else None,
)
def test_of_two_that_exclude_each_other_one_wins(way, one, two):
    for _round in range(5):
        order = new_order()
        for step in way:
            change(order.pk, *step)
        before = len(messages_of(order))
        results = race(lambda: change(order.pk, *one), lambda: change(order.pk, *two))
        winners = [result for result in results if isinstance(result, Order)]
        losers = [result for result in results if isinstance(result, Impossible)]
        assert (len(winners), len(losers)) == (1, 1), results
        assert status_of(order) == (winners[0].status, winners[0].refunded_amount)
        assert len(messages_of(order)) == before + 1


def test_refunds_at_the_same_time_never_exceed_the_total():
    order = new_order(1000)
    change(order.pk, "pay")
    results = race(*[lambda: change(order.pk, "refund", 300) for _ in range(6)])
    assert sum(isinstance(result, Order) for result in results) == 3
    assert sum(isinstance(result, Impossible) for result in results) == 3
    assert status_of(order) == ("part_refunded", 900)
    assert messages_of(order) == ["order.paid", *["order.part_refunded"] * 3]


def test_the_database_itself_refuses_an_impossible_sum(order):
    with pytest.raises(Exception, match="refunds_within_total") as caught, transaction.atomic():
        Order.objects.filter(pk=order.pk).update(refunded_amount=1001)
    assert isinstance(caught.value, IntegrityError) or remedy_for(caught.value) in (Remedy.DATA, Remedy.WAIT)


def test_a_change_that_never_finds_a_moment_says_so(order, monkeypatch):
    def stale(planned):
        raise Stale

    monkeypatch.setattr(changes, "carry_out", stale)
    monkeypatch.setattr(changes, "PATIENCE", 0.02)
    with pytest.raises(changes.Busy):
        change(order.pk, "pay")


def test_times_come_from_the_database(order):
    before = database_now()
    after = change(order.pk, "pay")
    event, message = OrderEvent.objects.get(), OutboxMessage.objects.get()
    assert before <= after.updated_at == event.created_at == message.created_at <= database_now()
