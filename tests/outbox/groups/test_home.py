"""Groups on home: what nobody has in hand is a need, what came back stands first, the rest is said in one line."""

import re
from datetime import timedelta
from typing import cast

import pytest

from config.admin.home import by_urgency, pictures_of
from config.database.clock import database_now
from config.database.queries import asked_together
from config.flows import Flow, Need, flows, name_of, source_in_words
from config.telemetry import metrics
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import Watermark
from outbox.groups.models import FailureGroup
from outbox.home import OutboxNumbers, home_row
from outbox.letters.models import ProofRound
from outbox.letters.overview import MOST_GROUPS, gauges, letter_counts, letter_needs
from tests.config.admin.conftest import _plain_http, boss  # noqa: F401 (fixtures)
from tests.outbox.admin.test_group_pages import make

pytestmark = pytest.mark.django_db
State = FailureGroup.State


def needs():
    return [need.title for need in letter_needs(["transfer-requests"])]


def test_what_came_back_and_what_is_new_stand_first():
    make("seen", State.OPEN, 1)
    make("fresh", State.NEW, 2)
    make("back", State.REGRESSED, 3, owner_name="Ada")
    make("older", State.OPEN, 4)
    found = by_urgency(letter_needs(["transfer-requests"]))
    assert [need.cause for need in found] == ["back", "fresh", "older", "seen"]
    first, second, *_ = found
    assert "came back" in first.why
    assert "It is new." in second.why


def test_many_groups_are_a_handful_of_lines_and_a_link_to_the_others(boss):  # noqa: F811
    for number in range(9):
        make(f"cause {number}", State.NEW, number, source=("transfer-requests", "outbox")[number % 2])
    html = boss.get("/admin/").content.decode()
    assert html.count('<li class="sw-line sw-warn"') == MOST_GROUPS == 5
    assert re.search(r'… and <a href="[^"]*failuregroup/">4 more failure groups</a>', html)
    assert "Requeue, resolve or discard them.</p>" not in html
    assert "<b>9 things need you</b>" in html


def test_a_flow_with_open_letters_is_not_healthy_and_its_state_stands_above_what_needs_people(boss):  # noqa: F811
    make("waits", State.ACKNOWLEDGED, owner_name="Ada", open_count=110)
    html = boss.get("/admin/").content.decode()
    assert html.count("Healthy") == 8, "four flows, above and beside their picture"
    assert html.count("</svg>110 letters<") == 2
    assert html.index("110 letters") < html.index("110 open letters are in hand or ignored")


@pytest.mark.parametrize(
    ("refused", "sent", "urgent"),
    [(0, 0, set()), (20, 0, set()), (21, 180, {"lately"}), (21, 190, set())],
    ids=["none", "few", "a burst", "a tenth of all"],
)
def test_dead_mails_wait_until_today_as_their_alert_has_it_and_a_burst_of_refusals_does_not(refused, sent, urgent):
    for name, minutes in (("lately", 9), ("long ago", 11)):
        group = make(name, State.NEW, minutes, source="outbox")
        FailureGroup.objects.filter(pk=group.pk).update(step="deliver", reason="refused")
    now = database_now()
    counters.add({("outbox", "email", "permanent"): refused, ("outbox", "email", "sent"): sent}, now)
    dead = Need("soon", "Stock tracking does not report", "", "", "", rank=1, since=now)
    shown = by_urgency([*(need for need in home_row(OutboxNumbers(now)).needs if need.kind == "failure_group"), dead])
    assert {need.cause for need in shown if need.urgency == "now"} == urgent
    assert shown[len(urgent)] == dead, "bounced addresses do not stand above stock tracking that is dead"


def test_the_same_cause_in_two_flows_is_told_apart():
    for source in ("PAYMENT_SUCCESS", "outbox"):
        group = make(f"same cause of {source}", State.NEW, source=source)
        FailureGroup.objects.filter(pk=group.pk).update(title="same cause")
    titles = [need.title for need in letter_needs(["PAYMENT_SUCCESS", "outbox"])]
    assert sorted(titles) == ["Outbox: same cause", f"{source_in_words('PAYMENT_SUCCESS')}: same cause"]


