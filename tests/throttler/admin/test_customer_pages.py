"""The pages of customers: who waits, the forecast in a sentence, what stands there when nothing does."""

import io
import re
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection

from config.database.clock import NOW_SQL, database_now
from tests.config.admin.conftest import client_with, queries_of, seen, walk
from tests.throttler.admin.conftest import LIST, PAGE, add_customer, add_lane, add_owner, add_periods, lever
from throttler.customers.situation import situation_of
from throttler.models import Customer, CustomerPeriod, Lane, LaneOwner

pytestmark = pytest.mark.django_db


NAME = r'<th class="field-customer"><a href="[^"]*">([^<]*)'


def names(html):
    return re.findall(NAME, html)


# -- The list ------------------------------------------------------------------------------------------
def test_who_waits_stands_first_with_the_largest_backlog(boss):
    add_customer("b"), add_customer("quiet"), add_customer("held", held=True)
    add_lane("a", 5), add_lane("b", 70_000), add_lane("held", 300), add_lane("gone", 0)
    html = seen(boss, LIST)
    assert names(html) == ["b", "held", "a"]
    assert "70,000" in html
    assert "On hold" in html
    assert "default terms" in html
    assert names(seen(boss, f"{LIST}?show=all")) == ["b", "held", "quiet"]
    assert names(seen(boss, f"{LIST}?show=held")) == ["held"]


