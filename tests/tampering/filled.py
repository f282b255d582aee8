"""A database with rows in every table, made by the flows' own functions, in which everything adds up."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User

from buffer.ledger.stocktake import adjust_stock
from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import topic_name
from config.processes.alive import identity_of
from notifications.models import Order
from notifications.orders import changes
from outbox.accounts.models import SavedView, ViewerZone
from outbox.audit_log.hash_chain import seal
from outbox.audit_log.models import ActionSubject
from outbox.bookkeeping.models import JobLease, Watermark
from outbox.channels.handlers import Outcome, handlers
from outbox.delivery import levers
from outbox.delivery.claim import claim
from outbox.letters.edits import requeue_copy, text_of
from outbox.letters.models import DeadLetter
from outbox.models import Incident, Notice, OutboxMessage, SignIn, Subscription
from outbox.processes.heartbeat import Heartbeat
from outbox.processes.models import WorkerProcess
from outbox.workers.change_capture import CDC_GROUP
from tests.buffer.ledger.conftest import MERCHANTS, PAID, VARIANTS, moved, paid, record, stocks, write
from tests.conftest import TOPIC_ID
from tests.screenshots import letters, others
from tests.throttler.admin.conftest import add_customer, add_owner, add_periods
from tests.throttler.worked import Worked
from throttler.models import OutputDivision

ME = Operator("tester")
MAILS = 20


def fill() -> None:
    """Beside what the buffer's own fixture has left."""
    User.objects.create_superuser("ito", password="pictures", first_name="S. Ito")
    _stock()
    _notifications()
    letters._mails(MAILS)
    letters._notices(9)
    letters.people_work()
    letters.batches()
    _orders()
    others._news()
    others._tokens()
    others._replays()
    _copy()
    _told()
    _idle_rows()
    seal(database_now())


def _stock() -> None:
    """Through the ledger's own handler: movements, a repeat, letters, a mirrored merchant and variant, a stocktake."""
    stocks(A=10, B=0)
    write(
        record(paid("S1", A=1)),
        record(moved("T1", "A", "B", 2)),
        *[record((PAID, b"{%d" % number)) for number in range(3)],
        record(paid("S1", A=1)),
        record((MERCHANTS, {"op": "c", "after": {"id": "M1"}})),
        record((VARIANTS, {"op": "c", "after": {"id": "V1", "merchant_id": "M1"}})),
    )
    adjust_stock("B", counted=1, adjustment_id="take", operator=ME, reason="counted")


def _notifications() -> None:
    Worked()
    add_customer("acme")
    add_owner(partitions=(0,))
    add_periods("acme", hours=0.2)
    OutputDivision.objects.create(version=3)


def _orders() -> None:
    """An order in each status, a message in each state."""
    email = handlers()["email"]
    _order("cancel")
    _order("pay", 500)
    _order("pay", 2000)
    letters._relay([])
    levers.resend(OutboxMessage.objects.filter(state="sent").latest("pk").pk, ME, "it never came")
    _order()
    _order("pay")
    letters._relay([Outcome("ambiguous", "no answer")])
    late = _order("pay")
    OutboxMessage.objects.filter(aggregate=late.aggregate).update(expires_at=database_now() - timedelta(seconds=1))
    _order("pay")
    claim(email, "poll", 3)
    levers.cancel([OutboxMessage.objects.get(aggregate=_order("pay").aggregate).pk], ME, "asked")
    _order("pay")


def _order(act: Any = "", *refunds: int) -> Order:
    order = changes.create("eve@example.com", 2000, "EUR", database_now())
    if act:
        changes.change(order.pk, act)
    for amount in refunds:
        changes.change(order.pk, "refund", amount)
    return order


def _copy() -> None:
    """A letter that went back with other bytes."""
    write(record(paid("S7", A=-1)))
    letter = DeadLetter.objects.filter(source="ledger").latest("pk")
    text = text_of(letter).replace("-1", "1")
    requeue_copy(letter.pk, text, 0, ME, "the shop said so")


def _told() -> None:
    """A subscription that was told of something, and is told of its end."""
    now = database_now()
    row = Subscription.objects.create(name="ops", address="sealed", shown="Slack", kinds=["worker"], created_at=now)
    incident = Incident.objects.create(
        kind="worker", key="7", title="Dead", url="/", urgency="now", opened_at=now, over_at=now
    )
    for phase in ("opened", "resolved"):
        Notice.objects.create(subscription=row, incident=incident, episode=1, phase=phase, due_at=now, created_at=now)


def _idle_rows() -> None:
    """What a beat and a connector leave behind."""
    now = database_now()
    ActionSubject.objects.create(subject_type="outbox.deadletter", subject_id="7", action=1)
    JobLease.objects.create(job="sweep", until=now)
    ViewerZone.objects.create(person=7, zone="Europe/Berlin")
    SignIn.begin(7, {}, now)
    SavedView.objects.create(
        owner_number=7, owner_name="me", list="outbox.deadletter", name="n", query="", created_at=now
    )
    Heartbeat(identity_of("relay_outbox")).report(now)
    WorkerProcess.objects.update(round_at=None, moved=5)  # whatever other tests did in this process
    Watermark.objects.create(
        group=topic_name(CDC_GROUP), topic=topic_name(settings.OUTBOX_CDC_TOPIC), partition=0,
        topic_id=TOPIC_ID, next_offset=9, end_offset=9, caught_up_at=now, updated_at=now,
    )  # fmt: skip
