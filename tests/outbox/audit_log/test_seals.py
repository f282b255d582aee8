"""The chain over the operator actions: made afterwards, without gaps, and it names what was tampered with."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from datetime import timedelta
from unittest.mock import Mock

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import OperationalError, connection, connections, transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from config.flows import flows
from outbox.audit_log import flow as verify
from outbox.audit_log import hash_chain
from outbox.audit_log.actions import record
from outbox.audit_log.flow import sweep
from outbox.audit_log.models import ActionSeal, ActionSubject, OperatorAction
from outbox.tasks import seal_actions
from tests.logged import lines
from tests.outbox.race import race

pytestmark = pytest.mark.django_db(transaction=True)
ANN = Operator("ann")


def act(number: int = 1) -> list[int]:
    """So many actions; returns their keys."""
    return [
        record(ANN, "hold", f"Bucket {place}", reason="test", detail={"ids": [place]}).pk for place in range(number)
    ]


def test_an_action_outlives_the_account():
    """Nothing in the table leads to the account, so nothing goes or changes with it."""
    ann = User.objects.create(username="ann")
    record(Operator("Ann", ann), "hold", "Bucket 7", reason="test")
    number = ann.pk
    ann.delete()
    assert list(OperatorAction.objects.values_list("actor_number", "actor_name")) == [(number, "Ann")]
    with connection.cursor() as cursor:
        constraints = connection.introspection.get_constraints(cursor, OperatorAction._meta.db_table)
    assert not [name for name, constraint in constraints.items() if constraint["foreign_key"]]


def seal_now(limit: int = 1000, **how: bool) -> int:
    return hash_chain.seal(database_now(), limit, **how)


def chain() -> list[tuple[int, int]]:
    return list(ActionSeal.objects.order_by("number").values_list("number", "action"))


def faults() -> list[tuple[str, object]]:
    return [(row["why"], row.get("action", row["seal"])) for check in verify.checks() for row in check.rows]


@contextmanager
def slow_deed():
    """An action whose transaction is open as long as the block; yields its key."""
    done, go_on, found = threading.Event(), threading.Event(), []

    def action() -> None:
        try:
            with transaction.atomic():
                found.extend(act())
                done.set()
                assert go_on.wait(30)
        finally:
            connections.close_all()

    thread = threading.Thread(target=action)
    thread.start()
    assert done.wait(30)
    try:
        yield found[0]
    finally:
        go_on.set()
        thread.join(30)
        assert not thread.is_alive()


# -- Making the chain ------------------------------------------------------------------------------------
def test_actions_are_sealed_in_order_and_once():
    keys = act(7)
    assert [seal_now(3), seal_now(3), seal_now(3), seal_now(3)] == [3, 3, 1, 0]
    assert chain() == list(enumerate(keys, 1))
    assert not faults()


def test_seals_that_are_not_committed_are_not_told(caplog, monkeypatch):
    """A copy of the head that never was would look like a chain that somebody has cut."""
    act()
    caplog.clear()
    monkeypatch.setattr(connection, "_commit", Mock(side_effect=OperationalError("gone")))
    with caplog.at_level("INFO"), pytest.raises(OperationalError):
        seal_now()
    assert lines(caplog) == []
    monkeypatch.undo()
    with caplog.at_level("INFO"):
        assert seal_now() == 1
    assert [(line["event"], line["actions"]) for line in lines(caplog)] == [("actions_sealed", 1)]


def test_each_seal_is_made_of_the_one_before():
    act(3)
    seal_now()
    first, second, third = ActionSeal.objects.order_by("number")
    assert first.hash == hash_chain.link(hash_chain.GENESIS, 1, first.action, first.row_hash, first.acted_at)
    assert third.hash == hash_chain.link(second.hash, 3, third.action, third.row_hash, third.acted_at)
    assert len({first.hash, second.hash, third.hash}) == 3


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite has one writer: none commits late")
def test_an_action_that_commits_late_is_sealed_after_those_that_overtook_it():
    with slow_deed() as late:
        early = act(3)
        assert late < min(early)
        assert seal_now() == 3
    assert seal_now() == 1
    assert chain() == list(enumerate([*early, late], 1))
    assert seal_now() == 0
    assert not faults()


@pytest.mark.skipif("connection.vendor == 'sqlite'", reason="SQLite has one writer: none commits late")
def test_one_that_comes_later_than_any_should_is_found_by_the_daily_round(monkeypatch):
    monkeypatch.setattr(hash_chain, "LATEST", timedelta(0))
    with slow_deed():
        act(3)
        seal_now()
    assert seal_now() == 0
    assert seal_now(thorough=True) == 1
    assert not faults()


@pytest.mark.parametrize("retention", [0, 30], ids=["kept for ever", "swept"])
def test_the_daily_round_of_retention_seals_what_lies_below_the_floor(monkeypatch, settings, retention):
    """As the one above, without a second connection: an action that was not to be seen is there when all are sealed."""
    settings.AUDIT_RETENTION_DAYS = retention
    monkeypatch.setattr(hash_chain, "LATEST", timedelta(0))
    _first, late, last = act(3)
    row = OperatorAction.objects.get(pk=late)
    OperatorAction.objects.filter(pk=late)._raw_delete("default")
    seal_now()
    row.save(force_insert=True)
    assert hash_chain.head().floor >= last
    assert seal_now() == 0
    assert faults() == []
    sweep(database_now())
    assert OperatorAction.objects.unsealed().count() == 0
    assert chain()[-1] == (3, late)
    assert faults() == []


def test_a_key_that_was_rolled_back_holds_nothing_up(monkeypatch):
    act(2)
    with transaction.atomic():
        act()
        transaction.set_rollback(True)
    keys = act(2)
    monkeypatch.setattr(hash_chain, "LATEST", timedelta(0))
    assert seal_now() == 4
    assert hash_chain.head().floor == keys[-1] or connection.vendor == "sqlite"


def test_the_floor_waits_below_a_key_that_may_still_come():
    first = act(2)
    with transaction.atomic():
        act()
        transaction.set_rollback(True)
    if connection.vendor == "sqlite":
        OperatorAction.objects.filter(pk=act()[0]).delete()  # it gives a key that was rolled back again
    act(2)
    seal_now()
    gap = ActionSeal.objects.filter(action__gt=first[-1]).exists()
    assert gap
    assert hash_chain.head().floor in (0, first[-1])


def test_two_sealers_make_one_chain():
    for _ in range(5):
        act(20)
        counts = race(seal_now, seal_now, seal_now)
        assert 20 <= sum(counts) + seal_now() <= 20
    assert [number for number, _ in chain()] == list(range(1, 101))
    assert len({action for _, action in chain()}) == 100
    assert not faults()


def test_the_beat_job_seals_everything(monkeypatch):
    monkeypatch.setattr("outbox.tasks.SEALED_AT_ONCE", 4)
    act(10)
    assert seal_actions() == "10 actions sealed"
    assert OperatorAction.objects.unsealed().count() == 0


# -- Proving it ------------------------------------------------------------------------------------------
TEXTS = ("actor_name", "verb", "subject", "subject_id", "reason", "result", "url")
OTHERS = [{"rows": 9}, {"actor_number": 1}, {"detail": {}}, {"before": {"state": "x"}}]


@pytest.mark.parametrize("change", [*({name: "somebody else"} for name in TEXTS), *OTHERS, None], ids=str)
def test_an_action_that_was_changed_or_deleted_is_named(change):
    keys = act(3)
    seal_now()
    row = OperatorAction.objects.filter(pk=keys[1])
    row.update(**change) if change else row.delete()
    assert faults() == [("changed" if change else "deleted", keys[1])]


def test_a_seal_that_was_changed_to_fit_is_named():
    keys = act(3)
    seal_now()
    OperatorAction.objects.filter(pk=keys[1]).update(reason="another")
    row = OperatorAction.objects.values_list(*hash_chain.HASHED).get(pk=keys[1])
    ActionSeal.objects.filter(action=keys[1]).update(row_hash=hash_chain.row_hash_of(row))
    assert faults() == [("the seal was changed", keys[1])]


def test_a_seal_that_was_made_anew_breaks_the_next_one():
    keys = act(3)
    seal_now()
    OperatorAction.objects.filter(pk=keys[1]).update(reason="another")
    row = OperatorAction.objects.values_list(*hash_chain.HASHED).get(pk=keys[1])
    first, second, _third = ActionSeal.objects.order_by("number")
    anew = hash_chain.link(first.hash, 2, keys[1], hash_chain.row_hash_of(row), second.acted_at)
    ActionSeal.objects.filter(number=2).update(row_hash=hash_chain.row_hash_of(row), hash=anew)
    assert faults() == [("the seal was changed", keys[2])]


def test_a_seal_that_is_gone_is_named():
    keys = act(4)
    seal_now()
    ActionSeal.objects.filter(action=keys[1]).delete()
    OperatorAction.objects.filter(pk=keys[1]).delete()
    assert ("gone, up to seal 2", 2) in faults()


def test_the_command_exits_with_1_and_names_the_action(capsys):
    keys = act(3)
    seal_now()
    call_command("verify", flow="audit")
    assert "Everything adds up" in capsys.readouterr().out
    OperatorAction.objects.filter(pk=keys[1]).update(result="nothing happened")
    with pytest.raises(SystemExit) as ended:
        call_command("verify", flow="audit")
    assert ended.value.code == 1
    assert f"'action': {keys[1]}" in capsys.readouterr().out


# -- The metric ------------------------------------------------------------------------------------------
def age() -> float:
    (audit,) = [flow for flow in flows() if flow.name == "audit"]
    (reading,) = audit.gauges(database_now() + timedelta(seconds=100))
    return reading.value


def test_the_gauge_is_the_age_of_the_oldest_action_without_a_seal():
    assert age() == 0
    act(2)
    assert age() >= 100
    seal_now()
    assert age() == 0


# -- Subjects --------------------------------------------------------------------------------------------
def test_an_action_is_found_from_each_of_its_subjects():
    one = record(ANN, "hold", "Bucket 7", reason="test", subject_type="buffer.bucket", subject_ids=[7])
    both = record(ANN, "hold", "2 buckets", reason="test", subject_type="buffer.bucket", subject_ids=[7, 8])
    record(ANN, "hold", "Letter 7", reason="test", subject_type="outbox.deadletter", subject_id=7)
    assert list(OperatorAction.objects.about("buffer.bucket", 7)) == [both, one]
    assert list(OperatorAction.objects.about("buffer.bucket", "8")) == [both]
    assert ActionSubject.objects.count() == 2, "a single subject stands in the action itself"
