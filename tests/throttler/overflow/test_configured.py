"""The store that the settings name, and the command that makes it."""

from types import SimpleNamespace

import pytest
from django.core.management import CommandError, call_command

from config.environment.databases import parse_cassandra_url
from tests.throttler.overflow.conftest import lane, offsets, row
from throttler.overflow import store_of_settings
from throttler.overflow.cassandra_schema import condition, faults_of
from throttler.overflow.django import DjangoStore


@pytest.fixture
def chosen(settings, place):
    """The settings name a store that is not made yet."""
    pytest.importorskip("cassandra")
    settings.THROTTLER_STORE, settings.CASSANDRA = "cassandra", place
    store = store_of_settings()
    yield store
    store.session.execute(f"DROP KEYSPACE IF EXISTS {place.keyspace}")
    store.close()


def test_without_a_word_rows_are_in_the_relational_database():
    assert isinstance(store_of_settings(), DjangoStore)


def test_with_the_relational_store_the_command_says_who_makes_the_table(capsys):
    call_command("create_overflow_store")
    assert "migrate" in capsys.readouterr().out


def test_the_command_makes_the_store_and_a_second_time_changes_nothing(chosen, capsys):
    call_command("create_overflow_store")
    chosen.store([row(1)])
    call_command("create_overflow_store")
    assert offsets(chosen.read([lane()])) == [1]
    assert [ok for _, ok, _ in chosen.diagnose()] == [True]


def test_a_dry_run_prints_the_statements_and_makes_nothing(chosen, capsys):
    call_command("create_overflow_store", "--dry-run")
    printed = capsys.readouterr().out
    assert printed.count("IF NOT EXISTS") == printed.count(";\n") == 2
    [(name, ok, detail)] = chosen.diagnose()
    assert (name, ok) == ("overflow store", False)
    assert "create_overflow_store" in detail


def test_a_server_that_is_not_there_is_one_line(settings):
    pytest.importorskip("cassandra")
    settings.THROTTLER_STORE, settings.CASSANDRA = "cassandra", parse_cassandra_url("cassandra://127.0.0.1:1/spill")
    with pytest.raises(CommandError, match=r"^CASSANDRA_URL \(127.0.0.1:1/spill\)[^\n]*$"):
        call_command("create_overflow_store")


def test_every_part_of_the_process_shares_one_store(settings):
    pytest.importorskip("cassandra")
    settings.THROTTLER_STORE, settings.CASSANDRA = "cassandra", parse_cassandra_url("cassandra://a/spill")
    assert store_of_settings() is store_of_settings()


PLACE = parse_cassandra_url("cassandra://a/spill?datacenter=dc1&replication=2")


def metadata(strategy, *hosts):
    keyspace = SimpleNamespace(replication_strategy=SimpleNamespace(**strategy))
    nodes = [SimpleNamespace(address=f"10.0.0.{n}", datacenter=dc, is_up=up, release_version="5.0.4")
             for n, (dc, up) in enumerate(hosts)]  # fmt: skip
    return SimpleNamespace(keyspaces={"spill": keyspace}, all_hosts=lambda: nodes)


@pytest.mark.parametrize(
    ("strategy", "hosts", "why"),
    [
        ({"dc_replication_factors": {"dc1": 2}}, [("dc1", True), ("dc1", None)], ""),
        ({"dc_replication_factors": {"dc1": 1, "dc2": 2}}, [("dc1", True), ("dc1", True)], "keeps 1 copies"),
        ({"dc_replication_factors": {"dc2": 2}}, [("dc1", True), ("dc1", True)], "keeps 0 copies"),
        ({"replication_factor": 3}, [("dc1", True)] * 3, "keeps 3 copies"),
        ({"dc_replication_factors": {"dc1": 2}}, [("dc1", True), ("dc2", True)], "2 copies on 1 nodes"),
        (
            {"dc_replication_factors": {"dc1": 2}},
            [("dc1", True), ("dc1", False)],
            "down: 10.0.0.1; a request needs 2 of 2 copies, so some are refused",
        ),
    ],
)
def test_a_keyspace_that_is_not_as_the_url_says_is_told(strategy, hosts, why):
    told = [*faults_of(PLACE, metadata(strategy, *hosts))]
    assert [why in one for one in told] == ([True] if why else [])


def test_a_store_that_is_right_says_where_it_is():
    told = "Cassandra 5.0.4 at a:9042/spill answers in 1.2 ms; copies 2, nodes 1, LOCAL_QUORUM: 2 answer each request"
    assert condition(PLACE, metadata({}, ("dc1", True), ("dc2", True)), 1.25) == told


def test_one_node_of_three_may_be_down_and_doctor_says_what_that_means():
    place = parse_cassandra_url("cassandra://a,b,c/spill")
    [told] = faults_of(place, metadata({"replication_factor": 3}, ("", True), ("", True), ("", False)))
    assert told == "down: 10.0.0.2; a request needs 2 of 3 copies, which the others have"
