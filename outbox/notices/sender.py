"""Claims what a subscription is due, sends it outside of any transaction, settles; and the worker `notify_people`.

The steps are those of outbox/delivery, and bear the same names. They are written twice on purpose: notices must leave
when the outbox does not.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from django.db import connections, transaction
from django.db.models import F, Q

from config.database.clock import database_now
from config.database.retry import full_jitter
from config.letters import Refusal
from config.processes import worker
from config.processes.worker import until_it_stands
from config.telemetry import metrics
from config.telemetry.activity import activity
from config.telemetry.logs import RowIds, log, log_committed
from outbox.bookkeeping.leases import only_one
from outbox.notices.addresses import NoticeOutcome, Words, send, unseal
from outbox.notices.incidents import look, outside_quiet_hours, window
from outbox.notices.models import LEASE, Incident, Notice, Subscription
from outbox.notices.words import ENDS, headline, is_over, words_of

Phase, State = Notice.Phase, Notice.State
Result = TypeVar("Result")

# -- Claim, send, settle -------------------------------------------------------------------------------------
LOOK = 10.0  # seconds between two looks at what needs people
AT_ONCE = 4  # subscriptions that are delivered to side by side: one that hangs delays no other
# Of these at most so many that failed last time, and so many of people and not of teams; of one person one.
FAILING_AT_ONCE, PERSONAL_AT_ONCE = 2, 3
MOST = 200  # notices in one message
FIRST_WAIT, LONGEST_WAIT = 20.0, 600.0  # seconds after a failure, at most; doubled each time
PATIENCE = timedelta(days=1)  # then a notice is given up
PAUSE = 1.0
MOST_RERUNS = 20  # of a transaction of which no answer comes: some seconds, far less than a lease


@dataclass(frozen=True)
class NoticeClaim:
    """What one try has in hand: notices of one subscription, under its lease."""

    subscription: Subscription
    token: uuid.UUID
    notices: Sequence[Notice]

    @property
    def ids(self) -> list[int]:
        return [notice.pk for notice in self.notices]

    @property
    def first(self) -> NoticeClaim:
        """The same with one notice: an incident is about one incident."""
        return replace(self, notices=self.notices[:1])


def deliver(pk: int) -> bool:
    """Tell one subscription what is due; whether there was anything."""
    claimed = claim(pk, database_now())
    if claimed is None:
        return False
    held = claimed  # what of it is told in this turn

    def about_to(keeps_incidents: bool) -> Words | None:
        nonlocal held
        held = held.first if keeps_incidents else held
        words = words_of(held.notices, held.subscription, database_now())
        return words if open_attempts(held) else None

    try:
        outcome = send(unseal(held.subscription.address), about_to)
    except Refusal as refusal:
        outcome = NoticeOutcome(ok=False, error=str(refusal))
    if outcome is None:
        log.info("notice_overtaken", subscription=pk)
        release(held)
    else:
        settle(held, outcome, database_now())
    return True


def _in_one_transaction(unit: Callable[[], Result]) -> Result:
    """Where its answer is lost it runs again, and finds under its own token what it has done already: nobody waits for a
    lease of one's own, and nothing is doubtful that was not sent."""
    return until_it_stands(unit, "notify_people", lambda failures, _remedy: failures <= MOST_RERUNS)


def claim(pk: int, now: datetime) -> NoticeClaim | None:
    """Lease the subscription, and read what is due; None when another process was faster, or nothing is left to say."""
    token = uuid.uuid4()
    return _in_one_transaction(lambda: _claim(pk, token, now))


def _claim(pk: int, token: uuid.UUID, now: datetime) -> NoticeClaim | None:
    with transaction.atomic():
        leased = Subscription.objects.lease([pk], token, now + LEASE, now)
        if not leased and not Subscription.objects.held_by(token).exists():
            return None
        subscription = Subscription.objects.get(pk=pk)
        due = Notice.objects.filter(subscription=pk).due(now).select_related("incident").most_urgent_first()
        tests = list(due.filter(phase=Phase.TEST)[:1])
        notices = tests or list(due[:MOST])
        untrue = [notice for notice in notices if notice.phase in ENDS and notice.incident and not is_over(notice)]
        _withdraw(pk, untrue)
        notices = [notice for notice in notices if notice not in untrue]
        if not notices:
            Subscription.objects.release(token)
            return None
    return NoticeClaim(subscription, token, notices)


