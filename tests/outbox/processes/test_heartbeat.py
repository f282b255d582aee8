"""What a process reports, who takes its row over, and what is known of it when it reports no more."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.core.management import load_command_class
from django.urls import reverse

from config.admin.home import home
from config.admin.levers import Operator
from config.database.clock import database_now
from config.processes import worker as worker_loop
from config.processes.alive import identity_of, mark_of, reporting
from config.telemetry import metrics
from config.telemetry.activity import Activity
from outbox.admin.workers import FORGET
from outbox.audit_log.models import OperatorAction
from outbox.bookkeeping.models import Watermark
from outbox.channels import permits
from outbox.flow import Outbox
from outbox.processes import heartbeat, overview
from outbox.processes.heartbeat import Heartbeat, in_words, look_around, sweep_processes
from outbox.processes.models import SILENT, WorkerProcess
from outbox.processes.overview import process_needs, processes_diagnosis, sightings

pytestmark = pytest.mark.django_db
GONE = 2**22 + 1  # no process has this number: Linux ends below


@pytest.fixture(autouse=True)
def doing(monkeypatch) -> Iterator[Activity]:
    """What this process does: nothing that another test did."""
    activity = Activity()
    monkeypatch.setattr(heartbeat, "activity", activity)
    yield activity


def identity(command="relay_outbox", **more):
    return replace(identity_of(command), host="app-1", **more)


def worker(command="relay_outbox", ago=0.0, **more):
    """A process that reported so many seconds ago; elsewhere unless told otherwise."""
    then = database_now() - timedelta(seconds=ago)
    known = {"host": "app-1", "place": "elsewhere", "pid": 7, "mark": "1", "version": "0.1.0", **more}
    times = {"since": then, "kept_since": then, "seen_at": then} | {
        name: more[name] for name in ("since", "kept_since", "seen_at") if name in more
    }
    return WorkerProcess.objects.create(run=uuid4(), command=command, **known | times)


def states():
    return {one.row.pk: one.state.value for one in sightings(database_now())}


def state(row):
    return states()[row.pk]


# -- What it writes ------------------------------------------------------------------------------------------
def test_a_process_says_who_it_is_and_what_it_does(doing):
    doing.hold("relay", ["kafka", "email"], "messages")
    doing.came_round(40)
    beating = Heartbeat(identity(arguments="--channel email"))
    beating.report(database_now())
    row = WorkerProcess.objects.get()
    assert (row.command, row.arguments, row.host, row.pid) == ("relay_outbox", "--channel email", "app-1", os.getpid())
    assert (row.holds, row.moved, row.unit, row.starts) == ("email, kafka", 40, "messages", 1)
    assert row.rate > 0
    assert row.round_at is not None
    doing.came_round(2)
    beating.report(database_now())
    row.refresh_from_db()
    assert (row.moved, row.starts) == (42, 1)
    assert state(row) == "runs"


def test_partitions_are_written_as_runs():
    assert in_words({("t", 0), ("t", 1), ("t", 2), ("t", 7), ("u", 3)}) == "t 0–2, 7; u 3"
    assert in_words([]) == ""


def test_a_report_is_one_row_and_two_statements(django_assert_max_num_queries):
    beating = Heartbeat(identity())
    beating.report(database_now())
    now = database_now()
    with django_assert_max_num_queries(2):
        beating.report(now)
    assert WorkerProcess.objects.count() == 1


def test_who_is_told_to_end_has_stopped_and_who_fails_says_why():
    told, failed = Heartbeat(identity()), Heartbeat(identity("run_throttler"))
    for beating, error in ((told, ""), (failed, "ConsumerStopped: a second process has this name")):
        beating.report(database_now())
        beating.error = error
        beating.leave(database_now())
    rows = {row.command: state(row) for row in WorkerProcess.objects.all()}
    assert rows == {"relay_outbox": "stopped", "run_throttler": "failed"}


def test_who_fails_before_the_first_report_is_heard_of_and_who_ends_then_is_not():
    quick, failed = Heartbeat(identity()), Heartbeat(identity("run_throttler"))
    quick.leave(database_now())
    failed.error = "BadSetting: no"
    failed.leave(database_now())
    assert [row.command for row in WorkerProcess.objects.all()] == ["run_throttler"]


@pytest.mark.parametrize(("error", "said"), [(RuntimeError("no luck"), "no luck"), (None, "")])
def test_a_command_reports_from_its_start_to_its_end(settings, monkeypatch, error, said):
    heard = []
    fake = SimpleNamespace(start=lambda: heard.append("start"), stop=heard.append)
    settings.HEARTBEAT = "outbox.processes.heartbeat.Heartbeat"
    monkeypatch.setattr(heartbeat, "Heartbeat", lambda identity: fake)
    try:
        with reporting("relay_outbox"):
            if error:
                raise error
    except RuntimeError:
        pass
    assert heard[0] == "start"
    assert said in heard[1]
    assert bool(heard[1]) == bool(error)


@pytest.mark.parametrize(
    ("app", "name", "options", "reports"),
    [
        ("outbox", "relay_outbox", {"once": False, "until_idle": None}, True),
        ("outbox", "relay_outbox", {"once": True, "until_idle": None}, False),
        ("throttler", "run_throttler", {"once": False, "until_idle": 3.0}, False),
        ("outbox", "replay_topic", {"once": False, "until_idle": None, "pending": True, "topic": None}, True),
        ("outbox", "replay_topic", {"once": False, "until_idle": None, "pending": False, "topic": "T"}, False),
        ("config", "run_all", {"demo": False}, True),
        ("config", "run_all", {"demo": True}, False),
        ("config", "simulate", {"rate": 20}, False),
    ],
)
def test_who_is_not_missed_when_it_ends_does_not_report(app, name, options, reports):
    assert load_command_class(app, name).reports(options) is reports


@pytest.mark.parametrize("options", [{"once": True}, {"once": False}])
def test_a_command_asks_whether_it_reports(monkeypatch, options):
    heard = []
    command = load_command_class("outbox", "relay_outbox")
    monkeypatch.setattr(command, "_prepare", lambda stop, options: None)
    monkeypatch.setattr(command, "work", lambda stop, options: None)
    monkeypatch.setattr(worker_loop, "reporting", lambda name: heard.append(name) or nullcontext())
    command.handle(**options)
    assert heard == ([] if options["once"] else ["relay_outbox"])


def test_a_report_looks_for_the_others_of_its_host():
    lost = worker("flush_buffer", ago=20, place=identity().place, pid=GONE)
    Heartbeat(identity()).report(database_now())
    lost.refresh_from_db()
    assert lost.missed_at is not None


# -- Rows are taken over, so that they do not grow with restarts ---------------------------------------------
def test_the_next_process_of_a_worker_takes_the_row_of_one_that_ended():
    for _ in range(5):
        beating = Heartbeat(identity())
        beating.report(database_now())
        beating.leave(database_now())
    assert [(row.starts, state(row)) for row in WorkerProcess.objects.all()] == [(5, "stopped")]


def test_it_takes_the_row_of_one_that_is_gone_and_of_no_living_one():
    gone = worker(place=identity().place, pid=GONE)
    Heartbeat(identity()).report(database_now())
    gone.refresh_from_db()
    assert (gone.pid, gone.starts, state(gone)) == (os.getpid(), 2, "runs")
    Heartbeat(identity()).report(database_now())  # the row is that of a living process: ourselves
    assert WorkerProcess.objects.count() == 2


def test_a_container_that_was_killed_gives_its_row_up_when_it_is_silent():
    lively, silent = worker(ago=5), worker(ago=40)
    Heartbeat(identity()).report(database_now())
    lively.refresh_from_db()
    silent.refresh_from_db()
    assert (lively.starts, silent.starts) == (1, 2)


def test_of_two_that_want_a_row_one_gets_it(monkeypatch):
    gone = worker(ago=40)
    first, second = Heartbeat(identity()), Heartbeat(identity())
    may = WorkerProcess.may_be_replaced

    def meanwhile(row, now):
        monkeypatch.setattr(WorkerProcess, "may_be_replaced", may)
        second.report(now)
        return True

    monkeypatch.setattr(WorkerProcess, "may_be_replaced", meanwhile)
    first.report(database_now())
    assert second.key == gone.pk
    assert first.key != gone.pk
    assert WorkerProcess.objects.count() == 2


def test_who_wakes_up_after_another_took_its_row_gets_a_new_one():
    frozen = Heartbeat(identity())
    frozen.report(database_now())
    WorkerProcess.objects.update(run=uuid4(), command="another")
    frozen.report(database_now())
    assert sorted(WorkerProcess.objects.values_list("command", flat=True)) == ["another", "relay_outbox"]


def test_rows_of_yesterday_are_swept_and_not_shown():
    worker(ago=86_500)
    kept = worker(ago=80_000)
    assert list(states()) == [kept.pk]
    assert sweep_processes(database_now()) == 1
    assert WorkerProcess.objects.get() == kept


# -- What is known of them -----------------------------------------------------------------------------------
def test_the_dead_and_the_frozen_come_first():
    here = identity().place
    runs = worker("flush_buffer", place=here, pid=os.getpid(), mark=mark_of(os.getpid()))
    frozen = worker("ingest_events", ago=40, place=here, pid=os.getpid(), mark=mark_of(os.getpid()))
    hangs = worker("listen_outbox", round_at=database_now() - timedelta(minutes=20))
    waits = worker("ingest_messages", error="SCHEMA_REGISTRY_URL: the registry answers 503")
    stopped = worker("track_inventory", ended_at=database_now())
    failed = worker("run_throttler", ended_at=database_now(), error="E: no")
    dead = worker("replay_letters", place=here, pid=GONE)
    assert list(states().items()) == [
        (dead.pk, "dead"), (failed.pk, "failed"), (frozen.pk, "silent"), (hangs.pk, "hangs"), (waits.pk, "waits"), (runs.pk, "runs"),
        (stopped.pk, "stopped"),
    ]  # fmt: skip


def test_a_later_process_with_the_same_number_is_not_the_one_that_reported():
    row = worker(place=identity().place, pid=os.getpid(), mark="another start")
    assert state(row) == "dead"


def test_who_is_on_the_host_writes_down_that_a_process_is_gone_and_others_read_it(monkeypatch):
    now = database_now()
    early, late, elsewhere = (
        worker(command, ago=ago, place=place, pid=GONE)
        for command, ago, place in (("a", 5, identity().place), ("b", 20, identity().place), ("c", 20, "elsewhere"))
    )
    look_around(now)
    gone = set(WorkerProcess.objects.exclude(missed_at=None).values_list("pk", flat=True))
    assert gone == {late.pk}
    WorkerProcess.objects.update(place="another host")
    assert (state(late), state(early), state(elsewhere)) == ("dead", "runs", "runs")


def test_a_report_takes_back_that_it_was_gone():
    beating = Heartbeat(identity())
    beating.report(database_now())
    WorkerProcess.objects.update(missed_at=database_now(), place="elsewhere")
    beating.report(database_now())
    assert list(states().values()) == ["runs"]


def test_a_newcomer_takes_the_place_of_one_that_was_lost_and_a_restart_elsewhere_does_not():
    lost = worker(ago=60, arguments="--metrics-port 9131")
    old = worker(host="app-2", arguments="--metrics-port 9132", kept_since=database_now() - timedelta(hours=1))
    assert state(lost) == "silent"
    new = worker(host="app-3", arguments="--metrics-port=9131")
    assert states() == {lost.pk: "replaced", old.pk: "runs", new.pk: "runs"}
    second = worker(ago=70)
    assert sorted(states()[row.pk] for row in (lost, second)) == ["replaced", "silent"], "one newcomer, one place"


def test_another_work_takes_no_place():
    lost = worker("ingest_events", ago=60, arguments="--stream a")
    worker("ingest_events", host="app-2", arguments="--stream b")
    assert state(lost) == "silent"


def test_who_takes_the_name_of_a_throttler_replaces_the_one_that_ends_because_of_it():
    now = database_now()
    failed = worker(
        "run_throttler", arguments="--instance a", ended_at=now, error="E: taken", since=now - timedelta(hours=1)
    )
    worker("run_throttler", arguments="--instance a", host="app-2", kept_since=now - timedelta(seconds=8))
    assert state(failed) == "replaced"


# -- Home, doctor, /metrics, the page ------------------------------------------------------------------------
def titles():
    return [need.title for need in home(database_now())["needs"]]


def test_home_says_who_is_missed_and_its_return_as_well(monkeypatch):
    lost = worker(ago=40, holds="email")
    (need,) = process_needs(database_now())
    assert (need.urgency, need.title) == ("now", "Silent: relay_outbox on app-1, process 7")
    assert "It held email." in need.why
    assert need.since == lost.seen_at
    assert need.title in titles()
    Heartbeat(identity()).report(database_now())
    assert list(process_needs(database_now())) == []


def test_where_another_one_does_the_same_work_it_is_less_urgent():
    worker(ago=40)
    worker(host="app-2", kept_since=database_now() - timedelta(hours=1))
    assert [need.urgency for need in process_needs(database_now())] == ["soon"]


def test_a_host_that_is_gone_is_a_few_lines():
    for number in range(9):
        worker(host=f"app-{number}", ago=60)
    found = home(database_now())
    assert len(found["needs"]) == 9
    *_, (need, more) = found["lines"]
    assert (len(found["lines"]), more, need.kin.words[1]) == (
        overview.MOST_NAMED, 6, "more workers are dead, failed or silent",
    )  # fmt: skip


def test_doctor_names_who_is_missed():
    assert ("workers", True, "none has reported within a day") in list(Outbox().diagnose())
    worker("flush_buffer")
    worker(ago=40)
    worker("run_throttler", ended_at=database_now(), error="ConsumerStopped: for 'a@b.example'")
    lines = {name: (ok, words) for name, ok, words in processes_diagnosis(database_now())}
    assert lines["worker flush_buffer"] == (True, "1 runs")
    assert lines["worker relay_outbox"] == (
        False,
        "0 run; silent on app-1, process 7, last seen 40 s ago: look at its host, then start it again",
    )
    assert lines["worker run_throttler"][0] is False
    assert "ConsumerStopped" in lines["worker run_throttler"][1]
    assert "a@b.example" not in lines["worker run_throttler"][1]


def test_metrics_count_them_by_state():
    worker(ago=40)
    found = {
        (one.labels["command"], one.labels["state"]): one.value
        for one in Outbox().gauges(database_now()) if one.gauge is metrics.WORKERS
    }  # fmt: skip
    assert found["relay_outbox", "silent"] == 1
    assert found["relay_outbox", "runs"] == 0


def test_the_page_shows_the_dead_first_and_what_all_stand_on(admin_client):
    url = reverse("admin:outbox_workerprocess_changelist")
    assert "No worker has reported within a day" in admin_client.get(url, secure=True).content.decode()
    permits.ensure(["email"])
    now = database_now()
    Watermark.objects.create(group="g", topic="t", partition=0, next_offset=1, updated_at=now)
    worker("flush_buffer", rate=3.5, unit="batches")
    silent = worker(ago=SILENT.total_seconds() + 5, holds="email, kafka")
    html = admin_client.get(url, secure=True).content.decode()
    assert html.index("relay_outbox") < html.index("flush_buffer")
    for words in ("Silent", "email, kafka", "3.5 batches/s", "answers in", "Kafka", "Channel email", "Runs"):
        assert words in html
    page = admin_client.get(
        reverse("admin:outbox_workerprocess_change", args=[silent.pk]), secure=True
    ).content.decode()
    assert "It is frozen, or cut off from the database" in page


def test_the_page_takes_as_many_queries_for_many_as_for_few(
    admin_client, django_assert_num_queries, django_assert_max_num_queries
):
    url = reverse("admin:outbox_workerprocess_changelist")
    worker()
    admin_client.get(url, secure=True)
    with django_assert_max_num_queries(40) as few:
        admin_client.get(url, secure=True)
    for number in range(30):
        worker(host=f"app-{number}", ago=number)
    with django_assert_num_queries(len(few)):
        admin_client.get(url, secure=True)


# -- Workers that were scaled away ---------------------------------------------------------------------------
def forget(client, *rows, reason="scaled away"):
    url = reverse("admin:outbox_workerprocess_lever", args=["forget"])
    return client.post(url, {"id": [row.pk for row in rows], "reason": reason}, secure=True, follow=True)


def test_a_worker_that_was_scaled_away_is_forgotten_with_a_reason(admin_client):
    silent, ended = worker(ago=40, holds="email"), worker("flush_buffer", ended_at=database_now())
    page = admin_client.get(
        reverse("admin:outbox_workerprocess_change", args=[silent.pk]), secure=True
    ).content.decode()
    assert "Forget" in page
    forget(admin_client, silent, reason="")
    assert WorkerProcess.objects.count() == 2
    forget(admin_client, silent, ended)
    assert not WorkerProcess.objects.exists()
    assert not list(process_needs(database_now()))
    action = OperatorAction.objects.get(subject_id=str(silent.pk))
    assert (action.verb, action.reason, action.before["state"]) == ("forget_worker", "scaled away", "silent")


@pytest.mark.parametrize("late", [0.0, 3600.0], ids=["runs", "hangs"])
def test_a_worker_that_reports_is_not_forgotten(admin_client, late):
    row = worker(round_at=database_now() - timedelta(seconds=late))
    html = forget(admin_client, row).content.decode()
    assert "reports. Stop it first" in html
    assert WorkerProcess.objects.exists()
    assert not OperatorAction.objects.filter(verb="forget_worker").exists()


@pytest.mark.parametrize("change", [{"seen_at": database_now}, {"run": uuid4}], ids=["reported", "taken over"])
def test_a_worker_that_comes_back_meanwhile_is_not_forgotten(monkeypatch, change):
    """It reports, or the next one takes its row, between the look and the deletion."""
    row = worker(ago=40)
    state_of = overview.state_of

    def looked(seen, now):
        WorkerProcess.objects.update(**{name: value() for name, value in change.items()})
        return state_of(seen, now)

    monkeypatch.setattr("outbox.admin.workers.state_of", looked)
    result = FORGET.act([row.pk], Operator("test"), "scaled away")
    assert result.changed == 0
    assert result.refused == [f"{row}: it has reported again."]
    assert WorkerProcess.objects.exists()
    assert not OperatorAction.objects.exists()


def test_a_forgotten_worker_that_lives_after_all_comes_back():
    beating = Heartbeat(identity())
    beating.report(database_now())
    WorkerProcess.objects.all().delete()
    beating.report(database_now())
    assert list(states().values()) == ["runs"]
