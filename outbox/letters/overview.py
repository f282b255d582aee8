"""Numbers of open letters, and the needs they cause."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Q, Sum
from django.urls import reverse
from django.utils import timezone

from config.admin import humanize
from config.causes import STOP_LETTERS, Fact, Line, fact
from config.database.queries import Names, of_names
from config.flows import Kin, Need, Reading, source_in_words
from config.telemetry import metrics
from outbox.groups.counts import arrived_by_hour, is_rising
from outbox.groups.models import FailureGroup
from outbox.groups.reasons import runbook_of, what_to_do
from outbox.letters.burial import STOPPED
from outbox.letters.models import ProofRound

FLOOD = 100  # letters of a group within two hours, of which `doctor` speaks
MOST_GROUPS = 5  # lines of home
RISING = " rising"  # ends the key of such a need
MOST_WAITING = 100  # groups of a flow that are looked at, the newest
MOST_TOGETHER = 500  # of all flows, where they are asked together
NEWS = timedelta(hours=2)  # for so long a group is new, or came back: that it rises is no news
FIRST = {"regressed": 0, "new": 1}  # the states of groups that stand first
CAME = {"regressed": "It was resolved, and came back.", "new": "It is new."}


class Counted(NamedTuple):
    """Letters of a source, or of several: open, taken back without proof, and of groups with open ones brought back by a replay."""

    opened: int = 0
    requeued: int = 0
    failed_again: int = 0


def counted(sources: Sequence[str]) -> dict[str, Counted]:
    """`{source: letters}`, from the counts that groups keep."""
    known = of_names(_counted, sources)
    return {source: known.get(source, Counted()) for source in sources}


def _counted(sources: Names) -> dict[str, Counted]:
    failed = Sum("returned_count", filter=Q(open_count__gt=0), default=0)
    rows = FailureGroup.objects.of_sources(sources).values_list("source")
    rows = rows.annotate(opened=Sum("open_count"), requeued=Sum("requeued_count"), failed=failed)
    return {source: Counted(*map(int, numbers)) for source, *numbers in rows}


def letter_counts(sources: Sequence[str]) -> dict[str, int]:
    """The three numbers of a flow's picture: open, on their way, failed again."""
    opened, requeued, failed_again = map(sum, zip(Counted(), *counted(sources).values(), strict=True))
    return {"letters_open": opened, "letters_requeued": requeued, "letters_failed_again": failed_again}


def letters_ever(sources: Sequence[str]) -> int:
    """How many letters these sources have had, closed and dropped ones among them."""
    sums = FailureGroup.objects.filter(source__in=sources).aggregate(total=Sum("total_count"))
    return int(sums["total"] or 0)


def letter_needs(sources: Sequence[str], urgent: Sequence[str] = (), lately: datetime | None = None) -> Iterator[Need]:
    """One for each failure group that nobody has in hand.

    A step in `urgent` is one for which people wait; with `lately` only groups that got a letter since.
    """
    yield from _without_effect(sources)
    for group in _waiting_of(sources):
        yield _need_of_group(group, group.step in urgent and (lately is None or group.last_seen > lately))


def _waiting_of(sources: Sequence[str]) -> list[FailureGroup]:
    """Groups that need work and are in nobody's hand, the newest first."""
    groups = of_names(_waiting, sources)
    if len(groups) > MOST_TOGETHER:  # so many of other flows may leave none of these
        groups = _waiting(sources)
    return [group for group in groups if group.source in sources][:MOST_WAITING]


def _waiting(sources: Names) -> list[FailureGroup]:
    groups = FailureGroup.objects.needing_work(timezone.now()).of_sources(sources).in_nobodys_hand()
    return list(groups.order_by("-last_seen")[: MOST_WAITING if sources is not None else MOST_TOGETHER + 1])


def _place(group: FailureGroup) -> int:
    """What came back first, then what is new."""
    return FIRST.get(group.state, len(FIRST))


def _without_effect(sources: Sequence[str]) -> Iterator[Need]:
    """Requeued letters that wait too long for their effect, as the last round has counted them."""
    for requeued in _rounds_of(sources):
        if not requeued.overdue:
            continue
        yield Need(
            urgency="soon",
            title=f"Requeued letters of {source_in_words(requeued.source)} without effect",
            why="They were taken back, and nothing proves yet that it helped. Look where they are.",
            url=reverse("admin:outbox_deadletter_changelist") + f"?state=requeued&source={requeued.source}",
            lever="Open list",
            amount=requeued.overdue,
            unit=humanize.word(requeued.overdue, "dead letter", "dead letters"),
            since=requeued.oldest_at,
            rank=2,
            kind="stuck",
            key=f"without effect {requeued.source}",
            runbook="alerts.md#spillwaydeadletterswithouteffect",
        )


def _rounds_of(sources: Sequence[str]) -> list[ProofRound]:
    return [row for row in of_names(_rounds, sources) if row.source in sources]