def _withdraw(subscription: int, untrue: Sequence[Notice]) -> None:
    """Ends of what came back before anybody heard of it are no news; of one that may have arrived the return is told."""
    heard = [notice.pk for notice in untrue if notice.repeat]
    Notice.objects.filter(pk__in=heard).update(state=State.GIVEN_UP, error="it came back before anybody answered")
    Notice.objects.filter(pk__in=[notice.pk for notice in untrue if not notice.repeat]).delete()
    if untrue:
        ids = RowIds(untrue, notice_id="pk")
        log_committed("notices_withdrawn", subscription=subscription, notices=len(untrue), ids=ids)


def open_attempts(claim: NoticeClaim) -> bool:
    """Write down that these notices are about to be sent: from now on nobody knows without an answer. False: not ours any more."""
    return _in_one_transaction(lambda: _open_attempts(claim, database_now()))


def _open_attempts(claim: NoticeClaim, now: datetime) -> bool:
    with transaction.atomic():
        if not Subscription.objects.held_by(claim.token).select_for_update().exists():
            return False
        notices = Notice.objects.filter(pk__in=claim.ids)
        if notices.filter(state=State.SENDING, token=claim.token).count() == len(claim.ids):
            return True  # committed already
        changed = notices.due(now).update(state=State.SENDING, token=claim.token, tried_at=now, tries=F("tries") + 1)
        if changed != len(claim.ids):
            transaction.set_rollback(True)
            return False
        _log_states(claim, [(pk, State.SENDING) for pk in claim.ids])
    return True


def release(claim: NoticeClaim) -> None:
    """Nothing was sent: whoever comes next may try."""
    _in_one_transaction(lambda: Subscription.objects.release(claim.token))


def settle(claim: NoticeClaim, outcome: NoticeOutcome, now: datetime) -> None:
    """Write down what came of it; what was decided meanwhile, because we took too long, stays as it is."""
    runs = itertools.count()  # behind the first one: it may have been committed without an answer
    _in_one_transaction(lambda: None if next(runs) and _is_settled(claim) else _settle(claim, outcome, now))


def _is_settled(claim: NoticeClaim) -> bool:
    """Whether a run whose answer was lost has written it down."""
    sending = Notice.objects.filter(pk__in=claim.ids, state=State.SENDING, token=claim.token)
    return not Subscription.objects.held_by(claim.token).exists() and not sending.exists()


def _settle(claim: NoticeClaim, outcome: NoticeOutcome, now: datetime) -> None:
    test = all(notice.phase == Phase.TEST for notice in claim.notices)
    with transaction.atomic():
        if outcome.ok:
            moved = _sent(claim, now)
            changes = {"sent_at": now, "failures": 0, "failing_since": None, "next_try_at": None, "error": ""}
        else:
            moved = _not_sent(claim, outcome, now, test)
            changes = _failure(claim.subscription, outcome, now)
        held = Subscription.objects.release(claim.token, **changes)
        _log_states(claim, moved)
    if not held or len(moved) != len(claim.ids):
        lost = sorted(set(claim.ids) - dict(moved).keys())
        metrics.FENCE_LOST.inc(len(lost))
        ids = RowIds(lost, notice_id=None)
        log.warning("notice_fence_lost", subscription=claim.subscription.pk, notices=len(lost), ids=ids)
    metrics.NOTICES.labels("sent" if outcome.ok else "unsure" if outcome.unsure else "failed").inc(len(claim.ids))
    if not outcome.ok:
        log.warning("notice_not_sent", subscription=claim.subscription.pk, unsure=outcome.unsure, why=outcome.error)


Moved = Sequence[tuple[int, str]]  # notices with their new states


def _log_states(claim: NoticeClaim, moved: Moved) -> None:
    if moved:
        ids = RowIds(moved, notice_id=0, became=1)
        log_committed("notices_moved", subscription=claim.subscription.pk, notices=len(moved), ids=ids)


def _sent(claim: NoticeClaim, now: datetime) -> Moved:
    moved = []
    for notice in claim.notices:
        if Notice.objects.held_by(claim.token).filter(pk=notice.pk).update(
            state=State.SENT, sent_at=now, error="", title=headline(notice)[:300],
            said_over=notice.phase not in ENDS and is_over(notice),
        ):  # fmt: skip
            moved.append((notice.pk, State.SENT))
    return moved


