"""`dead_letters …`: one call is one batch, with the console's judgement, trail and result."""

import io
import json
import os
import re
import time
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import pytest
from django.core.management import CommandError, call_command, load_command_class

from config.database.clock import database_now
from config.fields import uuid7_milliseconds
from config.telemetry.redaction import DOTS
from outbox import console
from outbox.letters.models import DeadLetter
from outbox.models import OperatorAction
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from outbox.replay_batches.run import Steps
from tests.outbox.replay_batches.conftest import scripted  # noqa: F401 (a fixture)
from tests.outbox.replay_batches.scripted_flow import assert_counted, confirmed, letters, previewed, run_until, step

pytestmark = pytest.mark.django_db(transaction=True)
WHY = ("--reason", "the cause is mended")


def run(*arguments):
    out = io.StringIO()
    call_command("dead_letters", *map(str, arguments), stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_one_call_is_one_batch_with_one_action_and_without_hold_or_canary(scripted):  # noqa: F811
    letters(30)
    scripted.ineligible["K3"] = "Already sent."
    said = run("requeue", "--all", *WHY)
    assert said.splitlines() == ["29 letters requeued", "skipped 1: Already sent."]
    batch = ReplayBatch.objects.get()
    assert (batch.state, batch.canary, batch.reason) == ("done", 0, "the cause is mended")
    assert not ReplayItem.objects.filter(canary=True).exists()
    action = OperatorAction.objects.get()
    assert (action.verb, action.rows, action.reason) == ("requeue", 29, "the cause is mended")
    assert re.search(r", by command$", action.actor_name)


def test_its_help_says_what_each_verb_does():
    parser = load_command_class("outbox", "dead_letters").create_parser("manage.py", "dead_letters")
    (verb,) = [action for action in parser._actions if action.dest == "verb"]
    assert list(verb.choices) == list(console.DOES)
    said = " ".join(parser.format_help().split())
    assert all(f"{name}: {words}" in said for name, words in console.DOES.items())


def test_what_fails_again_or_is_refused_is_named(scripted):  # noqa: F811
    ids = letters(4)
    scripted.fails.add("K1")
    scripted.poison.add("K2")
    said = run("requeue", "--all", *WHY).splitlines()
    assert said[:2] == ["2 letters requeued", f"failed again {ids[1]}: fails again"]
    assert said[2].startswith(f"refused {ids[2]}: the database still refuses it")


@pytest.mark.parametrize(("verb", "status"), [("discard", "discarded"), ("resolve", "resolved")])
def test_closing_and_restoring(verb, status):
    letters(3)
    run(verb, "--source", "swift", *(["--code", "test"] if verb == "discard" else []), *WHY)
    assert set(DeadLetter.objects.values_list("status", flat=True)) == {status}
    if verb == "discard":
        assert set(DeadLetter.objects.values_list("code", flat=True)) == {"test"}
        assert run("restore", "--all", *WHY).startswith("3 letters restored")
        assert DeadLetter.objects.open().count() == 3


def test_a_detached_call_leaves_it_to_the_worker(scripted):  # noqa: F811
    letters(5)
    assert "replay_letters carries it out" in run("requeue", "--all", "--detach", *WHY)
    assert scripted.taken == []
    call_command("replay_letters", "--once")
    assert ReplayBatch.objects.get().state == "done"
    assert len(scripted.taken) == 5


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
def test_a_killed_call_is_carried_on_by_the_worker(scripted, steps, monkeypatch):  # noqa: F811
    """Wherever it was: its lease runs out, and nobody has to confirm anything."""
    letters(120)
    left, original = [steps], Steps.take

    class Killed(BaseException):
        pass

    def dying(self, batch_id):
        if not left[0]:
            raise Killed
        left[0] -= 1
        return original(self, batch_id)

    with monkeypatch.context() as patch:
        patch.setattr(Steps, "take", dying)
        patch.setattr(Steps, "leave", lambda self, batch_id: None)
        with pytest.raises(Killed):
            run("requeue", "--all", *WHY)
    batch = ReplayBatch.objects.get()
    step(3)
    assert len(scripted.taken) < 120  # its lease still runs
    ReplayBatch.objects.update(lease_until=database_now() - timedelta(seconds=1))
    run_until(batch, "done")
    assert sorted(scripted.taken) == sorted(f"K{n}" for n in range(120))
    assert OperatorAction.objects.count() == 1


def test_a_call_that_the_stop_rule_stops_is_a_failure(scripted):  # noqa: F811
    letters(60)
    scripted.fails.update(f"K{n}" for n in range(60))
    with pytest.raises(CommandError, match="is stopped: Stopped by its rule: 20 of the last 20 failed") as failed:
        run("requeue", "--all", *WHY)
    assert failed.value.returncode == 1
    assert len(scripted.taken) == 20


def test_a_canary_is_tried_when_asked_for(scripted):  # noqa: F811
    letters(60)
    scripted.fails.add("K0")
    with pytest.raises(CommandError, match="canary failed"):
        run("requeue", "--all", "--canary", "3", *WHY)
    assert len(scripted.taken) == 3


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["requeue"], 2),
        (["restore", *WHY], 2),
        (["pause"], 2),
        (["pause", "1", "2"], 2),
        (["cancel", "x"], 1),
        (["cancel", "99"], 1),
        (["batches", "99"], 1),
        (["requeue", "--all"], 1),
        (["requeue", "--all", "--rate", "0", *WHY], 1),
        (["requeue", "--all", "--rate", "nan", *WHY], 1),
        (["requeue", "--all", "--canary", "-1", *WHY], 1),
        (["list", "--status", "gone"], 1),
        (["requeue", "--before", "soon", *WHY], 1),
        (["batches", "--since", "2026-02-13"], 2),
        (["requeue", "--all", "--rate", "-5", "--dry-run"], 1),
        (["requeue", "--all", "--canary", "9999", "--dry-run"], 1),
        (["discard", "--all", "--code", "two words", "--dry-run"], 1),
        (["discard", "--all", "--code", "x" * 31, "--reason", "it is only a test"], 1),
        # What a verb does not know is not dropped without a word.
        (["requeue", "--all", "--code", "test", *WHY], 2),
        (["list", "--reveal", *WHY], 2),
        (["list", "--dry-run"], 2),
        (["batches", "--all"], 2),
        (["pause", "1", "--canary", "3"], 2),
        (["cancel", "1", "--dry-run"], 2),
    ],
)
def test_nonsense_is_one_line_and_changes_nothing(arguments, code):
    letters(1)
    with pytest.raises(CommandError) as refused:
        run(*arguments)
    assert refused.value.returncode == code
    assert "\n" not in str(refused.value)
    assert DeadLetter.objects.open().count() == 1


