"""The relay of the client: one sends, in order; who is frozen, late or refused neither loses nor overtakes anything."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin import AdminSite
from django.db import OperationalError, connection
from django.test import RequestFactory
from django.utils import timezone

from tests.client.conftest import Scripted, promise
from tests.frozen import Point, frozen_at

NEVER = threading.Event()


@pytest.fixture
def relay(promises: Any) -> Any:
    from spillway_client import relay

    return relay


def options(**given: Any) -> Any:
    from spillway_client.options import Options

    return Options(**given)


def outcome(state: str) -> Any:
    from spillway_client.producer import Outcome

    return Outcome(state, f"it was {state}")


class Impatient(threading.Event):
    """Says at once that the time is over."""

    def wait(self, timeout: float | None = None) -> bool:
        return self.is_set()


def run(relay: Any, broker: Scripted, **given: Any) -> Any:
    """A relay that ends when nothing is left to send."""
    found = relay.Relay(options(**given), broker, Impatient())
    found.run(until_idle=0)
    return found


def states(promises: Any) -> list[str]:
    return list(promises.order_by("id").values_list("state", flat=True))


def test_all_are_sent_those_of_one_aggregate_one_after_the_other(relay, promises):
    pks = [promise(number, f"invoice:{number % 2}") for number in range(6)]
    broker = Scripted()
    assert run(relay, broker, BATCH=4).tally == {"sent": 6}
    assert (broker.log, broker.waves) == (pks, [2, 2, 2])
    assert states(promises) == ["sent"] * 6
    assert set(promises.values_list("attempts", "lease_until")) == {(1, 0.0)}


def test_behind_one_that_failed_its_aggregate_waits_and_no_other(relay, promises):
    first, behind, other = promise(1, "a"), promise(2, "a"), promise(3, "b")
    broker = Scripted(script={first: outcome("failed")})
    claimed = relay.claim(options())
    assert relay.deliver(claimed, broker, 1, NEVER) == ({"failed": 1, "sent": 1}, "it was failed")
    assert broker.log == [other]
    broker.script.clear()
    run(relay, broker)
    assert broker.log == [other, first, behind]


def test_one_that_is_refused_for_good_says_why_and_holds_nobody_up(relay, promises, caplog):
    first, behind = promise(1, "a"), promise(2, "a")
    broker = Scripted(script={first: outcome("refused")})
    assert run(relay, broker).tally == {"refused": 1, "sent": 1}
    assert broker.log == [behind]
    row = promises.get(pk=first)
    assert (row.state, row.error) == ("refused", "it was refused")
    assert f"promise {first} is refused for good: it was refused" in caplog.text
    broker.script.clear()
    assert promises.promise_again() == 1
    run(relay, broker)
    assert broker.log == [behind, first]


def test_a_second_relay_stands_by_until_the_lease_is_over(relay, promises):
    promise(1)
    first = relay.claim(options())
    promise(2)
    assert relay.claim(options()).promises == []
    promises.update(lease_until=0)
    second = relay.claim(options())
    assert (len(first.promises), len(second.promises)) == (1, 2)


def test_who_lost_the_lease_sends_and_notes_nothing(relay, promises, caplog):
    pk = promise(1)
    frozen = relay.claim(options())
    promises.update(lease_until=0)
    heir = relay.claim(options())
    relay.note(frozen, frozen.promises, [outcome("sent")])
    relay.note(frozen, frozen.promises, [outcome("refused")])
    assert states(promises) == ["pending"]
    assert "1 were sent after their lease" in caplog.text
    frozen.until = 0
    broker = Scripted()
    assert relay.deliver(frozen, broker, 1, NEVER) == ({}, "")
    assert broker.log == []
    assert promises.held_by(heir.token).get().lease_until > 0
    relay.deliver(heir, broker, 1, NEVER)
    assert (broker.log, states(promises), promises.get().attempts) == ([pk], ["sent"], 2)


def test_who_is_told_to_stop_gives_back_what_it_claimed(relay, promises):
    promise(1)
    stop = threading.Event()
    stop.set()
    relay.deliver(relay.claim(options()), Scripted(), 1, stop)
    assert len(relay.claim(options()).promises) == 1


@pytest.mark.skipif(connection.vendor == "sqlite", reason="whoever is frozen in a transaction stops all others")
def test_of_two_that_claim_at_any_moment_one_has_it(relay, promises):
    for _ in range(3):
        promise(promises.count())

    def both(at: Point | None) -> list[Point]:
        claims = []
        promises.update(lease_until=0)
        one = lambda: claims.append(relay.claim(options(BATCH=2)))  # noqa: E731
        passed = frozen_at(at, one, one, [relay.__file__])
        assert sorted(len(claimed.promises) for claimed in claims) == ([2] if at is None else [0, 2]), at
        return passed

    points = both(None)
    assert len(points) > 8
    for point in points:
        both(point)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="whoever is frozen in a transaction stops all others")
def test_frozen_at_any_line_a_relay_repeats_and_overtakes_nothing(relay, promises):
    """While it is frozen its lease ends, another relay sends all of it, and more of the same aggregate."""

    def frozen_once(at: Point | None) -> list[Point]:
        promises.all().delete()
        pks = [promise(1, "a"), promise(2, "a"), promise(3, "b")]
        broker = Scripted()

        def others() -> None:
            claimed.until = 0
            promises.update(lease_until=0)
            run(relay, broker)
            pks.append(promise(4, "a"))
            run(relay, broker)

        claimed = relay.claim(options())
        passed = frozen_at(at, lambda: relay.deliver(claimed, broker, 1, NEVER), others, [relay.__file__])
        run(relay, broker)
        firsts = list(dict.fromkeys(broker.log))
        assert [pk for pk in firsts if pk != pks[2]] == [pk for pk in pks if pk != pks[2]], at
        assert sorted(firsts) == sorted(pks), at
        assert set(states(promises)) == {"sent"}, at
        for pk in pks:
            assert broker.log.count(pk) <= promises.get(pk=pk).attempts, at
        return passed

    for point in frozen_once(None):
        frozen_once(point)


def test_a_relay_that_ends_by_itself_says_what_it_could_not_do(relay, promises):
    pk = promise(1)
    with pytest.raises(relay.RelayStuck, match="it was failed"):
        run(relay, Scripted(script={pk: outcome("failed")}))
    assert promises.get().attempts == relay.TRIES


def test_a_database_that_is_away_is_waited_for(relay, promises, monkeypatch):
    promise(1)
    claim, failures = relay.claim, [OperationalError("the server\nhas gone away")] * 2

    def away(found: Any) -> Any:
        if failures:
            raise failures.pop()
        return claim(found)

    monkeypatch.setattr(relay, "claim", away)
    run(relay, Scripted())
    assert states(promises) == ["sent"]


def test_what_has_left_is_noted_although_a_deadlock_undid_it_twice(relay, promises, monkeypatch):
    promise(1)
    claimed, failures, update = relay.claim(options()), [OperationalError("deadlock")] * 2, relay.PromiseQuerySet.update

    def deadlocked(rows: Any, **values: Any) -> int:
        if failures:
            raise failures.pop()
        return update(rows, **values)

    monkeypatch.setattr(relay.PromiseQuerySet, "update", deadlocked)
    relay.deliver(claimed, Scripted(), 1, NEVER)
    assert states(promises) == ["sent"]


def test_what_was_sent_is_kept_for_its_days_and_what_was_not_for_ever(relay, promises):
    for state in ("pending", "sent", "refused", "captured"):
        promises.filter(pk=promise(promises.count())).update(state=state, sent_at=timezone.now())
    assert relay.sweep(options(RETENTION_DAYS=1)) == 0
    promises.update(created_at=timezone.now() - timedelta(days=2))
    assert relay.sweep(options(RETENTION_DAYS=1)) == 1  # that was captured; the other left today
    promises.update(sent_at=timezone.now() - timedelta(days=2))
    assert relay.sweep(options(RETENTION_DAYS=1)) == 1
    assert states(promises) == ["pending", "refused"]


def test_celery_sends_what_is_pending(relay, promises, monkeypatch):
    from spillway_client.tasks import relay_promises

    promise(1)
    broker = Scripted()
    monkeypatch.setattr(relay, "Producer", lambda _options: broker)
    assert relay_promises.name == "spillway_client.relay_promises"
    assert (relay_promises(), states(promises)) == (1, ["sent"])


def test_the_admin_shows_promises_without_their_payload(promises, admin_user):
    from spillway_client.admin import PromiseAdmin
    from spillway_client.models import Promise

    request = RequestFactory().get("/")
    request.user = admin_user
    pages = PromiseAdmin(Promise, AdminSite())
    promise(1, payload={"to": "ada@example.com", "subject": "s", "text": "a secret"})
    ((_, shown),) = pages.get_fieldsets(request, promises.get())
    assert {"aggregate", "error"} <= set(shown["fields"])
    assert "payload" not in shown["fields"]
    assert not pages.has_add_permission(request)
    assert "promise_again" in pages.get_actions(request)
