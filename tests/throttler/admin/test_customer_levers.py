"""The levers on customers: the same functions as the command, each with its right, a reason, and the row that was seen."""

import re

import pytest

from config.admin.levers import Operator
from outbox.audit_log.models import OperatorAction
from tests.config.admin.conftest import client_with
from tests.throttler.admin.conftest import LIST, PAGE, add_customer, add_lane, add_owner, lever
from throttler.admin.levers import LEVERS, seconds_of
from throttler.customers import changes
from throttler.models import Customer

pytestmark = pytest.mark.django_db
WHY = "they asked for it on the phone"


def mark(client, name, customer="harbour-foods"):
    return re.search(r'name="seen" value="([^"]+)"', client.get(lever(name, customer)).content.decode())[1]


def pull(client, name, customer="harbour-foods", **given):
    data = {"id": customer, "reason": WHY, "seen": mark(client, name, customer), **given}
    return client.post(lever(name, customer), data, follow=True).content.decode()


def row(name="harbour-foods"):
    return Customer.objects.get(pk=name)


def test_a_rate_is_changed_with_a_reason_and_by_name(boss, waiting):
    assert "Changed the rate of harbour-foods. It takes effect within 5 s." in pull(
        boss, "rate", rates="20/s; 200000/day", burst="40"
    )
    assert (row().rates, row().burst) == ("20/s;200000/day", 40)
    action = OperatorAction.objects.get()
    assert (action.actor_name, action.verb, action.reason) == ("M. Okafor", "set_rate_customer", WHY)
    assert action.detail["waiting"] == 70_140


def test_hold_and_resume_and_a_longer_life(boss, waiting):
    pull(boss, "life", life="8 h")
    assert row().ttl_seconds == 8 * 3600
    assert 'value="8 h"' in boss.get(lever("life")).content.decode()
    pull(boss, "life", life="")
    assert row().ttl_seconds is None
    pull(boss, "hold")
    assert row().held
    pull(boss, "resume")
    assert not row().held


def test_a_weight_is_changed_where_there_is_a_rate_of_all(boss, waiting, settings):
    assert "Change weight" not in boss.get(PAGE).content.decode()
    settings.THROTTLER_OUTPUT_RATE = "500/s"
    assert "Change weight" in boss.get(PAGE).content.decode()
    assert "Changed the weight of harbour-foods" in pull(boss, "weight", weight="3")
    assert row().weight == 3
    assert 'value="3"' in boss.get(lever("weight")).content.decode()


def test_the_button_that_drops_the_backlog_says_how_many(boss, waiting):
    html = boss.get(lever("purge")).content.decode()
    assert "Drop 70,140 messages" in html
    assert "sw-harm" in html
    assert row().purge_before is None
    pull(boss, "purge")
    assert row().purge_before == row().updated_at
    assert OperatorAction.objects.get().detail["waiting"] == 70_140


def test_there_is_nothing_to_drop_when_nothing_waits(boss):
    add_customer(), add_owner()
    assert "There is nothing to do." in boss.get(lever("purge")).content.decode()
    assert "Not possible now: drop the backlog" in boss.get(PAGE).content.decode()


@pytest.mark.parametrize(
    ("name", "given", "problem"),
    [
        ("rate", {"rates": "many"}, "no rate such as 10/s"),
        ("rate", {"rates": ""}, "no rate such as 10/s"),
        ("rate", {"rates": "1/week"}, "unknown unit"),
        ("rate", {"rates": "1/s", "burst": "x"}, "a whole number is needed"),
        ("rate", {"rates": "1/s", "burst": "0"}, "burst: must be 1 to"),
        ("rate", {"rates": "1/s", "reason": "x"}, "At least 3 characters"),
        ("life", {"life": "soon"}, "no length of time"),
        ("life", {"life": "30 d"}, "must be 1 to"),
        ("life", {"life": "0"}, "must be 1 to"),
        ("weight", {"weight": "0"}, "must be 1 to 100"),
        ("weight", {"weight": "x"}, "a whole number is needed"),
        ("purge", {"reason": "short"}, "At least 10 characters"),
        ("hold", {"reason": ""}, "A reason is required"),
        ("resume", {}, "is not held"),
    ],
)
def test_what_cannot_be_is_said_and_what_was_typed_stays(boss, waiting, name, given, problem):
    html = pull(boss, name, **given)
    assert problem in html
    for typed in filter(None, given.values()):
        assert typed in html
    assert not OperatorAction.objects.exists()
    assert row().updated_at == waiting.row.updated_at


def test_what_is_wrong_is_said_at_its_field_and_what_no_field_can_mend_above_all(boss, waiting):
    html = pull(boss, "life", life="soon")
    assert re.search(
        r'name="life" value="soon"[^>]+aria-invalid="true" aria-describedby="id_life_helptext id_life_error"', html
    )
    assert '<a href="#id_life">&#x27;soon&#x27; is no length of time' in html
    assert "aria-invalid" in pull(boss, "weight", weight="0")
    assert "aria-invalid" not in pull(boss, "rate", rates="9/s", seen="none")