def test_batches_are_listed_and_their_levers_pulled():
    letters(30)
    assert run("batches") == "No replay batches.\n"
    batch = previewed()
    assert re.search(rf"{batch.pk} +previewed +requeue +Anna: 30 eligible", run("batches"))
    assert "cancelled" in run("cancel", batch.pk, "--reason", "not now")
    batch = confirmed()
    data = json.loads(run("undo", batch.pk, "--json"))
    assert (data["state"], data["eligible"]) == ("previewed", 30)
    data = [json.loads(line) for line in run("batches", "--json").splitlines()]
    assert [one["id"] for one in data] == [batch.pk, batch.pk - 1]
    batch = confirmed()
    step(2)
    assert "paused" in run("pause", batch.pk)
    assert "running" in run("resume", batch.pk)
    assert_counted(batch)
    assert OperatorAction.objects.filter(actor_name__contains="by command").count() == 4


def test_programs_read_objects(scripted):  # noqa: F811
    """One a line, of every verb: what would be done, what was done, what was left to the worker, and letters."""
    ids = letters(5)
    scripted.ineligible["K3"] = "Already sent."
    would = json.loads(run("requeue", "--all", "--dry-run", "--json"))
    assert (would["eligible"], would["skipped"], would["skipped_why"]) == (4, 1, {"Already sent.": 1})
    assert run("requeue", "--all", "--dry-run").splitlines() == [
        "would requeue 4 letters; nothing was changed", "skipped 1: Already sent.",
    ]  # fmt: skip
    assert (ReplayBatch.objects.count(), OperatorAction.objects.count()) == (0, 0)
    detached = json.loads(run("requeue", ids[0], "--detach", "--json", *WHY))
    assert (detached["state"], detached["verb"]) == ("counting", "requeue")
    run("cancel", detached["id"])
    done = json.loads(run("requeue", "--all", "--json", *WHY))
    assert (done["state"], done["verified"], done["skipped_why"]) == ("done", 4, {"Already sent.": 1})
    shown = [json.loads(line) for line in run("show", *ids[:2], "--json").splitlines()]
    assert [one["id"] for one in shown] == list(map(str, ids[:2]))
    assert {one["payload_b64"] for one in shown} == {DOTS}
    assert "headers" not in shown[0]
    [revealed] = map(json.loads, run("show", ids[0], "--json", "--reveal", *WHY).splitlines())
    assert {"payload", "headers", "traceback"} <= set(revealed)


