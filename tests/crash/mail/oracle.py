"""The oracle of the outbox: what must have been accepted, from what was committed; no code of Spillway."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash import databases
from tests.crash.oracle import Finding

EVENTS = (
    "SELECT e.order_id, e.number, e.event_type, e.message_id, m.state, m.times_uncertain, m.times_revived, m.attempts "
    "FROM notifications_orderevent e LEFT JOIN outbox_outboxmessage m ON m.id = e.message_id"
)
UNFINISHED = "SELECT COUNT(*) FROM outbox_outboxmessage WHERE state IN ('pending', 'processing', 'uncertain')"


@dataclass(frozen=True)
class Event:
    """A committed event, and what its message looks like at the end; `name` is how the other side knows it."""

    order: str
    number: int
    name: str
    state: str
    uncertain: int
    revived: int
    attempts: int


@dataclass(frozen=True)
class Excuses:
    """What may have repeated a mail where keys are not honoured."""

    kills: int
    silences: int  # accepted, and the answer withheld, as scripted


def judge(
    committed: Sequence[Event], journal: Sequence[Mapping[str, Any]], accepted: Sequence[str], excuses: Excuses | None
) -> list[Finding]:
    """Every invariant; `accepted` are names in the order of acceptance, `excuses` None where keys are honoured."""
    repeats = {name: times for name, times in Counter(accepted).items() if times > 1}
    return [
        told_of(committed, journal),
        all_sent(committed, accepted),
        nothing_else(committed, journal, accepted),
        never_twice(repeats) if excuses is None else seldom_twice(committed, repeats, excuses),
        in_order(committed, accepted),
    ]


def told_of(committed: Sequence[Event], journal: Sequence[Mapping[str, Any]]) -> Finding:
    """The writers were not killed: what they saw committed is what is there."""
    told = {(line["order"], line["number"]) for line in journal if not line["rolled_back"]}
    there = {(event.order, event.number) for event in committed}
    orders = len({event.order for event in committed})
    return Finding(
        "what was committed is there, nothing else", f"{len(there)} events of {orders} orders", [*(told ^ there)]
    )


def all_sent(committed: Sequence[Event], accepted: Iterable[str]) -> Finding:
    """Everything left, and everything is known to have left: nothing is stuck in between."""
    known = set(accepted)
    offenders: list[Any] = [{"missing": event} for event in committed if event.name not in known]
    offenders += [{"not sent": event} for event in committed if event.state != "sent"]
    states = dict(Counter(event.state for event in committed))
    return Finding("every committed event was accepted and is sent", str(states), offenders)


def nothing_else(committed: Sequence[Event], journal: Sequence[Mapping[str, Any]], accepted: Iterable[str]) -> Finding:
    unknown = set(accepted) - {event.name for event in committed}
    rolled_back = sum(line["rolled_back"] for line in journal)
    offenders: list[Any] = [*unknown] + ([] if rolled_back else ["nothing was rolled back"])
    return Finding("nothing of a rolled-back change was sent", f"{rolled_back} rolled back", offenders)


def never_twice(repeats: Mapping[str, int]) -> Finding:
    return Finding("nothing twice at a provider that honours keys", "", [*repeats.items()])


def seldom_twice(committed: Sequence[Event], repeats: Mapping[str, int], excuses: Excuses) -> Finding:
    uncertain = {event.name for event in committed if event.uncertain}
    extra = sum(repeats.values()) - len(repeats)
    offenders: list[Any] = [{"twice, never uncertain": name} for name in repeats if name not in uncertain]
    if extra > excuses.kills + excuses.silences:
        offenders.append({"repeats": extra, "allowed": excuses})
    figures = f"{extra} repeats, {excuses.kills} kills, {excuses.silences} answers withheld, {len(uncertain)} uncertain"
    return Finding("at most one repeat per crash or withheld answer, each marked uncertain", figures, offenders)


def in_order(committed: Sequence[Event], accepted: Iterable[str]) -> Finding:
    """Of an order's messages that nobody was uncertain about, the first acceptances rise."""
    place: dict[str, int] = {}
    for position, name in enumerate(accepted):
        place.setdefault(name, position)
    of_order: defaultdict[str, list[Event]] = defaultdict(list)
    for event in sorted(committed, key=lambda event: event.number):
        if event.name in place and not event.uncertain and not event.revived:
            of_order[event.order].append(event)
    offenders = [
        {"order": order, "accepted": [(event.number, place[event.name]) for event in events]}
        for order, events in of_order.items()
        if sorted(events, key=lambda event: place[event.name]) != events
    ]
    several = sum(len(events) > 1 for events in of_order.values())
    return Finding("the mails of an order arrive in order", f"{several} orders with several", offenders)


def journals(directory: Path) -> list[dict[str, Any]]:
    files = sorted(directory.glob("*.journal"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def committed(url: str, journal: Sequence[Mapping[str, Any]], *, by_mail: bool) -> list[Event]:
    """What the database says; a sink knows the mail's Message-ID, a provider the message's id."""
    mails = {(line["order"], line["number"]): line["mail"] for line in journal}
    found = []
    for order, number, _, message, state, uncertain, revived, attempts in databases.rows(url, EVENTS):
        key = (plain(order), number)
        name = mails.get(key, "") if by_mail else plain(message)
        found.append(Event(*key, name, state or "gone", uncertain or 0, revived or 0, attempts or 0))
    return found


def plain(value: Any) -> str:
    """A UUID as every database and every journal may write it."""
    return str(value).replace("-", "")
