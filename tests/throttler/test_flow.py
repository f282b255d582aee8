"""The throttler as home, /metrics, the demo and the search see it."""

from dataclasses import replace
from datetime import timedelta
from itertools import islice

import msgspec
import pytest

from config.flows import Sample, SampleAction, Stage
from config.kafka import Replayed
from config.telemetry import metrics
from outbox.bookkeeping.models import Watermark
from tests.throttler.worked import Worked
from throttler import home
from throttler.flow import BUNCH, LOUD, RATES, ROUND, Throttler, notifications
from throttler.lanes.read_model import report_owner, take_name
from throttler.limits.rate import parse_rates
from throttler.messages import gate, microseconds
from throttler.models import Customer, Lane, LaneOwner

pytestmark = pytest.mark.django_db
FLOW = Throttler()


@pytest.fixture
def worked():
    return Worked()


def stages(now):
    columns = ([one] if isinstance(one, Stage) else one for one in FLOW.home_row(now).stages)
    return {stage.name: stage for column in columns for stage in column}


def test_home_shows_what_waits_and_what_needs_nobody(worked):
    shown = stages(worked.now)
    assert list(shown) == ["notifications-in", "Throttle", "Live", "Buffer", "notifications-out"]
    buffer = shown["Buffer"]
    assert (buffer.value, buffer.unit, list(buffer.details), buffer.tone) == (
        "3",
        "oldest 1 min",
        ["2 customers wait"],
        "idle",
    )
    assert list(shown["Throttle"].details) == ["6 buffered in 1 h", "1 parked in 1 h"]
    assert shown["notifications-out"].details[1] == "2 expired in 1 h, 0 held"
    assert buffer.trend[-1] == 3
    shown = FLOW.home_row(worked.now)
    assert (shown.letters_open, shown.letters_last_hour) == (1, 1)
    assert [need.title for need in shown.needs] == ["Throttler: Not JSON: no JSON"]


def test_home_works_before_anything_was_read(worked):
    for model in (Lane, LaneOwner, Watermark):
        model.objects.all().delete()
    assert stages(worked.now)["Buffer"].unit == "waiting"
    assert (metrics.THROTTLER_LIFE, 0.0) in [(one.gauge, one.value) for one in FLOW.gauges(worked.now)]


def need_of(worked):
    found = [need for need in FLOW.home_row(worked.now).needs if "about to expire" in need.title]
    return found[0] if found else None


def test_home_names_the_customer_whose_messages_are_about_to_expire(worked, settings):
    settings.THROTTLER_TTL_SECONDS = 70
    assert stages(worked.now)["Buffer"].word == "Expiring"
    need = need_of(worked)
    assert need.title == "Messages of acme are about to expire"
    assert (need.urgency, need.until) == ("now", worked.now + timedelta(seconds=10))
    assert "has waited 1 min; messages live 1 min 10 s" in need.why
    assert "No throttler works on them" in need.why


def test_a_lifetime_of_their_own_decides_when_a_customers_messages_expire(worked, settings):
    now = worked.now
    Customer.objects.create(customer_id="beta", rates="1/s", ttl_seconds=70, held=True, created_at=now, updated_at=now)
    need = need_of(worked)
    assert (need.title, need.until) == ("Messages of beta are about to expire", now + timedelta(seconds=10))
    LaneOwner.objects.create(name="one", partitions=[0], updated_at=now)
    assert "on hold" in need_of(worked).why
    LaneOwner.objects.all().delete()
    settings.THROTTLER_TTL_SECONDS = 70  # those of acme end as soon, and those of beta may wait for days
    Customer.objects.update(ttl_seconds=172_800)
    assert need_of(worked).title == "Messages of acme are about to expire"
    settings.THROTTLER_TTL_SECONDS = 21_600
    assert need_of(worked) is None


def test_a_shorter_life_is_found_behind_any_number_that_wait_longer(worked, monkeypatch):
    monkeypatch.setattr(home, "MOST", 1)
    now = worked.now
    Customer.objects.create(customer_id="new", rates="1/s", ttl_seconds=40, created_at=now, updated_at=now)
    worked.lanes.append(replace(worked.lane("new", 1, 5, 6), oldest_us=microseconds(now) - 36_000_000))
    worked.report()
    end = home.nearest_ends(now)[0]
    assert (end.customer_id, end.used(now)) == ("new", pytest.approx(0.9))


def test_what_expires_in_more_than_two_hours_is_for_today(worked):
    Lane.objects.filter(customer_id="acme").update(oldest_at=worked.now - timedelta(hours=44))
    now = worked.now
    Customer.objects.create(customer_id="acme", rates="1/s", ttl_seconds=172_800, created_at=now, updated_at=now)
    assert need_of(worked).urgency == "soon"


def held_need(worked):
    return next((need for need in FLOW.home_row(worked.now).needs if "on hold" in need.title), None)


def hold(worked, name, **terms):
    moments = {"created_at": worked.now, "updated_at": worked.now}
    Customer.objects.update_or_create(customer_id=name, defaults={"rates": "10/s", **moments, **terms})


def test_home_tells_a_customer_on_hold_as_it_tells_a_warehouse_on_hold(worked):
    assert held_need(worked) is None
    hold(worked, "acme", held=True)
    need = held_need(worked)
    assert (need.urgency, need.title, need.amount, need.unit) == ("watch", "1 customer is on hold", 1, "on hold")
    assert need.since == Lane.objects.get(customer_id="acme").oldest_at
    assert need.url.endswith("/customer/?show=held")
    assert "piles up" in need.why


