"""The breaker, the rate and the pause: shared by all workers, and costing the messages nothing."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.audit_log.models import OperatorAction
from outbox.channels import permits
from outbox.channels.handlers import Outcome
from outbox.delivery.claim import claim
from outbox.models import ChannelState, OutboxMessage
from tests.logged import lines
from tests.outbox.race import race
from tests.outbox.scripted import PERMANENT, SENT, UNREACHABLE, Scripted, message, promise, states

NOW = datetime(2026, 1, 1, tzinfo=UTC)
db = pytest.mark.django_db
ME = Operator("me")


def state(channel: str = "memory") -> ChannelState:
    return ChannelState.objects.get(name=channel)


def test_probes_double_from_five_seconds_to_a_minute():
    at, gaps = NOW, []
    for _ in range(7):
        following = permits.next_probe(NOW, at)
        gaps.append((following - at).total_seconds())
        at = following
    assert gaps == [5, 5, 10, 20, 40, 60, 60]


@pytest.mark.parametrize(("kinds", "run"), [("u", 1), ("uu", 2), ("us", 0), ("su", 1), ("upu", 1), ("", 0)])
def test_only_outages_in_a_row_count(kinds, run):
    answers = {"u": UNREACHABLE, "s": SENT, "p": PERMANENT}
    assert permits.outages_at_end([answers[kind] for kind in kinds]) == run


@db
def test_five_outages_open_it_and_nothing_more_is_tried(memory, go):
    pks = [promise(f"order:{n}") for n in range(8)]
    memory.always = UNREACHABLE
    assert go(memory) == 0
    assert len(memory.calls) == 5
    assert state().breaker == "open"
    assert state().last_error == "connection refused"
    assert go(memory) == 0
    assert len(memory.calls) == 5
    assert [(message(pk).state, message(pk).attempts) for pk in pks] == [("pending", 0)] * 8


@db
def test_an_answer_in_between_starts_the_count_again(memory, go):
    for n in range(9):
        promise(f"order:{n}")
    memory.answers = [UNREACHABLE] * 4 + [SENT] + [UNREACHABLE] * 4
    go(memory)
    assert (state().breaker, state().failures) == ("closed", 4)


@db
def test_one_probe_at_a_time_and_an_answer_closes_it(memory, go):
    for n in range(9):
        promise(f"order:{n}")
    memory.always = UNREACHABLE
    go(memory)
    ChannelState.objects.update(probe_at=database_now())
    assert go(memory) == 0
    assert len(memory.calls) == 6
    assert state().probe_at > database_now()
    assert go(memory) == 0
    assert len(memory.calls) == 6
    memory.always = None
    ChannelState.objects.update(probe_at=database_now())
    assert go(memory) == 1
    assert (state().breaker, state().failures, state().probe_at) == ("closed", 0, None)
    OutboxMessage.objects.filter(state="pending").update(available_at=database_now())
    assert go(memory) == 8


@db
def test_outages_of_stragglers_do_not_open_it_anew(memory):
    """The wait for the next probe doubles from when it was opened."""
    now, later = database_now(), database_now() + timedelta(minutes=10)
    ChannelState.objects.update(breaker="open", failures=5, opened_at=now, probe_at=later)
    assert permits.note_outcomes("memory", [UNREACHABLE], now + timedelta(seconds=1), troubled=True)
    assert (state().failures, state().opened_at, state().probe_at) == (6, now, later)


@db
def test_of_two_that_read_the_same_row_one_gets_the_probe(memory, monkeypatch):
    now = database_now()
    ChannelState.objects.update(breaker="open", opened_at=now, probe_at=now)
    row = list(permits._read_row(channel="memory", locked=False))
    monkeypatch.setattr(permits, "_read_row", lambda **_: row)
    assert [permits.permit("memory", 0, 10, now).most for _ in range(2)] == [1, 0]


@db
def test_the_cdc_path_never_probes(memory, go):
    pk = promise()
    ChannelState.objects.update(breaker="open", opened_at=database_now(), probe_at=database_now())
    before = state().probe_at
    assert go(memory, ids=[pk], path="cdc") == 0
    assert state().probe_at == before


@db
def test_a_whole_batch_that_found_nobody_is_one_outage(install, go):
    memory = install(Scripted(acknowledges="batch"))
    for n in range(50):
        promise(f"order:{n}")
    memory.always = UNREACHABLE
    go(memory)
    assert (state().breaker, state().failures) == ("closed", 1)


@db
def test_half_an_hour_without_the_provider_costs_nobody_an_attempt(install, go):
    """167 events a second for 30 minutes, the clock 60 times as fast; afterwards out at the provider's rate."""
    memory = install(Scripted(acknowledges="each", window=1))
    memory.always = UNREACHABLE
    total = 0
    for minute in range(30):
        for n in range(17):
            promise(f"order:{minute}-{n}")
            total += 1
        go(memory)
        back = timedelta(minutes=1)
        for row in ChannelState.objects.all():
            if row.breaker == "open":
                ChannelState.objects.filter(pk=row.pk).update(
                    probe_at=row.probe_at - back, opened_at=row.opened_at - back
                )
    assert len(memory.calls) < 60
    assert states() == {"pending": total}
    assert not OutboxMessage.objects.exclude(attempts=0).exists()
    memory.always = None
    OutboxMessage.objects.update(available_at=database_now())
    ChannelState.objects.update(probe_at=database_now())
    while go(memory):
        pass
    assert states() == {"sent": total}
    assert not OutboxMessage.objects.exclude(attempts=1).exists()
    assert not memory.repeats


