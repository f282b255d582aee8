"""Claims what a subscription is due, says it, sends it outside of any transaction, settles; and the worker `notify_people`."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import DatabaseError, connections, transaction
from django.db.models import F, Q
from django.urls import reverse

from config.admin import humanize
from config.database.clock import database_now
from config.database.transactions import Remedy, remedy_for, wait_for_rerun
from config.processes import worker
from config.redelivery import Refusal
from config.telemetry import metrics
from config.telemetry.activity import activity
from config.telemetry.logs import RowIds, log, log_committed
from outbox.alerts.addresses import TryResult, Words, send, unseal
from outbox.alerts.matters import look, outside_quiet_hours, window
from outbox.alerts.models import LEASE, URGENCIES, Matter, Notice, Subscription
from outbox.bookkeeping.leases import only_one

Phase, State = Notice.Phase, Notice.State
Result = TypeVar("Result")

# -- What a notice says --------------------------------------------------------------------------------------
# One matter in a few lines, or several as a list; no payload, nothing that calls a whole channel.
MOST_LINES = 20
FORGOTTEN = timedelta(days=1)  # a worker that was not heard of for so long is not watched any more
KINDS_OF_APPRISE = {"now": "failure", "soon": "warning", "watch": "info"}
BEGINNINGS = {
    Phase.RETURNED: "Back again: ",
    Phase.REMINDED: "Still: ",
    Phase.RESOLVED: "Over: ",
    Phase.SETTLED: "Over, and not back since: ",
}
ENDS = (Phase.RESOLVED, Phase.SETTLED)
REPEAT = "This may be a repeat: an earlier try was cut off before anybody answered."
TEST = "Nothing is wrong. Somebody asked for this to see whether notices arrive here."
# What chat services read as a call to everybody, or as a link with other words; and what steers a terminal.
CALLS = re.compile(r"([@<])(?=[!@#\w])")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


def words_of(notices: Sequence[Notice], subscription: Subscription, now: datetime) -> Words:
    """One matter with all that is known, several as a list of headlines."""
    name = " ".join(filter(None, ["Spillway", settings.ENVIRONMENT_NAME]))
    if len(notices) == 1:
        notice = notices[0]
        lines = [*_facts(notice, subscription, now), *([REPEAT] if notice.repeat else []), _link(notice.url)]
        title = headline(notice)
    else:
        title = _count(notices)
        lines = [f"• {headline(notice)}{_amount(notice)}" for notice in notices[:MOST_LINES]]
        if rest := len(notices) - MOST_LINES:
            lines += [f"and {rest:,} more"] if rest > 0 else []
        lines += [REPEAT] if any(notice.repeat for notice in notices) else []
        lines += [_link(reverse("admin:index"))]
    title, text = harmless(f"[{name}] {title}")[:250], harmless("\n".join(filter(None, lines)))[:3500]
    return Words(title, text, _kind(notices), key_of(notices[0]), over=all(map(says_over, notices)))


def key_of(notice: Notice) -> str:
    """The same for all that is said of a matter in an episode, to whomever: services that keep incidents know it by that."""
    matter = notice.matter
    about = (matter.kind, matter.key, notice.episode) if matter else ("test", notice.pk)
    names = [settings.SITE_URL, settings.ENVIRONMENT_NAME, *map(str, about)]
    return f"spillway-{hashlib.sha256(json.dumps(names).encode()).hexdigest()[:40]}"


def headline(notice: Notice) -> str:
    """`Over: Dead: relay_outbox on db-1, process 12`."""
    if notice.matter is None:
        return "A test"
    begin = BEGINNINGS.get(Phase(notice.phase), "")
    if is_over(notice) and notice.phase not in ENDS:
        begin = "Was, and is over: "
    return f"{begin}{notice.matter.title}"


def is_over(notice: Notice) -> bool:
    """Whether what it is about has ended by now, or has ended and begun anew."""
    matter = notice.matter
    return matter is not None and (matter.over_at is not None or matter.episode != notice.episode)


def says_over(notice: Notice) -> bool:
    """Whether it is told as an end: also a beginning is, of what is over by now."""
    return notice.phase in ENDS or is_over(notice)


def _facts(notice: Notice, subscription: Subscription, now: datetime) -> list[str]:
    matter = notice.matter
    if matter is None:
        return [TEST]
    if says_over(notice):
        return [_how_it_ended(matter, subscription, now)]
    amount = f"{matter.amount}, since" if matter.amount else "Since"
    facts = [matter.why, f"{amount} {_clock(matter.opened_at, subscription)}."]
    if notice.phase == Phase.RETURNED:
        facts.append("It comes and goes: the next notice says when it has stayed away, or that it is still there.")
    return facts


def _how_it_ended(matter: Matter, subscription: Subscription, now: datetime) -> str:
    end = matter.over_at or now
    if matter.kind == "worker" and end - matter.opened_at >= FORGOTTEN:
        return "Nothing was heard of it for a day: it is not watched any more."
    lasted = humanize.length((end - matter.opened_at).total_seconds(), coarse=True)
    times = f" It came back {humanize.plural(matter.returns, 'time', 'times')}." if matter.returns else ""
    return f"From {_clock(matter.opened_at, subscription)}, for {lasted}.{times}"


def _clock(when: datetime, subscription: Subscription) -> str:
    local = when.astimezone(ZoneInfo(subscription.zone))
    return f"{local:%d %b %H:%M} {subscription.zone}"


def _amount(notice: Notice) -> str:
    matter = notice.matter
    return f" ({matter.amount})" if matter and matter.amount and not says_over(notice) else ""


def _count(notices: Sequence[Notice]) -> str:
    over = sum(map(says_over, notices))
    here = len(notices) - over
    parts = [
        humanize.plural(here, "thing needs you", "things need you") if here else "",
        humanize.plural(over, "is over", "are over") if over else "",
    ]
    return ", ".join(filter(None, parts))


def _kind(notices: Sequence[Notice]) -> str:
    there = [notice.matter.urgency for notice in notices if notice.matter and not says_over(notice)]
    if not there:
        return "info" if any(notice.matter is None for notice in notices) else "success"
    return KINDS_OF_APPRISE[min(there, key=URGENCIES.index)]


def _link(url: str) -> str:
    return f"{settings.SITE_URL}{url}" if settings.SITE_URL else ""


def harmless(text: str) -> str:
    """Names and errors come from outside: they call nobody and steer nothing."""
    return CALLS.sub("\\1\u200b", CONTROL.sub(" ", text))


# -- Claim, send, settle -------------------------------------------------------------------------------------
LOOK = 10.0  # seconds between two looks at what needs people
AT_ONCE = 4  # subscriptions that are served side by side: one that hangs delays no other
MOST = 200  # notices in one message
FIRST_WAIT, LONGEST_WAIT = 10.0, 600.0  # seconds after a failure, doubled each time
PATIENCE = timedelta(days=1)  # then a notice is given up
PAUSE = 1.0
MOST_RERUNS = 10  # of a transaction of which no answer comes: some seconds, far less than a lease


@dataclass(frozen=True)
class Errand:
    """What one try has in hand: notices of one subscription, under its lease."""

    subscription: Subscription
    token: uuid.UUID
    notices: Sequence[Notice]

    @property
    def ids(self) -> list[int]:
        return [notice.pk for notice in self.notices]

    @property
    def first(self) -> Errand:
        """The same with one notice: an incident is about one matter."""
        return replace(self, notices=self.notices[:1])


def serve(pk: int) -> bool:
    """Tell one subscription what is due; whether there was anything."""
    claim = claim_notices(pk, database_now())
    if claim is None:
        return False
    errand, outcome = _try(claim)
    if outcome is None:
        log.info("notice_overtaken", subscription=pk)
        release(errand)
    else:
        settle(errand, outcome, database_now())
    return True


def _try(claim: Errand) -> tuple[Errand, TryResult | None]:
    """What of a claim was tried, and what came of it."""
    errand = claim

    def about_to(keeps_incidents: bool) -> Words | None:
        nonlocal errand
        errand = claim.first if keeps_incidents else claim
        words = words_of(errand.notices, errand.subscription, database_now())
        return words if begin(errand) else None

    try:
        outcome = send(unseal(claim.subscription.address), about_to)
    except Refusal as refusal:
        outcome = TryResult(sent=False, fault=str(refusal))
    return errand, outcome


def _surely(step: Callable[[bool], Result]) -> Result:
    """What a short transaction came to. Where its answer is lost it runs again, and finds under its own token what it has
    done already: nobody waits for a lease of one's own, and nothing is doubtful that was not sent."""
    for failures in itertools.count():
        try:
            return step(failures > 0)
        except DatabaseError as error:
            remedy = remedy_for(error)
            if remedy not in (Remedy.RERUN, Remedy.WAIT) or failures >= MOST_RERUNS:
                raise
            wait_for_rerun("notify_people", error, remedy, failures + 1, longest=1.0)
    raise AssertionError("it counts for ever")