def test_a_letter_says_which_request_it_belongs_to(scripted):  # noqa: F811
    first, _ = letters(2)
    DeadLetter.objects.filter(pk=first).update(trace_id="ab" * 16, correlation_id="c-1")
    said = [json.loads(line) for line in run("show", "--all", "--json").splitlines()]
    assert [(one["trace_id"], one["correlation_id"]) for one in said] == [("ab" * 16, "c-1"), (None, "")]
    assert {f"{'trace_id':16}{'ab' * 16}", f"{'correlation_id':16}c-1"} <= set(run("show", first).splitlines())


def test_a_list_that_is_cut_off_says_so(monkeypatch):
    monkeypatch.setattr(console, "CHUNK", 3)
    letters(4)
    out = io.StringIO()
    with pytest.raises(CommandError, match="Only the first 3 letters are shown"):
        call_command("dead_letters", "show", "--all", "--json", stdout=out)
    assert len(out.getvalue().splitlines()) == 3


def test_an_account_without_a_name_is_a_number(monkeypatch):
    """As in a container that runs under a number that no file knows."""
    monkeypatch.setattr("getpass.getuser", Mock(side_effect=KeyError("uid not found: 12345")))
    run("resolve", letters(1)[0], *WHY)
    assert OperatorAction.objects.get().actor_name == f"account {os.getuid()}, by command"


def test_lists_take_a_status_and_a_time():
    ids = []
    for _ in range(3):
        ids += letters(1)
        time.sleep(0.002)  # ids are ordered by milliseconds
    run("resolve", ids[0], *WHY)
    header, *lines = run("list").splitlines()
    assert header.split() == ["LETTER", "ARRIVED", "SOURCE", "REASON", "ABOUT", "ERROR"]
    assert [line.split()[0] for line in lines] == [str(pk) for pk in ids[1:]]
    assert len(run("list", "--status", "resolved").splitlines()) == 2
    assert len(run("list", "--json").splitlines()) == 3
    second = datetime.fromtimestamp(uuid7_milliseconds(ids[1]) / 1000, UTC)
    next_one = (second + timedelta(milliseconds=1)).isoformat()
    assert run("list", "--before", next_one).splitlines()[-1].split()[0] == str(ids[1])
    assert run("list", "--since", next_one).splitlines()[-1].split()[0] == str(ids[2])
    assert run("list", "--since", "0001-01-01", "--before", "1969-01-01") == "No open dead letters.\n"


def test_a_list_is_a_table_with_the_error_masked_and_in_its_column(scripted):  # noqa: F811
    letters(2, key=lambda at: f"a business key that is far too long for its column {at}")
    DeadLetter.objects.update(error="the mailbox of 'ada@example.com' is full\n\x1b[31mred\u202e")
    header, *lines = run("list").splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.index(DeadLetter.objects.get(pk=line[:36]).source) == header.index("SOURCE")
        about, error = line[header.index("ABOUT") : header.index("ERROR")].rstrip(), line[header.index("ERROR") :]
        assert about == "a business key that is …"
        assert error.startswith("the mailbox of")
        assert "ada@" not in line
        assert line.isprintable()
