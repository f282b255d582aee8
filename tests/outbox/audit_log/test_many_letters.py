"""What groups, replay batches and letters that are written out leave in the trail, once for each act."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command

from config.admin.levers import Operator
from outbox.audit_log.models import ActionSeal
from outbox.groups import levers as groups
from outbox.letters import levers
from outbox.models import FailureGroup, OperatorAction
from outbox.replay_batches import requests
from tests.config.admin.conftest import boss, page_of  # noqa: F401 (a fixture)
from tests.outbox.replay_batches.conftest import scripted  # noqa: F401 (a fixture)
from tests.outbox.replay_batches.scripted_flow import confirmed, letters, step

pytestmark = pytest.mark.django_db(transaction=True)
ANNA = Operator("Anna")


def subject_of(action: OperatorAction) -> tuple[str, str]:
    return action.subject_type, action.subject_id


# -- One action per action, with its subject and what was before and after -----------------------------


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
