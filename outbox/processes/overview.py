"""The processes of the last day as the page, home and `doctor` see them: the dead and the frozen first."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.conf import settings
from django.urls import reverse
from django.utils.text import capfirst

from config.admin import humanize
from config.causes import AWAITS, FAILED, GONE, UNCONNECTED, Fact, Line, fact
from config.flows import Kin, Need, Reading, Urgency
from config.telemetry import metrics
from config.telemetry.activity import HANGS
from config.telemetry.redaction import masked_error
from outbox.processes.models import WorkerProcess

MOST = 500  # processes that are looked at, of those that did not end; and of those that did
TAKING_OVER = timedelta(minutes=1)
MOST_NAMED = 3  # lines of home
NO_KAFKA = re.compile(r"^(\w+: )?KAFKA_\w+[=:]")  # the error of a command that Kafka did not answer, or not let in
OWN = ("--metrics-port", "--instance")  # options by which processes that do the same work differ


class Liveness(StrEnum):
    """What is known of a process, worst first."""

    DEAD = "dead"  # it is gone and did not say that it ends
    FAILED = "failed"  # an error ended it
    SILENT = "silent"  # it does not report; its host does not say that it is gone
    HANGS = "hangs"  # it reports, and its loop does not come round
    WAITS = "waits"  # it reports, and cannot read on without the schema registry
    RUNS = "runs"
    REPLACED = "replaced"  # dead, failed or silent, and another one has taken its place since
    STOPPED = "stopped"  # it was told to end


LOST = (Liveness.DEAD, Liveness.FAILED, Liveness.SILENT)
FORGETTABLE = (*LOST, Liveness.REPLACED, Liveness.STOPPED)
TROUBLED = (*LOST, Liveness.HANGS, Liveness.WAITS)
WORKING = (Liveness.RUNS, Liveness.WAITS)
ALIVE = (*WORKING, Liveness.HANGS)


@dataclass(frozen=True)
class Sighting:
    """A process, and what is known of it now."""

    row: WorkerProcess
    state: Liveness

    @property
    def order(self) -> tuple[object, ...]:
        """The worst first; of the lost the newest, of the others by name."""
        age = -self.row.seen_at.timestamp() if self.state in (*LOST, Liveness.STOPPED, Liveness.REPLACED) else 0.0
        return list(Liveness).index(self.state), age, self.row.command, self.row.host, self.row.pk


def sightings(now: datetime) -> list[Sighting]:
    """The processes that reported within a day, in the order in which one wants to read about them."""
    rows = WorkerProcess.objects.of_last_day(now).order_by("-seen_at")
    seen = [*rows.unended()[:MOST], *rows.exclude(ended_at=None)[:MOST]]
    sighted = [Sighting(row, state_of(row, now)) for row in seen]
    return sorted(_without_replaced(sighted), key=lambda sighting: sighting.order)


def state_of(row: WorkerProcess, now: datetime) -> Liveness:
    """What is known of one process by itself."""
    if row.ended_at:
        return Liveness.FAILED if row.error else Liveness.STOPPED
    if row.is_gone:
        return Liveness.DEAD
    if row.is_silent(now):
        return Liveness.SILENT
    if row.round_at and now - row.round_at > HANGS:
        return Liveness.HANGS
    return Liveness.WAITS if row.error else Liveness.RUNS


def work_of(row: WorkerProcess) -> tuple[str, str]:
    """What it does, whoever does it: its command, and the arguments that change that."""
    words = iter(row.arguments.split())
    kept = []
    for word in words:
        if word in OWN:
            next(words, "")
        elif not word.startswith(tuple(f"{option}=" for option in OWN)):
            kept.append(word)
    return row.command, " ".join(kept)


def _without_replaced(seen: Sequence[Sighting]) -> list[Sighting]:
    """Who began to do the same work elsewhere since a process was lost has taken its place: one newcomer, one place."""
    newcomers: dict[tuple[str, str], list[datetime]] = defaultdict(list)
    for sighting in seen:
        if sighting.state in ALIVE:
            newcomers[work_of(sighting.row)].append(sighting.row.kept_since)
    result = []
    for sighting in sorted(seen, key=lambda sighting: sighting.row.seen_at, reverse=True):
        came = newcomers[work_of(sighting.row)]
        # Who takes the name of a throttler ends the one that had it: it has started before that fails.
        lost_at = sighting.row.seen_at - (TAKING_OVER if sighting.state is Liveness.FAILED else timedelta(0))
        later = min((since for since in came if since > lost_at), default=None)
        if sighting.state in LOST and later:
            came.remove(later)
            result.append(Sighting(sighting.row, Liveness.REPLACED))
        else:
            result.append(sighting)
    return result


# -- For home ------------------------------------------------------------------------------------------------
MORE = ("more worker is dead, failed or silent", "more workers are dead, failed or silent")
TITLES = {
    Liveness.DEAD: "Dead: {}",
    Liveness.FAILED: "Failed: {}",
    Liveness.SILENT: "Silent: {}",
    Liveness.HANGS: "Hangs: {}",
}
WHY = {
    Liveness.DEAD: "Its process is gone and did not say that it ends; no other one has taken its place.",
    Liveness.SILENT: "It is frozen, or cut off from the database, or its host is gone.",
    Liveness.HANGS: "It lives, but its loop has not come round for {}.",
}
DO = {
    Liveness.DEAD: "start it again",
    Liveness.FAILED: "mend that, then start it again",
    Liveness.SILENT: "look at its host, then start it again",
    Liveness.WAITS: "let the registry answer, then it goes on by itself",
    Liveness.HANGS: "dump its threads to see where it waits (py-spy dump), then start it again",
}


def process_needs(now: datetime) -> Iterator[Need]:
    """The schema registry that some wait for; then processes that are missed, the newest loss first."""
    seen = sightings(now)
    if waiting := [sighting.row for sighting in seen if sighting.state is Liveness.WAITS]:
        yield _registry_need(waiting)
    troubled = [sighting for sighting in seen if sighting.state in (*LOST, Liveness.HANGS)]
    working = {work_of(sighting.row) for sighting in seen if sighting.state is Liveness.RUNS}
    yield from (_need_of(sighting, working, now) for sighting in troubled)


def still_troubled(keys: Collection[str], now: datetime) -> list[str]:
    """Which of these needs of `process_needs` are not over: of many processes it looks at those that reported last."""
    seen = {sighting.row.pk for sighting in sightings(now)}
    unseen = {int(key) for key in keys if key.isdecimal()} - seen
    rows = WorkerProcess.objects.of_last_day(now).filter(pk__in=unseen)
    return [str(row.pk) for row in rows if state_of(row, now) in TROUBLED]


def _registry_need(waiting: Sequence[WorkerProcess]) -> Need:
    commands = sorted({row.command for row in waiting})
    return Need(
        "now",
        f"{', '.join(commands)} {humanize.word(len(commands), 'waits', 'wait')} for the schema registry",
        f"{masked_error(waiting[0].error)}. Records wait in Kafka, and are read when it answers. Nothing is lost.",
        reverse("admin:outbox_workerprocess_changelist"),
        "Show workers",
        rank=1,
        kind="worker",
        key="schema registry",
        runbook="formats.md#when-the-registry-is-away",
        fact=fact(AWAITS, *commands),
    )


def _need_of(sighting: Sighting, working: Iterable[tuple[str, str]], now: datetime) -> Need:
    return Need(
        _urgency(sighting, working),
        TITLES[sighting.state].format(str(sighting.row)),
        why(sighting, now),
        reverse("admin:outbox_workerprocess_change", args=[sighting.row.pk]),
        "Show worker",
        since=sighting.row.ended_at or sighting.row.seen_at,
        rank=1,
        kind="worker",
        key=str(sighting.row.pk),
        runbook="looking.md#workers",
        fact=_fact_of(sighting),
        kin=Kin(MOST_NAMED, MORE, reverse("admin:outbox_workerprocess_changelist")),
    )


def _fact_of(sighting: Sighting) -> Fact:
    if sighting.state is Liveness.WAITS:
        return fact(AWAITS, sighting.row.command)
    if sighting.state is not Liveness.FAILED:
        return fact(GONE, sighting.row.command)
    return fact(UNCONNECTED if NO_KAFKA.match(sighting.row.error) else FAILED, sighting.row.command)


def _urgency(sighting: Sighting, working: Iterable[tuple[str, str]]) -> Urgency:
    """Where another process does the same work it goes on, more slowly."""
    return "soon" if sighting.state is Liveness.HANGS or work_of(sighting.row) in working else "now"


def why(sighting: Sighting, now: datetime) -> str:
    """What is known of the trouble of a process, what it had in hand, and what to do; empty when there is none."""
    if sighting.state not in TROUBLED:
        return ""
    if sighting.state in (Liveness.FAILED, Liveness.WAITS):
        fact = f"{masked_error(sighting.row.error)}."
    else:
        since = sighting.row.round_at or sighting.row.seen_at
        fact = WHY[sighting.state].format(humanize.length((now - since).total_seconds(), coarse=True))
    held = sighting.row.holds if sighting.state in LOST else ""
    return f"{fact} {f'It held {held}. ' if held else ''}{capfirst(DO[sighting.state])}."


# -- For whatever waits for a worker -------------------------------------------------------------------------
def why_missing(needed: Mapping[str, Collection[str]], now: datetime) -> str:
    """The first of these commands that no process runs, and what helps, in one line; empty when all of them are run.

    `needed` says for which channels or streams, where not every process of a command has all of them. Where workers do not
    report, nobody knows.
    """
    if not needed or not settings.HEARTBEAT:
        return ""
    seen = sightings(now)
    places = [(command, part) for command, parts in sorted(needed.items()) for part in sorted(parts) or [""]]
    return next((_missing(*place, seen, now) for place in places if not _runs(*place, seen)), "")


def _runs(command: str, part: str, seen: Sequence[Sighting]) -> bool:
    rows = [sighting.row for sighting in seen if sighting.row.command == command and sighting.state in WORKING]
    return any(not part or row.may_hold(part) for row in rows)


def _missing(command: str, part: str, seen: Sequence[Sighting], now: datetime) -> str:
    troubled = [sighting for sighting in seen if sighting.row.command == command and sighting.state not in WORKING]
    newest = max(troubled, key=lambda sighting: sighting.row.seen_at, default=None)
    last = _line(newest, now) if newest else "none has reported within a day"
    helps = f"start one with `manage.py {command}`, or look at the page Workers"
    return f"no {command} runs{f' for {part}' if part else ''} ({last}): {helps}"


# -- For doctor and /metrics ---------------------------------------------------------------------------------
def processes_diagnosis(now: datetime) -> Iterator[Line]:
    """One line a command: how many processes run, and which are missed."""
    by_command: dict[str, list[Sighting]] = defaultdict(list)
    for sighting in sightings(now):
        by_command[sighting.row.command].append(sighting)
    if not by_command:
        yield Line("workers", True, "none has reported within a day")
    for command, seen in sorted(by_command.items()):
        troubled = [sighting for sighting in seen if sighting.state in TROUBLED]
        run = sum(sighting.state in ALIVE for sighting in seen)
        runs = f"{run} {humanize.word(run, 'runs', 'run')}"
        said = "; ".join([runs, *(f"{_line(sighting, now)}: {DO[sighting.state]}" for sighting in troubled)])
        # What an error has ended may follow from something; what else is missed with it does not.
        facts = sorted(map(_fact_of, troubled), key=lambda found: (GONE, FAILED, UNCONNECTED, AWAITS).index(found.kind))
        yield Line(f"worker {command}", not troubled, said, facts[0] if facts else None)


def _line(sighting: Sighting, now: datetime) -> str:
    last = sighting.row.ended_at or sighting.row.seen_at
    words = f"{sighting.state} on {sighting.row.host}, process {sighting.row.pid}, last seen {humanize.ago(last, now)}"
    return f"{words}: {masked_error(sighting.row.error)}" if sighting.row.error else words


def gauges(now: datetime) -> Iterator[Reading]:
    """How many processes of each command are in which state; a command that reported within a day has all of them."""
    counts: dict[str, dict[Liveness, int]] = defaultdict(lambda: dict.fromkeys(Liveness, 0))
    for one in sightings(now):
        counts[one.row.command][one.state] += 1
    for command, states in sorted(counts.items()):
        for state, number in states.items():
            yield Reading(metrics.WORKERS, number, {"command": command, "state": state})
