"""Small crash runs of the outbox on this database, and a relay that is stopped in the middle of a mail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection, transaction

from config.database.clock import database_now
from notifications.orders import changes
from outbox.models import DeliveryAttempt, OutboxMessage
from outbox.workers.start import recover_claims
from tests.crash.mail.flow import resume
from tests.crash.mail.run import TIMINGS, MailRun, Plan
from tests.crash.platform import Platform
from tests.crash.wire import wait_for
from tests.notifications.smtp_sink import Sink
from tests.processes.conftest import assert_holds, database_url

LEASE = 5


@pytest.fixture
def platform(transactional_db: None, tmp_path: Path) -> Iterator[Platform]:
    environment = {**TIMINGS, "OUTBOX_LEASE_SECONDS": str(LEASE), "DATABASE_URL": database_url()}
    with Platform(tmp_path, environment) as found:
        yield found


@pytest.mark.parametrize("place", ["smtp", "keys"])
def test_killed_relays_lose_no_mail_and_repeat_none_unmarked(platform, place):
    relays = 1 if connection.vendor == "sqlite" else 2
    plan = Plan(240, 1, seed=20_261_121, place=place, relays=relays, trouble=0.03, rate=40, delay=1.0)
    assert_holds(MailRun(platform, plan, resume).go())


def paid_orders(count: int) -> list[str]:
    """The aggregates, in the order of their messages."""
    made = []
    for number in range(count):
        with transaction.atomic():
            order = changes.create(f"ada{number}@example.com", 1000, "EUR", database_now())
            changes.carry_out(changes.plan(order.pk, "pay"))
        made.append(order.aggregate)
    return made


def rows() -> list[tuple]:
    columns = ("aggregate", "state", "attempts", "times_uncertain", "sent_at", "receipt", "lease_token")
    return list(OutboxMessage.objects.order_by("id").values_list(*columns))


def test_a_stopped_relay_that_wakes_too_late_changes_nothing_and_is_counted(platform):
    """It holds five messages and is in the middle of the first, accepted one when its lease runs out."""
    waiting = {"OUTBOX_RECONCILE_SECONDS": "3600", "EMAIL_TIMEOUT_SECONDS": "2"}
    with Sink() as sink:
        platform.environment |= {"EMAIL_URL": f"smtp://127.0.0.1:{sink.port}", "EMAIL_CHANNEL": "smtp", **waiting}
        sink.script.append("dot:slow:1")
        first, *others = paid_orders(5)
        zombie = platform.start("relay_outbox", "--channel", "email")
        wait_for(lambda: sink.accepted, 90, "the first mail to be accepted")
        zombie.freeze()
        wait_for(lambda: zombie.frozen, 10, "the relay to stand still")
        assert {row[1] for row in rows()} == {"processing"}
        wait_for(lambda: recover_claims()["outbox_outboxmessage"], 5 * LEASE, "the lease to run out")
        platform.manage("relay_outbox", "--channel", "email", "--once")
        before = rows()
        assert [row[:2] for row in before] == [(first, "uncertain"), *((name, "sent") for name in others)]
        zombie.thaw()
        wait_for(lambda: zombie.count("fence_lost_total") >= 5, 60, "five lost rows to be counted")
        assert zombie.stop() == 0
        assert rows() == before
        assert set(sink.counts().values()) == {1}
        assert DeliveryAttempt.objects.filter(outcome="lost").count() == 1