def claim_notices(pk: int, now: datetime) -> Errand | None:
    """Lease the subscription, and read what is due; None when another process was faster, or nothing is left to say."""
    token = uuid.uuid4()
    return _surely(lambda _again: _claim(pk, token, now))


def _claim(pk: int, token: uuid.UUID, now: datetime) -> Errand | None:
    with transaction.atomic():
        leased = Subscription.objects.lease([pk], token, now + LEASE, now)
        if not leased and not Subscription.objects.held_by(token).exists():
            return None
        subscription = Subscription.objects.get(pk=pk)
        due = Notice.objects.filter(subscription=pk).due(now).select_related("matter").most_urgent_first()
        tests = list(due.filter(phase=Phase.TEST)[:1])
        notices = tests or list(due[:MOST])
        untrue = [notice for notice in notices if notice.phase in ENDS and notice.matter and not is_over(notice)]
        _withdraw(pk, untrue)
        notices = [notice for notice in notices if notice not in untrue]
        if not notices:
            Subscription.objects.release(token)
            return None
    return Errand(subscription, token, notices)


def _withdraw(subscription: int, untrue: Sequence[Notice]) -> None:
    """Ends of what came back before anybody heard of it are no news; of one that may have arrived the return is told."""
    heard = [notice.pk for notice in untrue if notice.repeat]
    Notice.objects.filter(pk__in=heard).update(state=State.GIVEN_UP, error="it came back before anybody answered")
    Notice.objects.filter(pk__in=[notice.pk for notice in untrue if not notice.repeat]).delete()
    if untrue:
        ids = RowIds(untrue, notice_id="pk")
        log_committed("notices_withdrawn", subscription=subscription, notices=len(untrue), ids=ids)