def test_a_form_that_somebody_overtook_changes_nothing(boss, waiting):
    seen = mark(boss, "rate")
    changes.change("harbour-foods", "hold", changes.hold, Operator("J. Lind"), WHY)
    html = pull(boss, "rate", seen=seen, rates="9/s")
    assert "Somebody else changed harbour-foods while this form was open." in html
    assert row().rates == "2/s;150000/day"
    # Sent once more, the old form is as old as before.
    assert "Somebody else changed" in pull(
        boss, "rate", seen=re.search(r'name="seen" value="([^"]+)"', html)[1], rates="9/s"
    )


def test_between_looking_and_writing_somebody_is_still_noticed(boss, waiting, monkeypatch):
    """The page compared the row it read; the guarded UPDATE decides."""
    looked = changes.fault_of_customer

    def meanwhile(customer_id):
        Customer.objects.update(weight=7)
        return looked(customer_id)

    seen = mark(boss, "rate")
    monkeypatch.setattr(changes, "fault_of_customer", meanwhile)
    assert "Somebody else changed harbour-foods meanwhile" in pull(boss, "rate", seen=seen, rates="9/s")
    assert row().rates == "2/s;150000/day"


def test_a_lever_gives_a_customer_without_a_row_one(boss):
    add_lane("only-waits"), add_owner()
    html = boss.get(lever("hold", "only-waits")).content.decode()
    assert "This customer has no row yet; it gets one." in html
    pull(boss, "hold", "only-waits")
    assert (row("only-waits").held, row("only-waits").rates) == (True, "10/s")
    assert "Somebody else changed only-waits while" in pull(boss, "rate", "only-waits", seen="none", rates="9/s")


def test_a_page_shows_what_another_rate_would_do_before_it_is_set(boss, waiting):
    html = boss.get(lever("rate", more="&rates=20/s;150000/day")).content.decode()
    assert "At 20/s;150000/day:" in html
    assert 'value="20/s;150000/day"' in html
    assert "At " not in boss.get(lever("rate", more="&rates=junk")).content.decode().split("<h1>")[1].split("Reason")[0]
    assert Customer.objects.get().rates == "2/s;150000/day"


def test_a_suggested_rate_keeps_the_burst_of_its_own(boss, waiting):
    Customer.objects.update(burst=33)
    assert 'name="burst" value="33"' in boss.get(lever("rate", more="&rates=20/s")).content.decode()


@pytest.mark.parametrize("url", [lever("hold", "nobody"), lever("hold", ""), lever("explode"), lever("hold", "a%00b")])
def test_no_such_customer_or_lever_is_no_page(boss, waiting, url):
    assert boss.get(url).status_code == 404


def test_lengths_of_time_are_read_as_people_write_them():
    written = ["90", "90s", "90 s", "2min", "6 h", "2 D", ""]
    assert [seconds_of(text) for text in written] == [90, 90, 90, 120, 21_600, 172_800, None]


def test_every_lever_is_one_of_the_commands():
    assert {one.verb for one in LEVERS} == {"set_rate", "set_ttl", "set_weight", "hold", "resume", "purge"}


def test_a_customer_who_was_never_seen_is_added_with_a_rate(boss):
    assert "As it stands in the messages" in boss.get(f"{LIST}add/").content.decode()
    html = boss.get(lever("rate", "%20fresh%20", "&new=1")).content.decode()
    assert "This customer has no row yet; it gets one." in html
    assert 'name="id" value="fresh"' in html
    data = {"id": "fresh", "new": "1", "seen": "none", "rates": "7/s", "reason": WHY}
    assert "Changed the rate of fresh." in boss.post(lever("rate", "fresh"), data, follow=True).content.decode()
    assert row("fresh").rates == "7/s"
    assert "Somebody else changed fresh" in boss.post(lever("rate", "fresh"), data, follow=True).content.decode()


def test_only_a_rate_adds_a_customer_and_only_with_its_right(boss):
    assert boss.get(lever("hold", "fresh", "&new=1")).status_code == 404
    assert boss.get(lever("rate", "x" * 201, "&new=1")).status_code == 404
    assert boss.post(f"{LIST}add/", {"customer_id": "fresh", "rates": "7/s"}).status_code == 200
    for rights in (["view_customer"], ["rate_customer"], ["view_customer", "add_customer"]):
        assert client_with(*rights).get(f"{LIST}add/").status_code == 403
        data = {"id": "fresh", "new": "1", "seen": "none", "rates": "7/s", "reason": WHY}
        assert client_with(*rights).post(lever("rate", "fresh"), data).status_code == 403
    assert not Customer.objects.exists()
