"""Galera by its answers alone (`make drill NAME=galera-node-killed` has real nodes): what refuses, what is made otherwise."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
from django.db import connection

from config.database import checks, galera
from config.database.galera import Node, node_of
from config.partitions import apply, operations, plan_for
from config.probes import doctor
from tests.config.partitions.conftest import add, in_thread, month
from tests.config.partitions.models import Dropped, Monthly
from tests.config.partitions.test_races import only
from tests.config.partitions.test_rotation import outcomes

WELL = Node("node1", size=3, status="Primary", state="Synced", views=7, received=500)
BUSY = replace(WELL, received=772)
mysql = pytest.mark.skipif(connection.vendor != "mysql", reason="Galera is of MariaDB")


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (WELL, ""),
        (BUSY, "has received 272 bytes that were written on other nodes"),
        (replace(WELL, status="non-Primary"), "cut off"),
        (replace(WELL, state="Donor/Desynced"), "not synced"),
        (replace(WELL, views=8, received=772), "come or gone"),
        (replace(WELL, name="node2"), "come or gone"),
    ],
)
def test_a_node_is_the_only_writer_unless_something_speaks_against_it(now, why):
    told = now.why_not_alone(WELL)
    assert why in told
    assert bool(told) is bool(why)


def test_a_node_is_read_from_its_variables_and_status():
    """What a node receives about its own write sets, eight bytes each, is nobody else's writing."""
    rows = [
        ("wsrep_on", "ON"), ("wsrep_node_name", "node1"), ("wsrep_cluster_size", "3"), ("wsrep_cluster_status", "Primary"),
        ("wsrep_local_state_comment", "Synced"), ("wsrep_cluster_conf_id", "7"), ("wsrep_received", "30"),
        ("wsrep_received_bytes", "740"),
    ]  # fmt: skip
    cursor = SimpleNamespace(execute=lambda *_: None, fetchall=lambda: rows)
    there = SimpleNamespace(vendor="mysql", cursor=lambda: nullcontext(cursor))
    assert node_of(there) == WELL
    del rows[1:], rows[0]
    assert node_of(there) is None


@pytest.mark.django_db
def test_a_server_without_galera_has_no_node_and_doctor_no_line_of_it():
    assert node_of(connection) is None
    assert list(doctor._galera()) == []


@mysql
@pytest.mark.parametrize(
    ("looks", "dropped"), [([WELL] * 4, True), ([WELL, WELL, BUSY], False), ([WELL, WELL, WELL, BUSY], False)]
)
def test_rotation_drops_only_while_no_other_node_is_written_to(monthly, monkeypatch, looks, dropped):
    """A look before and behind the watch, one before the lock, and one behind it, when writers of this node wait."""
    answers = iter(looks)
    monkeypatch.setattr(galera, "node_of", lambda _: next(answers))
    monkeypatch.setattr(galera.time, "sleep", lambda _: None)
    add(-5)
    plan = apply(only(-5, plan_for(monthly)))
    step = outcomes(plan)[str(month(-5))]
    assert (step.done, "on other nodes" in step.error, bool(plan.failures)) == (dropped, not dropped, not dropped)
    assert (Monthly.objects.count(), Dropped.objects.count()) == ((0, 1) if dropped else (1, 0))
    with in_thread(lambda: add(0)):
        pass  # nothing is locked any more


@mysql
@pytest.mark.django_db(transaction=True)
def test_a_sequence_leaves_each_node_numbers_of_its_own_and_one_that_does_not_is_named(monkeypatch):
    if not connection.mysql_is_mariadb:
        pytest.skip("MySQL has no sequences")
    monkeypatch.setattr(operations, "on_galera", lambda _: True)
    model = SimpleNamespace(_meta=SimpleNamespace(db_table="numbered"))
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE numbered (id bigint NOT NULL PRIMARY KEY)")
        try:
            with connection.schema_editor() as editor:
                operations.NumberBySequence("numbered").forwards(editor, model)
            named = {message.msg.split()[2] for message in checks._steps(connection)}
            assert "numbered_ids" not in named
            assert "buffer_bufferedevent_ids" in named, "made by a migrate that saw no Galera"
        finally:
            cursor.execute("DROP TABLE numbered")
            cursor.execute("DROP SEQUENCE IF EXISTS numbered_ids")


def test_doctor_says_which_node_how_many_there_are_and_that_another_one_is_written_to(monkeypatch):
    monkeypatch.setattr(galera, "watched", lambda _: (WELL, replace(BUSY, size=2)))
    told = {finding.name: (finding.ok, finding.detail) for finding in doctor._galera()}
    assert told["galera node"] == (True, "node1 is synced")
    assert told["galera cluster"] == (False, "2 nodes, of which this one is: if another one dies, nothing is written: start a third")  # fmt: skip
    assert told["galera writers"][0] is False