@db
@pytest.mark.parametrize("per_second", [2.0, 50.0, 1000.0])
def test_never_above_the_rate(per_second):
    tokens, since, taken = 0.0, None, 0
    for step in range(2000):
        now = NOW + timedelta(milliseconds=7 * step)
        tokens = permits.refilled_tokens(tokens, since, now, per_second)
        n = min(int(tokens), step % 5)
        tokens, since, taken = tokens - n, now, taken + n
        assert taken <= permits.capacity(per_second) + per_second * 0.007 * step + 1e-6


def test_a_bucket_has_a_rim_and_a_bottom():
    """An hour without mails earns no burst; a worker that read the clock before another one loses no tokens."""
    hour = timedelta(hours=1)
    assert permits.refilled_tokens(0.5, NOW, NOW + hour, 100.0) == permits.capacity(100.0) == 10
    assert permits.refilled_tokens(0.5, NOW + hour, NOW, 100.0) == 0.5


@db
def test_a_rate_limits_what_is_claimed(install, go):
    memory = install(Scripted(rate=0.1))
    for n in range(9):
        promise(f"order:{n}")
    assert [go(memory) for _ in range(3)] == [1, 0, 0]
    ChannelState.objects.update(tokens_at=database_now() - timedelta(seconds=11))
    assert [go(memory) for _ in range(3)] == [1, 0, 0]


@db
def test_tokens_of_messages_that_were_not_tried_come_back(install, go):
    memory = install(Scripted(rate=30.0))
    for _ in range(3):
        promise("order:1")
    memory.answers = [Outcome("transient", "later", least_wait=60)]
    assert go(memory) == 0
    assert state().tokens == pytest.approx(2, abs=0.9)


@db
def test_a_paused_channel_sends_nothing_until_it_is_resumed(memory, go):
    promise()
    assert permits.pause("memory", ME, "maintenance")
    assert not permits.pause("memory", ME, "again")
    assert go(memory) == 0
    assert not memory.calls
    assert permits.resume("memory", ME, "done")
    assert not permits.resume("memory", ME, "again")
    assert go(memory) == 1
    assert sorted(OperatorAction.objects.values_list("verb", flat=True)) == ["pause", "resume"]


@db
def test_a_channel_that_was_told_to_wait_waits(memory, go):
    promise()
    now = database_now()
    permits.wait("memory", 30, now)
    assert (go(memory), memory.calls) == (0, [])
    assert claim(memory, "poll", 10).look_again == now + timedelta(seconds=30)
    ChannelState.objects.update(wait_until=now)
    assert go(memory) == 1


@db
@pytest.mark.parametrize(("told", "waits"), [((60, 5), 60), ((5, 60), 60), ((5, 5), 5)])
def test_the_longest_wait_counts(memory, told, waits):
    for seconds in told:
        permits.wait("memory", seconds, NOW)
    assert state().wait_until == NOW + timedelta(seconds=waits)


@db
def test_a_shorter_wait_undoes_no_longer_one_that_came_in_between(memory):
    """Another worker is told to wait for an hour while this one is about to write down five seconds."""
    told = []

    def longer_first(run, sql, *rest):
        if sql.startswith("UPDATE") and not told:
            told.append(True)
            permits.wait("memory", 3600, NOW)
        return run(sql, *rest)

    with connection.execute_wrapper(longer_first):
        permits.wait("memory", 5, NOW)
    assert told
    assert state().wait_until == NOW + timedelta(hours=1)


@db
def test_a_resumed_channel_sends_at_once(memory, go):
    """Neither an open breaker nor a wait of before stands in the way of what a person has mended."""
    promise()
    now = database_now()
    permits.wait("memory", 3600, now)
    later = now + timedelta(minutes=1)
    ChannelState.objects.update(breaker="open", failures=7, opened_at=now, probe_at=later)
    permits.pause("memory", ME, "maintenance")
    assert go(memory) == 0
    permits.resume("memory", ME, "done")
    assert (state().breaker, state().failures, state().probe_at, state().wait_until) == ("closed", 0, None, None)
    assert go(memory) == 1


@db
def test_ensure_makes_each_row_once(memory):
    for names in itertools.permutations(["memory", "kafka"]):
        permits.ensure(names)
    assert ChannelState.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_claims_that_find_no_channel_make_it_once(install):
    memory = install(Scripted(rate=20.0))  # with a rate a claim locks the row, made by itself or by another
    race(*[lambda: claim(memory, "poll", 1) for _ in range(4)])
    assert ChannelState.objects.count() == 1


@db
@pytest.mark.parametrize("by", [Operator("ann"), permits.ITSELF])
def test_the_log_says_why_a_channel_paused_itself_and_not_what_a_person_wrote(
    memory, caplog, django_capture_on_commit_callbacks, by
):
    with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
        assert permits.pause("memory", by, "Ada Smith complained")
    (line,) = (line for line in lines(caplog) if line["event"] == "channel_paused")
    assert (line["by"], line["reason"]) == (by.name, "Ada Smith complained" if by is permits.ITSELF else "")
