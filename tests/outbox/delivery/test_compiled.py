"""Queries made once: the values of each call, and nothing that the first call happened to see."""

import uuid
from datetime import UTC, datetime

import pytest
from django.db import connection

from config.database.clock import database_now
from config.database.queries import compiled
from config.fields import uuid7
from outbox.bookkeeping.models import FlowCounter
from outbox.messages.models import tomorrow
from outbox.models import OutboxMessage
from tests.outbox.scripted import promise

pytestmark = pytest.mark.django_db


@compiled
def named(names: frozenset, flow: str, most: int):
    rows = FlowCounter.objects.filter(flow=flow, name__any=names).order_by("name")
    return rows.values_list("name", "value")[:most]


@compiled
def written(since: datetime, first: uuid.UUID, state: str):
    rows = OutboxMessage.objects.filter(created_at__gte=since, state=state)
    return rows.from_id(first, tomorrow()).values_list("id")


@compiled
def between(since: datetime, first: uuid.UUID, before: uuid.UUID):
    return OutboxMessage.objects.filter(created_at__gte=since).from_id(first, before).values_list("id")


def test_each_call_has_its_own_values():
    FlowCounter.objects.bulk_create(FlowCounter(flow="f", name=name, value=n) for n, name in enumerate("abcd"))
    FlowCounter.objects.create(flow="g", name="a", value=9)
    assert list(named(names=frozenset("ab"), flow="f", most=5)) == [("a", 0), ("b", 1)]
    assert list(named(names=frozenset("bcd"), flow="f", most=5)) == [("b", 1), ("c", 2), ("d", 3)]
    assert list(named(names=frozenset("bcd"), flow="f", most=2)) == [("b", 1), ("c", 2)]
    assert list(named(names=frozenset("abcd"), flow="g", most=2)) == [("a", 9)]
    assert list(named(names=frozenset(), flow="f", most=2)) == []


def test_moments_and_ids_are_those_of_the_call(memory):
    start, first = database_now(), uuid7()
    one, two = promise(), promise()
    assert {pk for (pk,) in between(since=start, first=first, before=tomorrow())} == {one, two}
    assert [pk for (pk,) in between(since=start, first=two, before=tomorrow())] == [two]
    assert [pk for (pk,) in between(since=start, first=first, before=two)] == [one]
    assert not list(between(since=datetime(2999, 1, 1, tzinfo=UTC), first=first, before=tomorrow()))


def test_what_would_stay_the_same_for_ever_is_refused():
    if connection.vendor != "postgresql":
        assert not list(written(since=database_now(), first=uuid7(), state="sent"))  # made anew each time
        return
    with pytest.raises(TypeError, match=r"written: UUID\(.*\) is none of its values"):
        written(since=database_now(), first=uuid7(), state="sent")


def test_it_is_made_once(monkeypatch):
    made = []

    @compiled
    def counters(flow: str, most: int):
        made.append(most)
        return FlowCounter.objects.filter(flow=flow).values_list("name")[:most]

    for flow in "abc":
        assert not list(counters(flow=flow, most=1))
    assert not list(counters(flow="a", most=2))
    assert made == ([1, 2] if connection.vendor == "postgresql" else [1, 1, 1, 2])