def test_pages_of_who_waits_name_each_once(boss):
    for number in range(120):
        add_lane(f"c{number:03}", backlog=1 + number // 3, partition=number)
    pages, _ = walk(boss, LIST, "next", NAME)
    assert [name for page in pages for name in page] == list(
        Lane.objects.order_by("-backlog", "id").values_list("customer_id", flat=True)
    )


@pytest.mark.parametrize(
    ("query", "words"),
    [("", "Nobody waits"), ("?show=held", "Nobody is on hold"), ("?show=all", "No customer has own terms yet"),
     ("?q=nobody", "Nothing has the key nobody")],
)  # fmt: skip
def test_empty_lists_say_what_would_be_there(boss, query, words):
    assert words in seen(boss, LIST + query)


def test_a_list_asks_as_often_for_fifty_as_for_one(boss):
    add_lane("c"), add_customer("c")
    boss.get(LIST)
    few = queries_of(boss, LIST)
    for number in range(49):
        add_lane(f"c{number}", partition=number), add_customer(f"c{number}")
    many = queries_of(boss, LIST)
    assert len(many) == len(few)
    assert not [sql for sql in many if "COUNT(" in sql and "throttler" in sql]


def test_a_customer_is_found_by_id_with_or_without_a_row(boss):
    add_customer("own-terms"), add_lane("only/waits")
    CustomerPeriod.objects.create(customer_id="was over", partition=1, start=database_now())
    for name, quoted in [("own-terms", "own-terms"), ("only/waits", "only_2Fwaits"), ("was over", "was%20over")]:
        assert names(seen(boss, f"{LIST}?q={name}")) == [name]
        assert boss.get("/admin/find/", {"q": name}).url == f"/admin/throttler/customer/{quoted}/change/"
        seen(boss, f"/admin/throttler/customer/{quoted}/change/")
    assert boss.get("/admin/throttler/customer/Own-Terms/change/").status_code == 302
    assert b"Nothing has the key" in boss.get("/admin/find/", {"q": "nobody"}).content


# -- One customer --------------------------------------------------------------------------------------
def test_the_callout_says_when_it_expires_and_which_rate_avoids_it(boss, waiting):
    html = " ".join(seen(boss, PAGE).split())
    assert re.search(r"Messages start to expire at (\d+ \w+ )?\d\d:\d\d, in 1 h( \d+ min)?\.", html)
    assert "They arrive at 3.5/s and leave at 2/s." in html
    assert "From then on 1.5 a second, about 5,400 an hour, are too old to send." in html
    assert "A rate of 4/s;150000/day or more keeps every message." in html
    assert "Owned by throttler-2, partition 5, reported" in html
    assert "70,140" in html
    assert "39,060" in html
    assert "lever/rate/?id=harbour-foods&amp;rates=4/s%3B150000/day" in html


def test_charts_are_drawn_from_when_the_customer_went_over(boss):
    add_customer(), add_owner(), add_periods(hours=2)
    add_lane(backlog=CustomerPeriod.objects.order_by("-start").first().backlog, age=timedelta(minutes=52))
    start = CustomerPeriod.objects.order_by("start").first().start
    html = seen(boss, PAGE).replace("since 00:00 UTC", "")  # of the day, which has begun then
    assert html.count(f"since {start:%H:%M}") == 2
    assert html.count("<polyline") == 3 + 2 + 1  # two charts, and the sparkline
    assert ">now</text>" in html
    CustomerPeriod.objects.all().delete()
    html = seen(boss, PAGE)
    assert html.count("Nothing to draw") == 2
    assert "How fast they arrive is not measured yet" in html


def test_a_changed_rate_is_a_step_in_the_chart(boss, waiting):
    assert steps(seen(boss, PAGE)) == 2
    boss.post(
        lever("rate"), {"id": "harbour-foods", "rates": "3/s", "seen": mark(boss, "rate"), "reason": "contract 4471"}
    )
    html = seen(boss, PAGE)
    assert steps(html) == 4
    assert "2/s;150000/day to 3/s" in html
    assert "contract 4471" in html


def steps(html):
    return len(re.search(r'<polyline class="sw-allowed" points="([^"]*)"', html)[1].split())


def mark(client, name):
    return re.search(r'name="seen" value="([^"]+)"', seen(client, lever(name)))[1]


def test_the_history_tells_files_and_weights_in_words(boss, waiting, tmp_path):
    path = tmp_path / "july.csv"
    path.write_text("customer_id,rates,burst,ttl_seconds\nharbour-foods,7/s,,\nother,1/s,,\n")
    call_command("import_customers", str(path), reason="contract 4471", stdout=io.StringIO())
    call_command("customers", "set-weight", "harbour-foods", "3", reason="pays more", stdout=io.StringIO())
    html = seen(boss, PAGE)
    for words in ("imported the terms", "2/s;150000/day to 7/s, from july.csv", "contract 4471",
                  "changed the weight", "1 to 3", "pays more"):  # fmt: skip
        assert words in html
    assert steps(html) == 4


def test_nobody_reports_when_none_did_within_ten_seconds(boss, waiting):
    LaneOwner.objects.update(updated_at=database_now() - timedelta(seconds=30))
    html = seen(boss, PAGE)
    assert "No throttler reports." in html
    assert "last report came 30 s ago" in html
    assert "start to expire" not in html
    assert "What a new rate would do" not in html
    LaneOwner.objects.all().delete()
    assert "none ever did" in seen(boss, PAGE)


def test_what_is_measured_ends_with_the_last_report(waiting):
    now = database_now()
    LaneOwner.objects.update(updated_at=now)
    found = situation_of(waiting.row, now + timedelta(minutes=4)).timeline
    assert found.arriving == pytest.approx(3.5, rel=0.05)
    assert found.periods[-1].sent == pytest.approx(2.0, rel=0.2)


def test_what_waits_in_a_partition_that_nobody_owns_is_no_forecast(boss, waiting):
    LaneOwner.objects.update(partitions=[4])
    html = seen(boss, PAGE)
    assert "No throttler owns what waits." in html
    assert "Partition 5, no owner reports" in html
    assert "start to expire" not in html
    assert "What a new rate would do" not in html


def test_one_process_without_transactions_is_named(boss, waiting):
    assert "At least once." not in seen(boss, PAGE)
    add_owner("demo", (1,), transactions=False)
    assert "At least once." in seen(boss, PAGE)


def test_a_held_customer_says_so_and_when_messages_expire(boss, waiting):
    Customer.objects.update(held=True)
    html = " ".join(seen(boss, PAGE).split())
    assert "On hold.</b> 70,140 messages wait and nothing leaves until somebody resumes." in html
    assert "in 26 min" in html or "in 25 min" in html
    assert re.search(r"grows by 2(09|10|11) a minute", html), "as fast as messages arrive, 3.5/s"
    assert "lever/resume/" in html
    assert "lever/hold/" not in html


def test_a_rate_of_zero_is_a_hold_that_no_lever_resumes(boss, waiting):
    Customer.objects.update(rates="0/s")
    html = " ".join(seen(boss, PAGE).split())
    assert "nothing leaves until the rate is changed: it is 0/s." in html
    assert "<dd>0 <small>/s</small></dd>" in html
    assert "lever/resume/" not in html


def test_a_backlog_that_shrinks_says_when_it_is_gone(boss):
    add_customer(rates="10/s"), add_lane(backlog=4_000, age=timedelta(minutes=20)), add_owner()
    add_periods(hours=1, arriving=0.5, leaving=0.4)
    html = seen(boss, PAGE)
    assert "Nothing expires; the backlog is gone by" in html
    assert "Waiting" in html


def test_a_quiet_customer_has_a_page_without_an_alarm(boss):
    add_customer(), add_owner()
    html = seen(boss, PAGE)
    assert "sw-callout" not in html
    assert "Nothing waits." in html
    assert "not measured under the rate" in html


def test_what_a_statement_by_hand_wrote_does_not_break_the_page(boss):
    add_customer(rates="nonsense"), add_lane(limiter={}, oldest_at=None), add_owner()
    seen(boss, PAGE)
    seen(boss, LIST)


def test_a_page_asks_as_often_however_much_waits(boss, waiting):
    boss.get(PAGE)  # what is asked once a process is known from now on
    few = queries_of(boss, PAGE)
    add_lane(partition=6, backlog=900_000), add_owner("other", (6,))
    many = queries_of(boss, PAGE)
    assert (
        len(many) == len(few) <= 14
    )  # six of them are the session, the user and the clock, which SQLite has in the program
    assert len([sql for sql in many if sql == NOW_SQL.get(connection.vendor)]) <= 1
    assert not [sql for sql in many if "overflowmessage" in sql]


def test_who_may_not_look_has_no_page_and_who_may_is_told_which_rights_show_more(waiting):
    html = seen(client_with("view_customer"), PAGE)
    assert "Reading the trail needs the right" in html
    assert "needs the right “view overflow message”" in html
    assert client_with("view_batch").get(PAGE).status_code == 403
