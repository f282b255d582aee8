"""Claims what a subscription is due, sends it outside of any transaction, settles; and the worker `notify_people`."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from django.db import connections, transaction
from django.db.models import F, Q

from config.database.clock import database_now
from config.processes import worker
from config.redelivery import Refusal
from config.telemetry import metrics
from config.telemetry.activity import activity
from config.telemetry.logs import log
from outbox.alerts.addresses import TryResult, send, unseal
from outbox.alerts.matters import look, outside_quiet_hours, window
from outbox.alerts.models import LEASE, Matter, Notice, Subscription
from outbox.alerts.words import ENDS, headline, is_over, words_of
from outbox.bookkeeping.leases import only_one

Phase, State = Notice.Phase, Notice.State
LOOK = 10.0  # seconds between two looks at what needs people
AT_ONCE = 4  # subscriptions that are served side by side: one that hangs delays no other
MOST = 200  # notices in one message
FIRST_WAIT, LONGEST_WAIT = 10.0, 600.0  # seconds after a failure, doubled each time
PATIENCE = timedelta(days=1)  # then a notice is given up
PAUSE = 1.0


@dataclass(frozen=True)
class Errand:
    """What one try has in hand: notices of one subscription, under its lease."""

    subscription: Subscription
    token: uuid.UUID
    notices: Sequence[Notice]

    @property
    def ids(self) -> list[int]:
        return [notice.pk for notice in self.notices]


# -- Errand, send, settle -------------------------------------------------------------------------------------
def serve(pk: int) -> bool:
    """Tell one subscription what is due; whether there was anything."""
    claim = claim_notices(pk, database_now())
    if claim is None:
        return False
    outcome = _try(claim)
    if outcome is None:
        log.info("notice_overtaken", subscription=pk)
        release(claim)
    else:
        settle(claim, outcome, database_now())
    return True


def _try(claim: Errand) -> TryResult | None:
    try:
        address = unseal(claim.subscription.address)
    except Refusal as refusal:
        return TryResult(sent=False, fault=str(refusal))
    words = words_of(claim.notices, claim.subscription, database_now())
    return send(address, words, about_to=lambda: begin(claim))


def claim_notices(pk: int, now: datetime) -> Errand | None:
    """Lease the subscription, and read what is due; None when another process was faster, or nothing is left to say."""
    token = uuid.uuid4()
    with transaction.atomic():
        if not Subscription.objects.lease([pk], token, now + LEASE, now):
            return None
        subscription = Subscription.objects.get(pk=pk)
        due = Notice.objects.filter(subscription=pk).due(now).select_related("matter").order_by("created_at", "pk")
        tests = list(due.filter(phase=Phase.TEST)[:1])
        notices = tests or list(due[:MOST])
        # An end that came back before anybody heard of it is no news.
        untrue = [one.pk for one in notices if one.phase in ENDS and one.matter and not is_over(one)]
        Notice.objects.filter(pk__in=untrue).delete()
        notices = [one for one in notices if one.pk not in untrue]
        if not notices:
            Subscription.objects.release(token)
            return None
    return Errand(subscription, token, notices)


def begin(claim: Errand) -> bool:
    """Write down that these notices are about to be sent: from now on nobody knows without an answer. False: not ours any more."""
    now = database_now()
    with transaction.atomic():
        if not Subscription.objects.held_by(claim.token).select_for_update().exists():
            return False
        taken = Notice.objects.filter(pk__in=claim.ids).due(now)
        changed = taken.update(state=State.SENDING, token=claim.token, tried_at=now, tries=F("tries") + 1)
        if changed != len(claim.ids):
            transaction.set_rollback(True)
            return False
    return True


def release(claim: Errand) -> None:
    """Nothing was sent: whoever comes next may try."""
    Subscription.objects.release(claim.token)


def settle(claim: Errand, outcome: TryResult, now: datetime) -> None:
    """Write down what came of it; what was decided meanwhile, because we took too long, stays as it is."""
    test = all(notice.phase == Phase.TEST for notice in claim.notices)
    with transaction.atomic():
        if outcome.sent:
            changed = _sent(claim, now)
            changes = {"sent_at": now, "failures": 0, "failing_since": None, "next_try_at": None, "error": ""}
        else:
            changed = _not_sent(claim, outcome, now, test)
            changes = _failure(claim.subscription, outcome, now)
        held = Subscription.objects.release(claim.token, **changes)
    if not held or changed != len(claim.ids):
        metrics.FENCE_LOST.inc(len(claim.ids) - changed)
        log.warning("notice_fence_lost", subscription=claim.subscription.pk, notices=len(claim.ids) - changed)
    metrics.NOTICES.labels("sent" if outcome.sent else "unsure" if outcome.unsure else "failed").inc(len(claim.ids))
    if not outcome.sent:
        log.warning("notice_not_sent", subscription=claim.subscription.pk, unsure=outcome.unsure, why=outcome.fault)


def _sent(claim: Errand, now: datetime) -> int:
    changed = 0
    for notice in claim.notices:
        changed += Notice.objects.taken_by(claim.token).filter(pk=notice.pk).update(
            state=State.SENT, sent_at=now, error="", title=headline(notice)[:300],
            said_over=notice.phase not in ENDS and is_over(notice),
        )  # fmt: skip
    return changed


def _not_sent(claim: Errand, outcome: TryResult, now: datetime, test: bool) -> int:
    """Notices that did not get as far as `begin` are due as before; the others wait, those that may have arrived for a window."""
    changed = 0
    fault = outcome.fault[:300]
    for notice in claim.notices:
        mine = Notice.objects.filter(Q(state=State.SENDING, token=claim.token) | Q(state=notice.state), pk=notice.pk)
        if test or now - notice.created_at > PATIENCE:
            changed += mine.update(state=State.GIVEN_UP, error=fault)
        elif outcome.unsure:
            late = outside_quiet_hours(claim.subscription, _urgency(notice.matter), now + window())
            changed += mine.update(state=State.UNSURE, repeat=True, due_at=late, error=fault)
        else:
            late = outside_quiet_hours(claim.subscription, _urgency(notice.matter), now)
            state = State.UNSURE if notice.repeat else State.WAITING
            changed += mine.update(state=state, due_at=late, error=fault)
    return changed


def _urgency(matter: Matter | None) -> str:
    return matter.urgency if matter else "now"


def _failure(subscription: Subscription, outcome: TryResult, now: datetime) -> dict[str, object]:
    pause = min(FIRST_WAIT * 2 ** min(subscription.failures, 10), LONGEST_WAIT)
    return {
        "failures": F("failures") + 1,
        "failing_since": subscription.failing_since or now,
        "next_try_at": now + timedelta(seconds=pause),
        "error": outcome.fault[:300],
    }


# -- The worker ----------------------------------------------------------------------------------------------
@dataclass
class NoticeSender:
    """Looks every ten seconds at what needs people, and serves several subscriptions side by side."""

    patient: bool = False  # wait for what is on its way before anything else, so that nothing to do means nothing
    looked_at: float = 0.0
    going: dict[int, Future[bool]] = field(default_factory=dict)  # by subscription
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_ONCE, "notice"))

    def tick(self) -> int:
        """Look if it is time, begin what can be begun; how much was done."""
        done = self._look_if_time()
        for pk in Subscription.objects.with_due_notices(database_now()).values_list("pk", flat=True)[:MOST]:
            if pk not in self.going:
                self.going[pk] = self.pool.submit(partial(_serve_in_thread, pk))
        if self.going:
            wait(self.going.values(), timeout=None if self.patient else PAUSE, return_when=FIRST_COMPLETED)
        return done + self._reap()

    def _look_if_time(self) -> int:
        if self.looked_at and time.monotonic() - self.looked_at < LOOK:
            return 0
        with only_one("notify_people", 30) as mine:
            done = look(database_now()) if mine else 0
        self.looked_at = time.monotonic()
        return done

    def _reap(self) -> int:
        over = [pk for pk, future in self.going.items() if future.done()]
        return sum(self.going.pop(pk).result() for pk in over)  # an error of the database is the loop's to wait for

    def close(self) -> None:
        """Let what is on its way end."""
        self.pool.shutdown(wait=True, cancel_futures=True)


def _serve_in_thread(pk: int) -> bool:
    try:
        return serve(pk)
    finally:
        connections.close_all()


def notify_people(stop: threading.Event, *, once: bool = False, until_idle: float | None = None) -> None:
    """Tell people until `stop`."""
    activity.hold("notify_people", ["notices"], "notices")
    sender = NoticeSender(patient=once or until_idle is not None)
    try:
        worker.run(sender.tick, stop, pause=lambda: PAUSE, once=once, until_idle=until_idle)
    finally:
        sender.close()