def _rounds(sources: Names) -> list[ProofRound]:
    rows = ProofRound.objects.order_by("source")
    return list(rows if sources is None else rows.filter(source__in=sources))


def _kin() -> Kin:
    return Kin(
        MOST_GROUPS, ("more failure group", "more failure groups"), reverse("admin:outbox_failuregroup_changelist")
    )


def _need_of_group(group: FailureGroup, urgent: bool) -> Need:
    flow = source_in_words(group.source)
    return Need(
        urgency="now" if urgent else "soon",
        title=f"{flow}: {group}",
        why=f"Failed at the step “{group.step}”. "
        + (f"{CAME[group.state]} " if group.state in CAME else "")
        + ("They wait until they are requeued or discarded; later ones go on. " if urgent else "")
        + what_to_do(group),
        url=reverse("admin:outbox_failuregroup_change", args=[group.pk]),
        lever="Open group",
        amount=group.open_count,
        unit=humanize.word(group.open_count, "dead letter", "dead letters"),
        since=group.first_seen,
        rank=1 if urgent else 2,
        place=1 + _place(group),
        runbook=runbook_of(group),
        kind="failure_group",
        key=str(group.pk),
        kin=_kin(),
        flow=flow,
        fact=_fact_of(group),
    )


def rising_needs(now: datetime) -> Iterator[Need]:
    """Groups of all flows that have been there for hours, and now get more letters. What nobody has in hand has a line already."""
    recent = FailureGroup.objects.needing_work(now).filter(last_seen__gte=now - timedelta(hours=1))
    before = now - NEWS
    groups = {
        group.pk: group
        for group in recent.order_by("-last_seen")[:100]
        if group.first_seen < before and (group.state_since is None or group.state_since < before)
    }
    arrived = arrived_by_hour(groups, now, 2) if groups else {}
    for pk, (earlier, lately) in arrived.items():
        if is_rising(lately, earlier):
            group = groups[pk]
            owned = f"{group.owner_name} has it in hand. " if group.owner_name else ""
            yield Need(
                urgency="soon",
                title=f"Rising: {group}",
                why=f"{group.source}, failed at the step “{group.step}”. {owned}In the hour before it got {earlier:,}. "
                + what_to_do(group),
                url=group.url,
                lever="Open group",
                amount=lately,
                unit=humanize.word(lately, "letter this hour", "letters this hour"),
                since=group.first_seen,
                rank=2,
                kind="failure_group",
                key=f"{pk}{RISING}",
                runbook=runbook_of(group),
                kin=_kin(),
                flow=source_in_words(group.source),
                quiet=not (group.owner_name and group.state not in FIRST),
            )


def groups_still_so(keys: Collection[str], now: datetime) -> list[str]:
    """Which of these needs of `letter_needs` and `rising_needs` are not over: no list of theirs names all groups."""
    by_key = {key: int(pk) for key in keys if (pk := key.removesuffix(RISING)).isdecimal()}
    open_groups = FailureGroup.objects.needing_work(now).filter(pk__in=by_key.values())
    waiting = set(open_groups.in_nobodys_hand().values_list("pk", flat=True))
    arrived = arrived_by_hour(open_groups.values_list("pk", flat=True), now, 2)
    rising = {pk for pk, (earlier, lately) in arrived.items() if is_rising(lately, earlier)}
    return [key for key, pk in by_key.items() if pk in (rising if key.endswith(RISING) else waiting)]


def letters_diagnosis(now: datetime) -> Iterator[Line]:
    """One line a flood that nobody has in hand: `doctor` lets a few letters wait, as their alert does."""
    groups = {group.pk: group for group in _waiting(None)}
    floods = {pk: sum(hours) for pk, hours in arrived_by_hour(groups, now, 2).items() if sum(hours) >= FLOOD}
    for pk, number in floods.items():
        group = groups[pk]
        said = f"{group}: {number:,} within two hours. {what_to_do(group)}"
        yield Line(f"letters of {group.source}", False, said, _fact_of(group))
    if not floods:
        yield Line(
            "dead letters", True, f"{sum(group.open_count for group in groups.values()):,} open in nobody's hand"
        )


def _fact_of(group: FailureGroup) -> Fact | None:
    return fact(STOP_LETTERS, group.source) if group.step == STOPPED else None


def gauges(sources: Sequence[str]) -> Iterator[Reading]:
    """The same numbers for /metrics."""
    for source, letters in counted(sources).items():
        yield Reading(metrics.LETTERS_OPEN, letters.opened, {"source": source})
        yield Reading(metrics.LETTERS_REQUEUED, letters.requeued, {"source": source})
        yield Reading(metrics.LETTERS_FAILED_AGAIN, letters.failed_again, {"source": source})
    overdue = {row.source: row.overdue for row in _rounds_of(sources)}
    for source in sources:
        yield Reading(metrics.LETTERS_OVERDUE, overdue.get(source, 0), {"source": source})
