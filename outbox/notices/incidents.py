"""What needs people, as home shows it, against what was known: incidents begin, come back, are over; who is told when, and whether."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings
from django.db import transaction
from django.db.models import F, Min, Q
from django.db.models.functions import Greatest

from config.admin import humanize
from config.admin.home import needs_one_by_one, still_so
from config.causes import EFFECTS, WAITING, Line, fact
from config.database.queries import delete_in_chunks
from config.flows import Need, Reading
from config.telemetry import metrics
from config.telemetry.logs import RowIds, log_committed
from config.telemetry.redaction import without_addresses
from outbox.notices.models import URGENCIES, Incident, Notice, Subscription

MOST_NEW = 500  # incidents that begin at one look, the most urgent ones; the others at the next
CAUSES = frozenset({"worker", "channel", "partition"})  # kinds of incidents from which others follow
SETTLING = timedelta(minutes=1)  # so long after the end of a cause what may have followed from it begins nothing
LATE_END = timedelta(days=1)  # for so long nobody may have looked, and an end is told all the same
Phase, State = Notice.Phase, Notice.State
Name = tuple[str, str]  # kind, key


def window() -> timedelta:
    """Within it nothing is told twice, and what comes back is the same incident."""
    return timedelta(seconds=settings.NOTIFY_WINDOW_SECONDS)


# -- Incidents -------------------------------------------------------------------------------------------------
def look(now: datetime) -> int:
    """See what needs people, and write down who is to be told; returns how many notices are new."""
    needs = {(need.kind, need.key[:200]): need for need in reversed(needs_one_by_one(now))}
    over = _over(needs, now)
    if _settles(over, now):
        needs = {name: _awaited(need) for name, need in needs.items()}
    with transaction.atomic():
        rescue_notices(now)
        record_incidents(needs, over, now)
        return plan(now)


def rescue_notices(now: datetime) -> int:
    """Notices whose sender died on the way may have arrived: they are told again when the window is over, and say so."""
    cut = [
        notice
        for notice in Notice.objects.lost(now)
        if Notice.objects.filter(pk=notice.pk, state=State.SENDING, token=notice.token).update(
            state=State.UNSURE,
            repeat=True,
            due_at=(notice.tried_at or now) + window(),
            error="the sender ended before anybody answered",
        )
    ]
    if cut:
        became = RowIds([State.UNSURE] * len(cut), became=None)
        ids = RowIds(cut, notice_id="pk", subscription="subscription_id") | became
        log_committed("notices_moved", notices=len(cut), ids=ids)
    return len(cut)


def _over(needs: Mapping[Name, Need], now: datetime) -> list[Incident]:
    """Open incidents that have ended: that a list does not name one is no end, each of those is asked for."""
    missing = {(row.kind, row.key): row for row in Incident.objects.open() if (row.kind, row.key) not in needs}
    lasting = still_so(missing, now)
    return [row for name, row in missing.items() if name not in lasting]


def _settles(over: Iterable[Incident], now: datetime) -> bool:
    """Whether a cause has ended a moment ago: what followed from it is about to end as well."""
    lately = Incident.objects.filter(over_at__gt=now - SETTLING).values_list("kind", flat=True)
    return not CAUSES.isdisjoint([*(row.kind for row in over), *lately])


def _awaited(need: Need) -> Need:
    return replace(need, news=False) if need.fact and need.fact.kind in EFFECTS else need


def record_incidents(needs: Mapping[Name, Need], over: Iterable[Incident], now: datetime) -> None:
    """Begin, refresh, reopen and end incidents."""
    kinds, keys = ({name[part] for name in needs} for part in (0, 1))
    known = {(row.kind, row.key): row for row in Incident.objects.filter(kind__in=kinds, key__in=keys)}
    begun = [(name, need) for name, need in needs.items() if name not in known and need.news]
    for (kind, key), need in begun[-MOST_NEW:]:
        Incident.objects.create(kind=kind, key=key, opened_at=now, **_words(need))
    for name, row in known.items():
        if name in needs:
            _refresh(row, needs[name], now)
    for row in over:
        Incident.objects.filter(pk=row.pk, episode=row.episode, over_at=None).update(over_at=now)


def _refresh(row: Incident, need: Need, now: datetime) -> None:
    """Its words and numbers of now; what was over begins again, unless another line covers it."""
    if row.over_at is not None and not need.news:
        return
    changes: dict[str, object] = {name: word for name, word in _words(need).items() if getattr(row, name) != word}
    if row.over_at is not None:
        changes |= _begins_again(row, now)
    if changes:
        Incident.objects.filter(pk=row.pk, episode=row.episode, over_at=row.over_at).update(**changes)


def _words(need: Need) -> dict[str, str]:
    """What people are told: what home shows to everybody, and no address of a person."""
    amount = f"{need.amount:,} {need.unit}" if need.amount is not None else ""
    more = f" Runbook: {humanize.runbook(need.runbook)}" if need.runbook else ""
    return {
        "title": without_addresses(need.title)[:300],
        "why": without_addresses(f"{need.why} {need.follows_in_words}".strip())[: 1000 - len(more)] + more,
        "amount": amount[:100],
        "url": need.url[:500],
        "urgency": need.urgency,
    }


def _begins_again(row: Incident, now: datetime) -> dict[str, object]:
    """Within the window it is the same episode, and came back."""
    if row.over_at and now - row.over_at <= window():
        return {"over_at": None, "returns": row.returns + 1}
    return {"over_at": None, "returns": 0, "episode": row.episode + 1, "opened_at": now}


# -- Who is told, of which phase, and not before when --------------------------------------------------------
@dataclass
class History:
    """What one subscription has been told of one incident in its episode, or will be."""

    phases: dict[str, Notice] = field(default_factory=dict)  # of several reminders the last one

    def add(self, notice: Notice) -> None:
        before = self.phases.get(notice.phase)
        if before is None or before.number < notice.number:
            self.phases[notice.phase] = notice

    def was(self, phase: str) -> bool:
        """Whether that has arrived, or may have and is not told again."""
        notice = self.phases.get(phase)
        if notice is None:
            return False
        return notice.state == State.SENT or (notice.state == State.GIVEN_UP and notice.repeat)

    def has(self, phase: str) -> bool:
        return phase in self.phases

    @property
    def said_over(self) -> bool:
        return any(notice.said_over for notice in self.phases.values())

    @property
    def last_sent(self) -> datetime | None:
        return max((notice.sent_at for notice in self.phases.values() if notice.sent_at), default=None)


def plan(now: datetime) -> int:
    """Write down each phase that somebody is to be told of; a phase that is there already is left alone."""
    recent = now - 2 * window() - LATE_END
    incidents = list(Incident.objects.filter(over_at=None)) + list(Incident.objects.filter(over_at__gte=recent))
    subscriptions = list(Subscription.objects.of_active_people())
    told: dict[tuple[int, int], History] = defaultdict(History)
    for notice in Notice.objects.filter(incident__in=incidents, episode=F("incident__episode")):
        told[notice.subscription_id, notice.incident_id or 0].add(notice)
    made = [
        Notice(
            subscription=subscription, incident=incident, episode=incident.episode, phase=phase, number=number,
            title=incident.title, created_at=now, due_at=not_before(subscription, incident.urgency, now),
        )
        for subscription in subscriptions
        for incident in incidents
        for phase, number in phases_to_tell(subscription, incident, told[subscription.pk, incident.pk], now)
    ]  # fmt: skip
    Notice.objects.bulk_create(made, ignore_conflicts=True)
    if made:
        ids = RowIds(made, subscription="subscription_id", incident="incident_id", kind="incident.kind", phase="phase")
        log_committed("notices_planned", notices=len(made), ids=ids)
    return len(made)


def phases_to_tell(
    subscription: Subscription, incident: Incident, told: History, now: datetime
) -> Iterator[tuple[str, int]]:
    """(phase, number) of what is new for this subscription.

    The end is only told to who was told of the beginning. What comes and goes is told as such once, and then once
    more when it has stayed away for a window.
    """
    if incident.over_at is None:
        if not told.has(Phase.OPENED):
            if concerns(subscription, incident):
                yield Phase.OPENED, 0
        elif (told.was(Phase.RESOLVED) or told.said_over) and not told.has(Phase.RETURNED):
            yield Phase.RETURNED, 0
        elif number := _reminder(incident, told, now):
            yield Phase.REMINDED, number
    elif told.was(Phase.RETURNED):
        if now - incident.over_at >= window() and not told.has(Phase.SETTLED):
            yield Phase.SETTLED, 0
    elif told.was(Phase.OPENED) and not told.said_over and not told.has(Phase.RESOLVED):
        yield Phase.RESOLVED, 0


def concerns(subscription: Subscription, incident: Incident) -> bool:
    """Whether somebody has subscribed to it."""
    urgent_enough = URGENCIES.index(incident.urgency) <= URGENCIES.index(subscription.urgency)
    return urgent_enough and incident.kind in subscription.kinds


def _reminder(incident: Incident, told: History, now: datetime) -> int:
    """The number of the reminder that is due of what cannot wait; 0 when none is."""
    every = settings.NOTIFY_REMIND_SECONDS
    last = told.last_sent
    if not every or incident.urgency != "now" or last is None or (now - last).total_seconds() < every:
        return 0
    previous = told.phases.get(Phase.REMINDED)
    if previous is not None and previous.state in Notice.UNFINISHED:
        return 0
    return previous.number + 1 if previous else 1


def not_before(subscription: Subscription, urgency: str, now: datetime) -> datetime:
    """When something may be told: at the next digest, and not in quiet hours unless it cannot wait and may wake people."""
    due = now
    if (minutes := subscription.digest_minutes) and not (urgency == "now" and subscription.wakes):
        span = minutes * 60
        due = datetime.fromtimestamp((int(now.timestamp()) // span + 1) * span, UTC)
    return outside_quiet_hours(subscription, urgency, due)


def outside_quiet_hours(subscription: Subscription, urgency: str, when: datetime) -> datetime:
    """That moment, or the end of the quiet hours it lies in."""
    if urgency == "now" and subscription.wakes:
        return when
    return quiet_until(subscription, when) or when


def quiet_until(subscription: Subscription, when: datetime) -> datetime | None:
    """The end of the quiet hours that this moment lies in, by the clock of their zone; None outside of them."""
    begin, end = subscription.quiet_from, subscription.quiet_to
    if begin is None or end is None or begin == end:
        return None
    local = when.astimezone(ZoneInfo(subscription.zone))
    clock = local.time().replace(tzinfo=None)
    quiet = begin <= clock < end if begin < end else clock >= begin or clock < end
    if not quiet:
        return None
    day = local.date() if clock < end else local.date() + timedelta(days=1)
    # Of an hour that comes twice the end that is still to come: `fold` says whether this is its second time.
    return datetime.combine(day, end.replace(fold=local.fold), tzinfo=local.tzinfo).astimezone(UTC)


# -- Retention -----------------------------------------------------------------------------------------------
def sweep_notices(now: datetime) -> int:
    """Delete notices and incidents that are older than NOTIFY_RETENTION_DAYS and settled, or nobody's; returns how many."""
    before = now - timedelta(days=settings.NOTIFY_RETENTION_DAYS)
    return delete_in_chunks(Notice.objects.outdated(before)) + delete_in_chunks(Incident.objects.outdated(before))


