"""CASSANDRA_URL: what it says, and one line for what it may not say."""

import pytest

from config.environment.databases import CassandraPlace, parse_cassandra_url
from config.environment.env import BadSetting


def test_a_url_says_where_and_how():
    place = parse_cassandra_url("cassandra://me:p%40ss@a,b:9043/spill?datacenter=dc-1&replication=2&consistency=ONE")
    assert place == CassandraPlace(("a", "b"), 9043, "spill", "me", "p@ss", "dc-1", 2, "ONE")


def test_a_place_says_where_it_is_and_never_the_password():
    place = parse_cassandra_url("cassandra://me:secret@a,b:9043/spill")
    assert str(place) == "a,b:9043/spill"
    assert "secret" not in repr(place)


@pytest.mark.parametrize(
    ("consistency", "replication", "certain"),
    [
        ("LOCAL_QUORUM", 3, True),
        ("QUORUM", 2, True),
        ("ONE", 1, True),
        ("ONE", 2, False),
        ("LOCAL_ONE", 3, False),
        ("TWO", 3, True),
        ("TWO", 4, False),
        ("ALL", 5, True),
    ],
)
def test_a_read_finds_what_was_written_where_their_nodes_overlap(consistency, replication, certain):
    place = parse_cassandra_url(f"cassandra://a/spill?consistency={consistency}&replication={replication}")
    assert place.reads_what_it_wrote is certain


def test_what_a_url_leaves_out_has_a_default():
    assert parse_cassandra_url("cassandra://a/spill") == CassandraPlace(("a",), 9042, "spill")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "begins with"),
        ("http://a/spill", "begins with"),
        ("cassandra:///spill", "one host"),
        ("cassandra://a,,b/spill", "one host"),
        ("cassandra://[::1/spill", "cannot be read"),
        ("cassandra://me:p/w@a/spill", "cannot be read"),
        ("cassandra://a:x/spill", "port"),
        ("cassandra://a:1,b:2/spill", "one port"),
        ("cassandra://a", "keyspace"),
        ("cassandra://a/x;drop", "keyspace"),
        ("cassandra://a/spill?replicas=3", "no replicas"),
        ("cassandra://a/spill?replication=0", "from 1 to 9"),
        ("cassandra://a/spill?consistency=SOME", "one of ALL"),
        ("cassandra://a/spill?datacenter=x'", "datacenter"),
    ],
)
def test_a_bad_url_is_refused_in_one_line(text, why):
    with pytest.raises(BadSetting, match=why) as raised:
        parse_cassandra_url(text)
    assert "\n" not in str(raised.value)