def _not_sent(claim: NoticeClaim, outcome: NoticeOutcome, now: datetime, test: bool) -> Moved:
    """Notices that did not get as far as `open_attempts` are due as before; the others wait, those that may have arrived for a window."""
    moved: list[tuple[int, str]] = []
    for notice in claim.notices:
        mine = Notice.objects.filter(Q(state=State.SENDING, token=claim.token) | Q(state=notice.state), pk=notice.pk)
        changes: dict[str, object] = {}
        if test or now - notice.created_at > PATIENCE:
            state = State.GIVEN_UP
        else:
            pause = window() if outcome.unsure else timedelta()
            state = State.UNSURE if outcome.unsure or notice.repeat else State.WAITING
            changes["due_at"] = outside_quiet_hours(claim.subscription, _urgency(notice.incident), now + pause)
            changes |= {"repeat": True} if outcome.unsure else {}
        if mine.update(state=state, error=outcome.error[:300], **changes):
            moved.append((notice.pk, state))
    return moved


def _urgency(incident: Incident | None) -> str:
    return incident.urgency if incident else "now"


def _failure(subscription: Subscription, outcome: NoticeOutcome, now: datetime) -> dict[str, object]:
    pause = full_jitter(subscription.failures + 1, base=FIRST_WAIT, cap=LONGEST_WAIT)
    return {
        "failures": F("failures") + 1,
        "failing_since": subscription.failing_since or now,
        "next_try_at": now + timedelta(seconds=PAUSE + pause),
        "error": outcome.error[:300],
    }


# -- The worker ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class NoticeDelivery:
    """What a subscription is due, and is being delivered."""

    owner: int | None
    fails: bool
    future: Future[bool]


@dataclass
class NoticeSender:
    """Looks every ten seconds at what needs people, and delivers to several subscriptions side by side."""

    patient: bool = False  # wait for what is on its way before anything else, so that nothing to do means nothing
    looked_at: float = 0.0
    going: dict[int, NoticeDelivery] = field(default_factory=dict)  # by subscription
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(AT_ONCE, "notice"))

    def tick(self) -> int:
        """Look if it is time, begin what can be begun; how much was done."""
        done = self._look_if_time()
        self._fill_threads()
        if self.going:
            wait(
                (delivery.future for delivery in self.going.values()),
                timeout=None if self.patient else PAUSE,
                return_when=FIRST_COMPLETED,
            )
        return done + self._reap()

    def _fill_threads(self) -> None:
        """Begin as many as there are threads for: what cannot wait does not stand behind what was due before it."""
        if len(self.going) == AT_ONCE:
            return
        due = Subscription.objects.with_due_notices(database_now()).exclude(pk__in=self.going)
        for pk, owner, failures in due.values_list("pk", "owner_id", "failures"):
            if self._has_room(owner, failures > 0):
                self.going[pk] = NoticeDelivery(owner, failures > 0, self.pool.submit(partial(_deliver_in_thread, pk)))

    def _has_room(self, owner: int | None, fails: bool) -> bool:
        going = self.going.values()
        if len(going) == AT_ONCE or (fails and sum(delivery.fails for delivery in going) == FAILING_AT_ONCE):
            return False
        owners = [delivery.owner for delivery in going if delivery.owner is not None]
        return owner is None or (owner not in owners and len(owners) < PERSONAL_AT_ONCE)

    def _look_if_time(self) -> int:
        if self.looked_at and time.monotonic() - self.looked_at < LOOK:
            return 0
        with only_one("notify_people", 30) as mine:
            done = look(database_now()) if mine else 0
        self.looked_at = time.monotonic()
        return done

    def _reap(self) -> int:
        over = [pk for pk, delivery in self.going.items() if delivery.future.done()]
        # An error of the database is the loop's to wait for.
        return sum(self.going.pop(pk).future.result() for pk in over)

    def close(self) -> None:
        """Let what is on its way end."""
        self.pool.shutdown(wait=True, cancel_futures=True)


def _deliver_in_thread(pk: int) -> bool:
    try:
        return deliver(pk)
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