# -- Whether people are told, for `doctor`, /metrics and the page --------------------------------------------
LATE = timedelta(minutes=2)


def oldest_unsent(now: datetime) -> datetime | None:
    """Since when a notice waits that should have been sent.

    Since it was due, or since the first of the tries that failed in a row: each of them moves its time on.
    """
    people = Subscription.objects.of_active_people()
    waiting = Notice.objects.unfinished().filter(subscription__in=people)
    since = waiting.aggregate(
        due=Min("due_at", filter=Q(due_at__lte=now)),
        refused=Min(
            Greatest("created_at", "subscription__failing_since"), filter=Q(tries__gt=0, subscription__failures__gt=0)
        ),
    )
    return min(filter(None, since.values()), default=None)


def notice_gauges(now: datetime) -> Iterator[Reading]:
    oldest = oldest_unsent(now)
    yield Reading(metrics.NOTICES_OLDEST, (now - oldest).total_seconds() if oldest else 0)
    yield Reading(metrics.NOTICES_FAILING, Subscription.objects.failing().count())


def notices_diagnosis(now: datetime) -> Iterator[Line]:
    """One line: who is not told of what, and why."""
    number = Subscription.objects.of_active_people().count()
    trouble = [
        f"{row.name} has not been reached since {humanize.clock_in_zone(row.failing_since or now, now)}: {row.error}"
        for row in Subscription.objects.failing().order_by("name")[:5]
    ]
    oldest = oldest_unsent(now)
    if waits := bool(oldest and now - oldest > LATE and not trouble):
        trouble.append(f"notices wait since {humanize.clock_in_zone(oldest or now, now)}: is notify_people running?")
    links = "" if settings.SITE_URL else "; without links, SITE_URL is empty"
    readers = (
        humanize.plural(number, "subscription", "subscriptions") + links
        if number
        else "nobody has subscribed to anything"
    )
    yield Line("notices", not trouble, "; ".join(trouble) or readers, fact(WAITING, "notify_people") if waits else None)
