"""Kafka does not answer: one line on home says so, nothing that is not known is shown as 0, and every flow that stands says it."""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest
from django.urls import reverse

from buffer.events.models import Bucket
from buffer.ledger.handler import GROUP as LEDGER
from buffer.streams import GROUP as INGEST
from config.admin.home import home
from config.database.clock import database_now
from config.flows import flows
from config.kafka import topic_name
from config.kafka.client import Reachability, reachability
from outbox.bookkeeping.models import Watermark
from outbox.channels import handlers as registry
from outbox.channels.models import ChannelState
from outbox.channels.permits import ensure
from outbox.models import OutboxMessage
from tests.conftest import order
from tests.outbox.scripted import promise
from throttler.engine.row_writer import GROUP as THROTTLER

TOPICS = {INGEST: "transfer-requests", LEDGER: "PAYMENT_SUCCESS", THROTTLER: "notifications-in"}


def silent(minutes=5.0, groups=TOPICS):
    """All workers of these groups reported for the last time so long ago; they knew of nothing that was not read."""
    then = database_now() - timedelta(minutes=minutes)
    for group in groups:
        Watermark.objects.update_or_create(
            group=topic_name(group), topic=topic_name(TOPICS[group]), partition=0,
            defaults={"next_offset": 5, "end_offset": 5, "caught_up_at": then, "updated_at": then},
        )  # fmt: skip
    return then


@pytest.fixture
def away(db, monkeypatch):
    """Nobody answers whoever asks."""
    monkeypatch.setattr(reachability, "answer", False)
    monkeypatch.setattr(registry, "installed", {})
    ensure(["kafka"])


def needs():
    return [need for need in home(database_now())["needs"] if "Kafka" in need.title or "report" in need.title]


def stages(name):
    (flow,) = [flow for flow in flows() if flow.name == name]
    picture = flow.home_row(database_now())
    every = [one for found in picture.stages for one in ([found] if hasattr(found, "tone") else found)]
    return picture, {stage.name: stage for stage in every}


def test_one_line_says_that_kafka_is_away_and_since_when(away, ingest, records):
    ingest(records(order("A1")))
    Bucket.objects.update(due_at=database_now() - timedelta(minutes=9))
    then = silent()
    (need,) = needs()
    assert (need.urgency, need.title) == ("now", f"Kafka does not answer since {then:%H:%M}")
    assert need.amount is None
    assert not [one for one in home(database_now())["needs"] if "no batch is cut" in one.title]


def test_what_is_not_known_is_shown_as_unknown_and_who_stands_says_so(away, boss):
    silent()
    html = boss.get("/admin/").content.decode()
    assert "lag 0" not in html
    assert "0 records behind" not in html
    for name, topic, reader in [
        ("throttler", "notifications-in", "Throttle"), ("ledger", "6 stock topics", "Track"),
        ("buffer", "transfer-requests", "Ingest"),
    ]:  # fmt: skip
        picture, named = stages(name)
        assert picture.worst is not None
        assert (named[topic].value, named[topic].word, named[topic].details[0]) == ("–", "No answer", "lag unknown")
        assert (named[reader].tone, named[reader].word) == ("bad", "Stands")
    picture, named = stages("outbox")
    assert (named["kafka"].value, named["kafka"].word) == ("–", "No answer")
    assert picture.worst == named["kafka"]


def test_an_open_breaker_of_a_channel_to_kafka_is_the_same_line(away):
    silent()
    ChannelState.objects.filter(name="kafka").update(breaker="open", opened_at=database_now())
    assert len(needs()) == 1
    assert not [one for one in home(database_now())["needs"] if "Nobody answers" in one.title]


@pytest.mark.parametrize(("channel", "alarmed"), [("kafka", False), ("email", True)])
def test_what_waits_for_kafka_is_no_alarm_about_relays(away, channel, alarmed):
    silent()
    ensure(["kafka", "email"])
    promise(channel="kafka", payload={"topic": "parcels", "key": "1", "value": {}})
    long_ago = database_now() - timedelta(minutes=10)
    OutboxMessage.objects.update(channel=channel, available_at=long_ago)
    ChannelState.objects.update(updated_at=long_ago)
    assert any("not being sent" in need.title for need in home(database_now())["needs"]) == alarmed


def test_workers_that_are_silent_while_kafka_answers_are_dead(db, boss):
    silent()
    assert sorted(need.title for need in needs()) == [
        "Ingest does not report", "Stock tracking does not report", "The throttler does not report",
    ]  # fmt: skip
    assert all(need.amount is None for need in needs()), "how much waits is not known"
    assert "lag 0" not in boss.get("/admin/").content.decode()


def test_who_reports_has_spoken_with_kafka(away):
    silent(groups=[INGEST, LEDGER])
    silent(minutes=0.1, groups=[THROTTLER])
    assert sorted(need.title for need in needs()) == ["Ingest does not report", "Stock tracking does not report"]


def test_with_kafka_gone_the_cause_is_said_before_the_first_reader_counts_as_silent(away):
    """The throttler goes on to report for some seconds, of what it has read before."""
    silent(groups=[INGEST, LEDGER])
    silent(minutes=0.2, groups=[THROTTLER])
    assert [need.title[:23] for need in needs()] == ["Kafka does not answer s"]


def test_an_installation_that_never_ran_does_not_ask(away):
    assert needs() == []


def test_positions_are_those_of_the_silent_worker(db, boss):
    silent()
    (need,) = [need for need in needs() if need.title.startswith("The throttler")]
    html = boss.get(need.url).content.decode()
    assert reverse("admin:outbox_watermark_changelist") in need.url
    assert "notifications-in/0" in html
    assert "transfer-requests/0" not in html
    assert "PAYMENT_SUCCESS/0" not in html


@pytest.mark.parametrize("listening", [False, True], ids=["nobody is there", "somebody is frozen"])
def test_who_does_not_answer_in_time_is_away(settings, listening):
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        if listening:
            port.listen()
        settings.KAFKA_BOOTSTRAP_SERVERS = [f"127.0.0.1:{port.getsockname()[1]}"]
        asked = Reachability()
        assert not asked.ask()
    settings.KAFKA_BOOTSTRAP_SERVERS = ["no.such.host.invalid:1"]
    assert not asked.ask(), "it is not asked again at once"


@pytest.mark.parametrize("broker", ["embedded", "kafka"], indirect=True)
def test_a_broker_answers(broker):
    assert Reachability().ask()