def begin(claim: Errand) -> bool:
    """Write down that these notices are about to be sent: from now on nobody knows without an answer. False: not ours any more."""
    return _surely(lambda _again: _begin(claim, database_now()))


def _begin(claim: Errand, now: datetime) -> bool:
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
        _tell(claim, [(pk, State.SENDING) for pk in claim.ids])
    return True


def release(claim: Errand) -> None:
    """Nothing was sent: whoever comes next may try."""
    _surely(lambda _again: Subscription.objects.release(claim.token))


def settle(claim: Errand, outcome: TryResult, now: datetime) -> None:
    """Write down what came of it; what was decided meanwhile, because we took too long, stays as it is."""
    _surely(lambda again: None if again and _is_settled(claim) else _settle(claim, outcome, now))


def _is_settled(claim: Errand) -> bool:
    """Whether a run whose answer was lost has written it down."""
    sending = Notice.objects.filter(pk__in=claim.ids, state=State.SENDING, token=claim.token)
    return not Subscription.objects.held_by(claim.token).exists() and not sending.exists()


def _settle(claim: Errand, outcome: TryResult, now: datetime) -> None:
    test = all(notice.phase == Phase.TEST for notice in claim.notices)
    with transaction.atomic():
        if outcome.sent:
            moved = _sent(claim, now)
            changes = {"sent_at": now, "failures": 0, "failing_since": None, "next_try_at": None, "error": ""}
        else:
            moved = _not_sent(claim, outcome, now, test)
            changes = _failure(claim.subscription, outcome, now)
        held = Subscription.objects.release(claim.token, **changes)
        _tell(claim, moved)
    if not held or len(moved) != len(claim.ids):
        lost = sorted(set(claim.ids) - dict(moved).keys())
        metrics.FENCE_LOST.inc(len(lost))
        ids = RowIds(lost, notice_id=None)
        log.warning("notice_fence_lost", subscription=claim.subscription.pk, notices=len(lost), ids=ids)
    metrics.NOTICES.labels("sent" if outcome.sent else "unsure" if outcome.unsure else "failed").inc(len(claim.ids))
    if not outcome.sent:
        log.warning("notice_not_sent", subscription=claim.subscription.pk, unsure=outcome.unsure, why=outcome.fault)


Moved = Sequence[tuple[int, str]]  # notices with their new states


def _tell(claim: Errand, moved: Moved) -> None:
    if moved:
        ids = RowIds(moved, notice_id=0, became=1)
        log_committed("notices_moved", subscription=claim.subscription.pk, notices=len(moved), ids=ids)


def _sent(claim: Errand, now: datetime) -> Moved:
    moved = []
    for notice in claim.notices:
        if Notice.objects.taken_by(claim.token).filter(pk=notice.pk).update(
            state=State.SENT, sent_at=now, error="", title=headline(notice)[:300],
            said_over=notice.phase not in ENDS and is_over(notice),
        ):  # fmt: skip
            moved.append((notice.pk, State.SENT))
    return moved


def _not_sent(claim: Errand, outcome: TryResult, now: datetime, test: bool) -> Moved:
    """Notices that did not get as far as `begin` are due as before; the others wait, those that may have arrived for a window."""
    moved: list[tuple[int, str]] = []
    for notice in claim.notices:
        mine = Notice.objects.filter(Q(state=State.SENDING, token=claim.token) | Q(state=notice.state), pk=notice.pk)
        changes: dict[str, object] = {}
        if test or now - notice.created_at > PATIENCE:
            state = State.GIVEN_UP
        else:
            pause = window() if outcome.unsure else timedelta()
            state = State.UNSURE if outcome.unsure or notice.repeat else State.WAITING
            changes["due_at"] = outside_quiet_hours(claim.subscription, _urgency(notice.matter), now + pause)
            changes |= {"repeat": True} if outcome.unsure else {}
        if mine.update(state=state, error=outcome.fault[:300], **changes):
            moved.append((notice.pk, state))
    return moved


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
