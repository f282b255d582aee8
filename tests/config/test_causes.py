"""Causes first, what follows from them under it: by one table for home, `doctor` and notices."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import NamedTuple
from uuid import uuid4

import pytest
from django.db import OperationalError
from django.urls import reverse

from buffer.streams import GROUP as INGEST
from config import causes
from config.admin.home import explained, home, needs_one_by_one
from config.causes import FOLLOWS, Fact, causes_first, fact
from config.database.clock import database_now
from config.flows import Need
from config.kafka import topic_name
from config.kafka.client import KafkaError, reachability
from config.probes import doctor
from config.processes.alive import identity_of
from config.telemetry.activity import Activity
from outbox.bookkeeping.models import Watermark
from outbox.groups.models import FailureGroup
from outbox.notices.incidents import look
from outbox.notices.models import Incident
from outbox.processes import heartbeat
from outbox.processes.models import WorkerProcess
from outbox.processes.overview import process_needs, why_missing
from tests.config.admin.conftest import _plain_http, boss  # noqa: F401 (fixtures)
from tests.outbox.notices.conftest import subscribe  # noqa: F401 (a fixture)

ALARM = "the topic was deleted and created again (its id changed): check what is in it, start with --accept-reset"


class Thing(NamedTuple):
    """Something with a name."""

    name: str
    fact: Fact | None


INGEST_GONE, TRACK_GONE = fact(causes.GONE, "ingest_events"), fact(causes.GONE, "track_inventory")
READER = fact(causes.SILENT, "ingest_events")
STANDS = fact(causes.STANDS, "ingest_events", "orders")
STOPPED = fact(causes.STOPPED, "ingest_events", "orders")
FAILED = fact(causes.FAILED, "ingest_events")
UNCONNECTED = fact(causes.UNCONNECTED, "ingest_events")
UNCUT, UNPUBLISHED = (fact(kind, "flush_buffer") for kind in (causes.UNCUT, causes.UNPUBLISHED))
BROKER = fact(causes.BROKER)
REGISTRY, AWAITS = fact(causes.REGISTRY), fact(causes.AWAITS, "ingest_events")


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ([None, None], ["0", "1"]),
        ([READER, BROKER, fact(causes.KAFKA_BREAKER, "kafka")], ["1<02"]),
        ([READER, INGEST_GONE], ["1<0"]),
        ([READER, TRACK_GONE], ["0", "1"]),
        ([READER, INGEST_GONE, BROKER], ["1", "2<0"]),
        ([FAILED, STANDS, STOPPED, fact(causes.STOP_LETTERS, "orders")], ["2<013"]),
        ([UNCONNECTED, READER, BROKER], ["2<01"]),
        ([UNCONNECTED, READER], ["0<1"]),
        ([AWAITS, READER, REGISTRY, fact(causes.SILENT, "track_inventory")], ["2<01", "3"]),
        ([READER, AWAITS, BROKER], ["1", "2<0"]),
        ([READER, STOPPED], ["0", "1"]),
        ([INGEST_GONE, STOPPED], ["0", "1"]),
        ([fact(causes.STOP_LETTERS, "others"), STOPPED], ["0", "1"]),
        ([UNCUT, UNPUBLISHED], ["1<0"]),
        ([UNCUT, UNPUBLISHED, fact(causes.GONE, "flush_buffer")], ["2<01"]),
        ([fact(causes.WAITING, "relay_outbox"), fact(causes.GONE, "relay_outbox")], ["1<0"]),
        ([fact(causes.BREAKER, "email"), fact(causes.PAUSED, "kafka")], ["0", "1"]),
        ([fact(causes.BREAKER, "email"), fact(causes.PAUSED, "email")], ["1<0"]),
        ([fact(causes.UNKNOWN_OF_BROKER), fact(causes.DATABASE)], ["0", "1"]),
        ([fact(causes.UNKNOWN_OF_DATABASE), fact(causes.DATABASE)], ["1<0"]),
    ],
)
def test_what_follows_stands_under_its_cause(facts, told):
    things = [Thing(str(at), each) for at, each in enumerate(facts)]
    said = [
        cause.name + ("<" + "".join(thing.name for thing in following) if following else "")
        for cause, following in causes_first(things)
    ]
    assert said == told


def test_nothing_follows_from_itself():
    """Each cause stands in the table before whatever it may be the cause of: so there is an end to asking for causes."""
    order = list(FOLLOWS)
    assert all(
        order.index(cause) < order.index(kind) for cause in FOLLOWS for kind in FOLLOWS[cause] if kind in FOLLOWS
    )


# -- Staged: in the tables, where home, `doctor` and notices see it ------------------------------------------
def partitions(number=3, minutes=0.0, **more):
    then = database_now() - timedelta(minutes=minutes)
    for partition in range(number):
        Watermark.objects.create(
            group=topic_name(INGEST), topic=topic_name("transfer-requests"), partition=partition, next_offset=5,
            end_offset=5, updated_at=then, **more,
        )  # fmt: skip


def process(command="ingest_events", **more):
    then = database_now() - timedelta(minutes=10)
    WorkerProcess.objects.create(
        run=uuid4(), command=command, host="app-1", place="elsewhere", pid=7, mark="1", version="1", since=then,
        kept_since=then, seen_at=then, **more,
    )  # fmt: skip


def recreated():
    now = database_now()
    partitions(alarm=ALARM)
    Watermark.objects.filter(partition=2).update(alarm="", updated_at=now - timedelta(minutes=1))
    process(ended_at=now, error=f"ConsumerStopped: {ALARM}")
    FailureGroup.objects.create(
        fingerprint="f", source="transfer-requests", step="position", reason="partition_stopped", title=f"Partition stopped: {ALARM}",
        first_seen=now, last_seen=now, state="new", open_count=3, total_count=3,
    )  # fmt: skip


def frozen_broker():
    """One worker was started again meanwhile, and ended."""
    partitions(minutes=9)
    error = "CommandError: KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:9092: KafkaTimeoutError: Unable to bootstrap"
    process(ended_at=database_now(), error=error)
    for group, topic in (("buffer-track", "PAYMENT_SUCCESS"), ("throttler", "notifications-in")):
        then = database_now() - timedelta(minutes=9)
        Watermark.objects.create(
            group=topic_name(group), topic=topic_name(topic), partition=0, next_offset=5, end_offset=5, updated_at=then
        )


def registry_away():
    process(error="SCHEMA_REGISTRY_URL: the registry answers 503")
    WorkerProcess.objects.update(seen_at=database_now(), round_at=database_now())
    partitions(minutes=9)


STAGED = {
    "a recreated topic": ("transfer-requests, 2 partitions are stopped", "stream transfer-requests"),
    "a dead worker": ("Silent: ingest_events on app-1, process 7", "worker ingest_events"),
    "a broker that is away": ("Kafka does not answer since", "broker"),
    "a registry that is away": ("ingest_events waits for the schema registry", "schema registry"),
}


@pytest.fixture(params=STAGED)
def staged(request, db, monkeypatch):
    """One cause, and all that follows from it."""

    def away() -> None:
        raise KafkaError("NoBrokersAvailable")

    monkeypatch.setattr(reachability, "ask", lambda: request.param != "a broker that is away")
    if request.param == "a recreated topic":
        recreated()
    elif request.param == "a dead worker":
        process()
        partitions(minutes=10)
    elif request.param == "a registry that is away":
        registry_away()
        down = doctor.Finding("schema registry", False, "", fact(causes.REGISTRY))
        monkeypatch.setattr(doctor, "_registry", lambda: [down])
    else:
        frozen_broker()
    broker = away if request.param == "a broker that is away" else lambda: iter([doctor.Finding("broker", True, "")])
    monkeypatch.setattr(doctor, "_broker", broker)
    return STAGED[request.param]


def test_one_cause_is_one_line_of_home_that_says_what_follows(staged, boss):  # noqa: F811
    needs = home(database_now())["needs"]
    assert len(needs) == 1, [need.title for need in needs]
    (need,) = needs
    assert need.title.startswith(staged[0])
    assert need.urgency == "now"
    html = boss.get("/admin/").content.decode()
    assert "<b>1 thing needs you</b>, now" in html
    assert f"From it follows: {need.follows[0]}" in html.replace("&#x27;", "'")
    assert f"{need.why} {need.follows_in_words}".count("created again") == need.why.count("created again")


def test_one_cause_is_one_fail_of_doctor_and_what_follows_stands_under_it(staged):
    findings = doctor.examine()
    lines = doctor.render(findings, as_json=False).splitlines()
    (at,) = [at for at, line in enumerate(lines) if line.startswith("FAIL")]
    assert lines[at].startswith(f"FAIL  {staged[1]} ")
    assert lines[at].count("is ingest_events running") == 0
    following = [line for line in lines if line.startswith("      └ ")]
    assert following
    assert lines[at + 1 : at + 1 + len(following)] == following
    assert all(len(line) < 140 for line in following)
    shown = json.loads(doctor.render(findings, as_json=True))
    assert shown["ok"] is False
    assert {one["name"] for one in shown["findings"]} == {finding.name for finding in findings}
    assert [one["follows_from"] for one in shown["findings"] if "follows_from" in one] == [staged[1]] * len(following)


def test_one_cause_is_one_notice_that_says_what_follows(staged, subscribe):  # noqa: F811
    subscribe()
    assert look(database_now()) == 1
    (incident,) = Incident.objects.open()
    assert incident.title.startswith(staged[0])
    assert "From it follows: " in incident.why
    assert [need.news for need in needs_one_by_one(database_now())].count(True) == 1


def test_the_same_sentence_is_said_once_of_partitions_that_stopped_for_one_reason(db):
    partitions(alarm=ALARM)
    marks = Watermark.objects.of_group(INGEST)
    name, ok, detail = marks.diagnosis("stream", "ingest_events", database_now())
    told = ALARM.replace("start with", "start ingest_events with")
    assert (name, ok, detail) == ("stream", False, f"{topic_name('transfer-requests')}/0,1,2: {told}")
    marks.filter(partition=1).update(alarm="damaged at 7")
    _name, _ok, detail = marks.diagnosis("stream", "ingest_events", database_now())
    assert detail.count(told) == 1
    assert "/0,2: " in detail


def test_another_partition_that_stops_for_the_same_reason_is_the_same_incident(db, subscribe):  # noqa: F811
    subscribe()
    partitions(1, alarm="the log ends at 1, but 9 was already read")
    look(database_now())
    Watermark.objects.update(partition=7)
    partitions(1, alarm="the log ends at 4,000, but 12 was already read")
    assert look(database_now()) == 0
    assert Incident.objects.get().title.endswith("2 partitions are stopped")


def test_a_cause_that_could_wait_is_as_urgent_as_what_follows():
    cause = Need("soon", "a worker hangs", "", "", "", fact=INGEST_GONE)
    effect = Need("now", "it does not report", "", "", "", fact=READER)
    first, second = explained([effect, cause])
    assert (first.title, first.urgency, first.news, first.follows) == ("a worker hangs", "now", True, (effect.title,))
    assert (second.title, second.news) == (effect.title, False)


def test_with_the_database_away_doctor_says_so_once(monkeypatch):
    def gone() -> None:
        raise OperationalError("no route to host")

    monkeypatch.setattr(doctor, "_database", gone)
    monkeypatch.setattr(doctor, "_broker", lambda: iter([doctor.Finding("broker", True, "")]))
    lines = doctor.render(doctor.examine(), as_json=False).splitlines()
    assert [line[:14] for line in lines if not line.startswith("ok")] == [
        "FAIL  database", "      └ clock ", "      └ flows "
    ]  # fmt: skip


def test_what_followed_from_a_cause_that_has_ended_is_no_news_while_it_ends_as_well(db, subscribe, monkeypatch):  # noqa: F811
    subscribe()
    frozen_broker()
    WorkerProcess.objects.all().delete()
    monkeypatch.setattr(reachability, "ask", lambda: False)
    now = database_now()
    assert look(now) == 1
    monkeypatch.setattr(reachability, "ask", lambda: True)
    assert look(now + timedelta(seconds=10)) == 0
    assert [row.key for row in Incident.objects.exclude(over_at=None)] == ["kafka"]
    process("replay_letters")
    assert look(now + timedelta(seconds=20)) == 1, "a cause of its own begins at once"
    assert look(now + timedelta(seconds=60)) == 0
    assert look(now + timedelta(seconds=80)) == 3, "who is silent still is news of its own"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("CommandError: KAFKA_BOOTSTRAP_SERVERS=a:9092: KafkaTimeoutError: Unable to bootstrap", causes.UNCONNECTED),
        ("CommandError: KAFKA_SASL_PASSWORD: the broker does not let ops in", causes.UNCONNECTED),
        ("CommandError: KAFKA_OAUTH_TOKEN_URL: the provider cannot be asked for a token", causes.UNCONNECTED),
        ("KAFKA_SSL_CERTFILE: the certificate expired", causes.UNCONNECTED),
        ("CommandError: BUFFER_MAX_BATCH: 0 is outside", causes.FAILED),
        ("ValueError: of KAFKA_BOOTSTRAP_SERVERS=a nobody has heard", causes.FAILED),
    ],
)
def test_a_worker_that_kafka_did_not_let_in_follows_from_kafka(db, error, kind):
    process(ended_at=database_now(), error=error)
    (need,) = process_needs(database_now())
    assert need.fact.kind == kind


def test_workers_that_wait_for_the_registry_are_one_line_until_their_next_report(db, boss, monkeypatch):  # noqa: F811
    why, doing = "SCHEMA_REGISTRY_URL: the registry answers 503", Activity()
    monkeypatch.setattr(heartbeat, "activity", doing)
    beating = heartbeat.Heartbeat(identity_of("ingest_events"))
    doing.hold("stream", {("scans", 0)}, "records", why)
    beating.report(database_now())
    process(error=why)
    WorkerProcess.objects.update(seen_at=database_now())
    (need,) = process_needs(database_now())
    assert (need.title, need.urgency) == ("ingest_events waits for the schema registry", "now")
    assert f"{why}. Records wait" in need.why
    assert why_missing({"ingest_events": ["scans"]}, database_now()) == ""
    page = boss.get(reverse("admin:outbox_workerprocess_change", args=[beating.key])).content.decode()
    assert "Let the registry answer, then it goes on by itself." in page
    assert "It is started by" not in page
    WorkerProcess.objects.exclude(pk=beating.key).delete()
    doing.hold("stream", {("scans", 0)}, "records")
    beating.report(database_now())
    assert list(process_needs(database_now())) == []
