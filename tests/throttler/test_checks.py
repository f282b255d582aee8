"""What is refused before it loses a message: settings of a store that could not keep them."""

import pytest
from django.core import checks
from django.utils import timezone

from config.environment.databases import parse_cassandra_url
from throttler.models import Customer

DAY = 86_400


@pytest.fixture
def cassandra(settings, monkeypatch):
    """Settings that are right, and a driver."""
    monkeypatch.setattr("throttler.checks.find_spec", lambda name: name)

    def chosen(url="cassandra://a/spill", ttl=6 * 3600, days=3):
        settings.THROTTLER_STORE = "cassandra"
        settings.CASSANDRA = parse_cassandra_url(url)
        settings.THROTTLER_TTL_SECONDS, settings.THROTTLER_BUFFER_DAYS = ttl, days

    chosen()
    return chosen


def found(databases=None):
    told = checks.run_checks(tags=[checks.Tags.compatibility, checks.Tags.database], databases=databases)
    return [message.id for message in told if message.id and "spillway.E05" in message.id]


def test_settings_that_are_right_pass(cassandra):
    assert found() == []


def test_the_other_store_needs_none_of_it(settings):
    assert settings.CASSANDRA is None
    assert found() == []


def test_a_missing_driver_is_named(cassandra, monkeypatch):
    monkeypatch.setattr("throttler.checks.find_spec", lambda name: None)
    assert found() == ["spillway.E050"]


@pytest.mark.parametrize(
    ("how", "which"),
    [
        ({"ttl": 2 * DAY}, "E051"),
        ({"url": "cassandra://a/spill?consistency=ONE"}, "E052"),
        ({"url": "cassandra://a/spill?cafile=/no/such/file"}, "E053"),
    ],
)
def test_a_store_that_would_lose_messages_is_refused(cassandra, how, which):
    cassandra(**how)
    assert found() == [f"spillway.{which}"]


def test_a_row_that_outlives_its_message_by_more_than_a_day_is_long_enough(cassandra):
    cassandra(ttl=2 * DAY - 1)
    assert found() == []


@pytest.mark.django_db
@pytest.mark.parametrize(("ttl", "which"), [(2 * DAY, []), (2 * DAY + 1, ["spillway.E054"]), (None, [])])
def test_a_lifetime_that_was_set_while_rows_lived_longer_is_named(cassandra, ttl, which):
    now = timezone.now()
    Customer.objects.create(customer_id="C-7", rates="1/s", ttl_seconds=ttl, created_at=now, updated_at=now)
    assert found(["default"]) == which


@pytest.mark.parametrize(
    ("name", "value"), [("THROTTLER_DEFAULT_RATE", "quick"), ("THROTTLER_OUTPUT_RATE", "5/s;9/day"),
                        ("THROTTLER_OUTPUT_RATE", "0/s")]
)  # fmt: skip
def test_rates_of_settings_that_cannot_be_read_are_named(settings, name, value):
    setattr(settings, name, value)
    (message,) = [one for one in checks.run_checks(tags=[checks.Tags.compatibility]) if one.id == "spillway.E055"]
    assert message.msg.startswith(f"{name}: ")
