"""System checks of partitioned models and of their tables."""

import pytest
from django.apps import apps
from django.core.checks import run_checks
from django.db import connection, models

from config.partitions import PartitionSpec
from config.partitions.checks import _loose_keys, check_models, check_tables
from tests.config.partitions.models import Monthly
from throttler.models import OverflowMessage

GOOD = ["tests.config.partitions.models.MONTHLY", "tests.config.partitions.models.LETTERS"]


@pytest.fixture
def loose():
    """A model with everything a partitioned table cannot have."""

    class Loose(models.Model):  # noqa: DJ008
        month = models.IntegerField()
        name = models.CharField(max_length=10, unique=True)
        owner = models.ForeignKey(Monthly, on_delete=models.CASCADE, related_name="+")
        free = models.ForeignKey(Monthly, on_delete=models.CASCADE, related_name="+", db_constraint=False)

        class Meta:
            app_label = "config"
            managed = False
            unique_together = [("month", "name"), ("name", "owner")]
            constraints = [models.UniqueConstraint(fields=["name", "free"], name="loose_name")]

    yield spec(model="config.Loose")
    apps.all_models["config"].pop("loose")
    apps.clear_cache()


def ids(messages):
    return sorted(message.id for message in messages)


def test_good_models_pass(settings):
    settings.PARTITIONS = GOOD
    assert check_models(None) == []


def test_loose_keys_and_foreign_keys_are_named(settings, loose, monkeypatch):
    monkeypatch.setattr("tests.config.partitions.models.LOOSE", loose, raising=False)
    settings.PARTITIONS = ["tests.config.partitions.models.LOOSE"]
    messages = check_models(None)
    assert ids(messages) == ["partitions.E002"] * 3 + ["partitions.E003"]
    assert {"loose_name", "name"} <= {message.msg.split()[2] for message in messages[:3]}


def test_a_foreign_key_to_a_partitioned_model_is_named(settings, loose):
    settings.PARTITIONS = GOOD
    assert ids(check_models(None)) == ["partitions.E003"]


@pytest.mark.parametrize(
    "name", ["models.NONE", "nowhere.X", *(f"test_checks.{name}" for name in ("LOST", "BLIND", "HOOKLESS", "UNLOCKED"))]
)
@pytest.mark.django_db
def test_a_spec_that_leads_nowhere_is_named(settings, name):
    settings.PARTITIONS = [f"tests.config.partitions.{name}"]
    assert ids(check_models(None)) == ["partitions.E001"]
    assert check_tables(None, databases=["default"]) == []


def spec(**changes):
    values = {"model": "config.Monthly", "column": "month", "period": "month", "encoding": "yyyymm"}
    return PartitionSpec(**{**values, "keep_months_setting": "X", **changes})


LOST = spec(model="config.Nobody")
BLIND = spec(column="nothing")
HOOKLESS = spec(before_drop="tests.config.partitions.models.nothing")
UNLOCKED = spec(locks=("config.Nobody",))


def test_a_plain_table_is_a_warning_and_a_missing_one_is_not(settings, schema):
    settings.PARTITIONS = GOOD
    assert check_tables(None, databases=["default"]) == []
    schema.create("Monthly", partitioned=False)
    schema.create("Letter")
    expected = [] if connection.vendor == "sqlite" else ["partitions.W001"]
    registered = run_checks(databases=["default"])
    assert ids(message for message in registered if message.id.startswith("partitions")) == expected
    assert check_tables(None) == []


def test_a_key_of_several_columns_must_contain_the_partition_column():
    loose = _loose_keys(OverflowMessage, "created_at")
    assert loose == ["pk"]
    assert _loose_keys(OverflowMessage, "day") == []