def test_a_rate_of_nothing_is_a_hold_and_one_for_whom_nothing_waits_has_no_age(worked):
    hold(worked, "quiet", rates="0/s")
    hold(worked, "quieter", held=True)
    need = held_need(worked)
    assert (need.title, need.since) == ("2 customers are on hold", None)
    assert need.why.startswith("Nothing waits for them now")


def test_of_very_many_customers_on_hold_a_thousand_are_counted(worked, monkeypatch):
    monkeypatch.setattr(home, "MOST", 2)
    for number in range(4):
        hold(worked, f"held-{number}", held=True)
    need = held_need(worked)
    assert (need.title, need.amount) == ("2+ customers are on hold", 2)


def test_a_throttler_that_does_not_report_any_more_is_a_need(worked):
    later = worked.now + timedelta(minutes=10)
    assert "The throttler does not report" in [need.title for need in FLOW.home_row(later).needs]


def test_gauges_say_backlog_age_life_lag_and_letters(worked):
    report_owner("one", [0], True, worked.now, "a")
    take_name("two", True, worked.now, "a")
    take_name("two", True, worked.now, "b")
    found = {(one.gauge, *one.labels.values()): one.value for one in FLOW.gauges(worked.now)}
    assert found[(metrics.THROTTLER_BACKLOG,)] == 3
    assert found[(metrics.THROTTLER_OLDEST,)] == 60
    assert found[(metrics.THROTTLER_LIFE,)] == pytest.approx(60 / 21600)
    assert found[(metrics.THROTTLER_OWNER_STARTS, "two")] == 2
    assert (metrics.THROTTLER_OWNER_STARTS, "one") not in found
    assert found[(metrics.LETTERS_OPEN, "throttler")] == 1
    assert (metrics.CONSUMER_LAG_RECORDS, "throttler", "notifications-in", "0") not in found  # nobody has measured it


def test_the_account_adds_up(worked):
    assert dict(FLOW.summary()) == {
        "notifications read": 10, "notifications sent at once": 2, "notifications buffered": 6,
        "notifications sent": 4, "notifications expired": 2, "dead letters of notifications": 1,
        "throttled now": 3,
    }  # fmt: skip


def test_it_is_drained_when_all_is_read_and_nothing_waits(worked):
    assert not FLOW.is_drained()
    Lane.objects.update(backlog=0)
    assert FLOW.is_drained()
    Watermark.objects.update(end_offset=11, caught_up_at=None)
    assert not FLOW.is_drained()
    Watermark.objects.update(caught_up_at=worked.now)  # what is left at the end is the mark of a transaction
    assert FLOW.is_drained()


def test_the_doctor_says_what_is_stopped_and_what_is_not_exactly_once(worked):
    report_owner("one", [0], False, worked.now)
    Watermark.objects.update(alarm="offsets are gone")
    named = {name: (right, text) for name, right, text in FLOW.diagnose()}
    assert named["throttler"] == (False, "notifications-in/0: offsets are gone")
    assert "one runs without" in named["throttler transactions"][1]
    report_owner("two", [1], True, worked.now)
    LaneOwner.objects.filter(pk="one").update(updated_at=worked.now - timedelta(minutes=1))
    assert doctor_on_transactions() == "used"
    LaneOwner.objects.update(updated_at=worked.now - timedelta(minutes=1))
    assert doctor_on_transactions() == "no throttler reports"


def doctor_on_transactions():
    return {name: text for name, _, text in FLOW.diagnose()}["throttler transactions"]


def test_the_search_knows_customer_and_notification():
    value = msgspec.json.encode(
        {
            "notification_id": "n-1",
            "customer_id": "acme",
            "recipient": "a",
            "message": {},
            "created_at": "2026-11-23T00:00:00Z",
        }
    )
    record = Replayed("notifications-out", 0, 0, 0, b"acme", value)
    searched = FLOW.searched()
    assert set(searched) == {"notifications-in", "notifications-out", "notifications-expired"}
    assert searched["notifications-out"](record) == ["acme", "n-1"]


# -- Samples -----------------------------------------------------------------------------------------------
def taken(number, seed=1, poison=0.0):
    return list(islice(notifications(seed, poison), number))


def test_samples_are_the_same_for_the_same_seed_but_for_their_times():
    def told(samples):
        bodies = [msgspec.json.decode(one.value) for one in samples if isinstance(one, Sample)]
        return [{**body, "created_at": None} for body in bodies]

    assert told(taken(200)) == told(taken(200))
    assert told(taken(200)) != told(taken(200, seed=2))


def test_every_sample_but_poison_passes_the_gate_under_its_customers_key():
    for sample in taken(500)[1:]:
        assert gate().decode(sample.value).customer_id == sample.key


def test_one_customer_is_over_the_rate_for_a_moment_and_below_it_on_the_whole():
    rates = parse_rates(RATES, 4)
    loud = [sample.key for sample in taken(1 + 10 * ROUND)[1:]].count(LOUD)
    assert loud == pytest.approx(10 * BUNCH, abs=10)
    for each_second in (20, 25):  # of `simulate` and of `make run`
        assert rates.burst + rates.windows[0].limit * BUNCH / each_second < BUNCH
        assert each_second * BUNCH / ROUND < rates.windows[0].limit


def test_the_samples_that_make_a_customer_arrive_once(worked):
    action = taken(1)[0]
    assert isinstance(action, SampleAction)
    before = FLOW.arrived()
    action.run()
    action.run()
    assert FLOW.arrived() == before + 1
    assert Customer.objects.get().rates == RATES
