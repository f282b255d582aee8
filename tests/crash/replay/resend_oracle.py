"""The oracle of resends: one new mail for each that was asked for, however often; no code of Spillway."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.crash.oracle import Finding
from tests.crash.replay.oracle import wrongly_counted

COPIES = (
    "SELECT r.message_id, r.resent_from, m.state, m.times_uncertain, m.payload "
    "FROM outbox_resend r LEFT JOIN outbox_outboxmessage m ON m.id = r.message_id"
)
ITEMS = "SELECT batch_id, state, COUNT(*) FROM outbox_replayitem GROUP BY batch_id, state"


@dataclass(frozen=True)
class Copy:
    """A message that says again what another one said."""

    message: str
    first: str
    state: str
    uncertain: int
    mail: str  # its Message-ID


@dataclass(frozen=True)
class Seen:
    """What is there at the end, as others see it."""

    firsts: Mapping[str, str]  # Message-ID by recipient, as it was sent first
    accepted: Sequence[Mapping[str, str]]  # mails since then
    copies: Sequence[Copy]
    batches: Sequence[Mapping[str, Any]]  # as `dead_letters batches --json` prints them
    items: Sequence[tuple[int, str, int]]  # batch, state, number
    actions: Mapping[str, int]  # number by verb


def copy_of(row: Sequence[Any]) -> Copy:
    message, first, state, uncertain, payload = row
    mail = json.loads(payload)["headers"]["Message-ID"] if payload else ""
    return Copy(*(str(pk).replace("-", "") for pk in (message, first)), state or "gone", uncertain or 0, mail)


def judge(seen: Seen) -> list[Finding]:
    """Every invariant."""
    return [
        one_new_mail_each(seen),
        repeats_are_marked(seen),
        one_copy_each(seen),
        items_add_up(seen),
        acted_once(seen),
    ]


def one_new_mail_each(seen: Seen) -> Finding:
    """Of each recipient one new Message-ID, which nobody else has."""
    new: defaultdict[str, set[str]] = defaultdict(set)
    for mail in seen.accepted:
        new[mail["to"]].add(mail["message_id"])
    offenders: list[Any] = [{"of": to, "new": sorted(new[to])} for to in seen.firsts if len(new[to]) != 1]
    offenders += [{"nobody asked": to} for to in new.keys() - seen.firsts.keys()]
    shared = Counter([*seen.firsts.values(), *(one for ids in new.values() for one in ids)])
    offenders += [{"Message-ID": one, "of": times} for one, times in shared.items() if times > 1 or not one]
    return Finding("each mail was sent again by one new mail with its own Message-ID", f"{len(new)} mails", offenders)


def repeats_are_marked(seen: Seen) -> Finding:
    uncertain = {copy.mail for copy in seen.copies if copy.uncertain}
    times = Counter(mail["message_id"] for mail in seen.accepted)
    again = {one: number for one, number in times.items() if number > 1}
    figures = f"{sum(again.values()) - len(again)} repeats, {len(uncertain)} uncertain"
    return Finding(
        "what came twice is marked as uncertain", figures, [one for one in again.items() if one[0] not in uncertain]
    )


def one_copy_each(seen: Seen) -> Finding:
    """One row for each first message, sent, with an id above it."""
    of_first = Counter(copy.first for copy in seen.copies)
    offenders: list[Any] = [one for one in of_first.items() if one[1] > 1]
    offenders += [copy for copy in seen.copies if copy.state != "sent" or copy.message <= copy.first]
    if len(of_first) != len(seen.firsts):
        offenders.append({"copies of": len(of_first), "mails": len(seen.firsts)})
    return Finding(
        "each message has one copy, and it is sent", str(dict(Counter(c.state for c in seen.copies))), offenders
    )


def items_add_up(seen: Seen) -> Finding:
    """Counters are a recount; all batches together have sent each message once, and skipped it otherwise."""
    offenders = wrongly_counted(seen.batches, seen.items)
    verified, skipped = (sum(n for _, found, n in seen.items if found == state) for state in ("verified", "skipped"))
    if verified != len(seen.firsts):
        offenders.append({"verified": verified, "mails": len(seen.firsts)})
    figures = f"{verified} verified, {skipped} skipped"
    return Finding("items are what was pinned, each mail verified once", figures, offenders)


def acted_once(seen: Seen) -> Finding:
    """One operator action a batch that began."""
    began = sum(batch["started_at"] is not None for batch in seen.batches)
    offenders = [] if seen.actions.get("resend", 0) == began else [{"batches": began}]
    return Finding("one operator action a batch", str(dict(seen.actions)), offenders)
