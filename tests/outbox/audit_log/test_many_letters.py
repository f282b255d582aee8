"""What groups, replay batches and single letters leave in the trail, and what of a payload their pages show."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command

from config.admin.levers import Operator
from config.letters import Effect
from outbox.audit_log.models import ActionSeal
from outbox.groups import levers as groups
from outbox.letters import levers
from outbox.letters.filters import Filter
from outbox.models import DeadLetter, FailureGroup, OperatorAction
from outbox.replay_batches import requests
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from tests.config.admin.conftest import _plain_http, boss, list_of, page_of  # noqa: F401 (fixtures)
from tests.outbox.replay_batches.conftest import scripted  # noqa: F401 (a fixture)
from tests.outbox.replay_batches.scripted_flow import confirmed, letters, run_until, step

pytestmark = pytest.mark.django_db(transaction=True)
ANNA = Operator("Anna")
SECRET = "zq-planted-7f3a"


def subject_of(action: OperatorAction) -> tuple[str, str]:
    return action.subject_type, action.subject_id


# -- One action per action, with its subject and what was before and after -----------------------------
@pytest.mark.parametrize(
    ("verb", "before", "after"),
    [("requeue", "open", "resolved"), ("resolve", "open", "resolved"), ("discard", "open", "discarded")],
)
def test_a_lever_on_a_letter_names_it_and_both_states(scripted, verb, before, after):  # noqa: F811
    (pk,) = letters(1)
    levers.pull(verb, [pk], ANNA, "because it is so")
    (action,) = OperatorAction.objects.all()
    assert subject_of(action) == ("outbox.deadletter", str(pk))
    assert (action.before, action.after) == ({"status": before}, {"status": after})


def test_a_restored_letter_is_open_after_it(scripted):  # noqa: F811
    (pk,) = letters(1)
    levers.pull("discard", [pk], ANNA, "because it is so")
    levers.pull("restore", [pk], ANNA, "by mistake")
    last = OperatorAction.objects.order_by("pk").last()
    assert (last.before, last.after) == ({"status": "discarded"}, {"status": "open"})


def test_levers_on_a_group_are_on_its_page(boss, scripted):  # noqa: F811
    letters(2)
    group = FailureGroup.objects.get()
    groups.take([group.pk], ANNA, "mine")
    groups.release([group.pk], ANNA, "yours")
    groups.ignore([group.pk], ANNA, "for now", "day")
    groups.watch([group.pk], ANNA, "again")
    actions = list(OperatorAction.objects.order_by("pk"))
    assert {subject_of(action) for action in actions} == {("outbox.failuregroup", str(group.pk))}
    assert [(action.before, action.after) for action in actions[:2]] == [
        ({"owner": ""}, {"owner": "Anna"}),
        ({"owner": "Anna"}, {"owner": ""}),
    ]
    assert actions[2].after == actions[3].before == {"state": "ignored"}
    html = boss.get(page_of(group)).content.decode()
    assert "What people did" in html
    assert all(f"“{why}”" in html for why in ("mine", "yours", "for now", "again"))


def test_each_lever_of_a_batch_is_one_action_on_its_page(boss, scripted):  # noqa: F811
    letters(3)
    batch = confirmed()
    requests.set_rate(batch.pk, ANNA, 5.0)
    requests.cancel(batch.pk, ANNA, "not today")
    actions = list(OperatorAction.objects.order_by("pk"))
    assert {subject_of(action) for action in actions} == {("outbox.replaybatch", str(batch.pk))}
    assert (actions[-1].before, actions[-1].after) == ({"state": "holding"}, {"state": "cancelled"})
    html = boss.get(page_of(batch)).content.decode()
    assert "What people did" in html
    assert "“not today”" in html


def test_the_worker_seals_what_was_done(scripted):  # noqa: F811
    (pk,) = letters(1)
    levers.pull("resolve", [pk], ANNA, "by phone")
    step()
    assert ActionSeal.objects.get().action == OperatorAction.objects.get().pk


def test_letters_written_out_as_json_are_one_action(scripted, capsys):  # noqa: F811
    ids = letters(2)
    call_command("dead_letters", "list", "--json", "--source", "swift")
    assert [json.loads(line)["id"] for line in capsys.readouterr().out.splitlines()] == [str(pk) for pk in ids]
    (action,) = OperatorAction.objects.all()
    assert (action.verb, action.subject_type) == ("export", "outbox.deadletter")
    assert action.detail == {"filter": {"source": "swift"}}
    call_command("dead_letters", "list")
    assert OperatorAction.objects.count() == 1, "no payload, no action"


# -- What failed again says it without values ----------------------------------------------------------
@pytest.fixture
def failing(scripted, monkeypatch):  # noqa: F811
    """Letters whose flow repeats what is in the payload when it fails again."""
    again = Effect("failed_again", f"cannot read '{SECRET}', nor {SECRET}@example.com")
    monkeypatch.setattr(scripted, "_effect_of", lambda self, letter: again)
    letters(3)
    DeadLetter.objects.update(error=f"it broke at '{SECRET}'")
    return DeadLetter.objects.order_by("pk")


def test_a_planted_string_is_on_no_page_of_a_batch(boss, failing):  # noqa: F811
    assert SECRET not in boss.get(page_of(FailureGroup.objects.get())).content.decode()
    open_ones = boss.get(list_of(DeadLetter)).content.decode()
    assert "it broke at" in open_ones
    assert SECRET not in open_ones
    batch = run_until(confirmed(rate=10_000), "done", "stopped")
    assert batch.failed_again == 3
    pages = [page_of(row) for row in (batch, FailureGroup.objects.get(), *failing)]
    pages += [list_of(ReplayBatch), f"{list_of(ReplayItem)}?batch__id__exact={batch.pk}&state=failed_again"]
    for url in pages:
        html = boss.get(url).content.decode()
        assert SECRET not in html, url
    assert "cannot read" in boss.get(pages[-1]).content.decode()
    stored = [*ReplayItem.objects.values(), *OperatorAction.objects.values(), *ReplayBatch.objects.values()]
    assert SECRET not in str(stored)


def test_a_planted_string_is_not_in_what_a_lever_or_the_command_says(boss, failing, capsys):  # noqa: F811
    first, *others = failing
    given = {"id": str(first.pk), "confirmed": "1", "reason": "as was agreed on"}
    answer = boss.post(f"{list_of(DeadLetter)}lever/requeue/", given, follow=True)
    assert "cannot read" in " ".join(map(str, answer.context["messages"]))
    assert SECRET not in answer.content.decode()
    call_command("dead_letters", "requeue", *[str(letter.pk) for letter in others], "--reason", "as was agreed on")
    said = capsys.readouterr()
    assert "failed again" in said.out
    assert SECRET not in said.out + said.err
    assert SECRET not in str(list(OperatorAction.objects.values()))


def test_a_filter_that_is_asked_for_again_says_nothing_of_a_payload(failing):
    assert SECRET not in Filter(group=FailureGroup.objects.get().pk).words()