def test_home_shows_them_in_this_order_whatever_their_age():
    make("seen", State.OPEN, 90)
    make("fresh", State.NEW, 1)
    make("back", State.REGRESSED, 5)
    shown = by_urgency([Need("soon", "Workers are gone", "", "", "", rank=2), *letter_needs(["transfer-requests"])])
    assert [need.title for need in shown] == [
        "Workers are gone", "Aggregator: back", "Aggregator: fresh", "Aggregator: seen",
    ]  # fmt: skip


def test_a_flow_has_the_same_name_on_home_and_in_the_titles_of_its_groups():
    pictures = {flow.name: picture.name for flow in flows() if (picture := flow.home_row(database_now()))}
    assert pictures.items() <= {flow.name: name_of(flow) for flow in flows()}.items()
    assert source_in_words("messages-in") == "Messages in"
    named = {
        name: name_of(cast(Flow, type(name, (), {})())) for name in ("Ledger", "CRMSync", "StockOfSAP", "V2Orders")
    }
    assert list(named.values()) == ["Ledger", "CRM sync", "Stock of SAP", "V2 orders"]


def test_what_somebody_has_in_hand_and_what_is_ignored_is_no_need():
    now = database_now()
    make("mine", State.ACKNOWLEDGED, owner_name="Ada")
    make("quiet", State.IGNORED)
    make("over", State.IGNORED, ignored_until=now - timedelta(seconds=1), owner_name="Ada")
    assert needs() == []
    make("late", State.IGNORED, ignored_until=now - timedelta(seconds=1))
    assert needs() == ["Aggregator: late"]


def test_home_says_what_is_in_hand(boss):  # noqa: F811
    assert "In hand" not in boss.get("/admin/").content.decode()
    make("mine", State.ACKNOWLEDGED, owner_name="Ada")
    make("mine too", State.ACKNOWLEDGED, owner_name="Ada")
    assert "2 groups have an owner." in boss.get("/admin/").content.decode()


def test_home_tells_apart_what_is_open_on_its_way_and_failed_again(boss):  # noqa: F811
    make("waits", State.OPEN, open_count=5, returned_count=2)
    make("goes", State.OPEN, open_count=0, requeued_count=3, returned_count=7)
    assert letter_counts(["transfer-requests"]) == {
        "letters_open": 5,
        "letters_requeued": 3,
        "letters_failed_again": 2,  # of groups with open letters: the others need nobody
    }
    html = boss.get("/admin/").content.decode()
    assert ">5</a>" in html
    assert "3 on their way" in html
    assert "2 failed again" in html
    assert ("transfer-requests", 2) in [
        (reading.labels["source"], reading.value)
        for reading in gauges(["transfer-requests"])
        if reading.gauge is metrics.LETTERS_FAILED_AGAIN
    ]


def test_home_keeps_silent_about_what_is_not_there(boss):  # noqa: F811
    make("waits", State.OPEN, open_count=5)
    html = boss.get("/admin/").content.decode()
    assert "on their way" not in html
    assert "failed again" not in html


def test_flows_asked_together_say_what_each_says_alone_and_remember_nothing(monkeypatch, django_assert_max_num_queries):
    now = database_now()
    for source in ("transfer-requests", "outbox", "PAYMENT_SUCCESS", "throttler"):
        make(f"waits in {source}", State.OPEN, source=source, open_count=5, requeued_count=2, returned_count=1)
        ProofRound.objects.create(source=source, overdue=3, oldest_at=now, looked_at=now)
        counters.add({(source, "", "read"): 7, (source, "", "parked"): 1}, now)
        Watermark.objects.create(group=source, topic=source, partition=0, next_offset=1, end_offset=4, updated_at=now)
    alone = [picture for flow in flows() if (picture := flow.home_row(now))]
    with django_assert_max_num_queries(30):
        assert pictures_of(now) == alone
    monkeypatch.setattr("outbox.letters.overview.MOST_TOGETHER", 2)  # more groups than are read together
    assert pictures_of(now) == alone
    with asked_together():  # two hours are two questions
        hours = [counters.of_last_hour(["throttler"], at) for at in (now, now - timedelta(hours=2))]
    assert [sum(hour.get("read", ())) for hour in hours] == [7, 0]
    FailureGroup.objects.update(open_count=6)
    assert [picture.letters_open for picture in pictures_of(now)] != [picture.letters_open for picture in alone]
