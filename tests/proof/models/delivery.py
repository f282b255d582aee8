"""A message and two workers that claim, open an attempt, call and settle; leases end, proof comes late.

It leaves out several messages, their order, the number of tries, and clocks that differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.proof.models.explore import Model

MOST_CLAIMS = 4


class Worker(NamedTuple):
    """`idle` is also a fresh process after a death."""

    step: str = "idle"  # claimed, opened, called
    token: int = 0
    accepted: bool = True


class Message(NamedTuple):
    state: str = "pending"
    token: int = 0
    leased: bool = False
    attempts: frozenset[int] = frozenset()  # tokens of those that are open
    accepted: frozenset[int] = frozenset()  # tokens under which the other side took it
    marked: frozenset[int] = frozenset()  # tokens of which it is written that nobody knows
    claims: int = 0
    workers: tuple[Worker, Worker] = (Worker(), Worker())

    def by(self, number: int, worker: Worker, **changes: object) -> Message:
        both = list(self.workers)
        both[number] = worker
        return self._replace(workers=(both[0], both[1]), **changes)  # type: ignore[arg-type]


GUARDS = {
    "claim": "a claim takes only what is pending",
    "attempt": "an attempt is in the database before the call",
    "fenced attempt": "an attempt is opened only under the lease's own token",
    "fence": "a settlement names the token",
    "processing": "a settlement names the state `processing`",
    "lease": "only a lease that ended is taken away",
    "mark": "an open attempt of a lost lease makes the message uncertain",
    "tried": "proof settles only what was tried",
}


def steps(at: Message, guards: frozenset[str]) -> Iterator[tuple[str, Message]]:
    for number, worker in enumerate(at.workers):
        yield from _work(at, number, worker, guards)
    if at.leased:
        yield "the lease ends", at._replace(leased=False)
    if at.state == "processing" and (not at.leased or "lease" not in guards):
        yield from _rescue(at, guards)
    if at.state == "uncertain":
        yield "it is tried again", at._replace(state="pending")
    if at.state in ("pending", "processing", "uncertain") and (at.accepted or "tried" not in guards):
        yield "proof comes", at._replace(state="sent", leased=False)


def _work(at: Message, number: int, worker: Worker, guards: frozenset[str]) -> Iterator[tuple[str, Message]]:
    name = "AB"[number]
    if worker.step == "idle":
        if at.state == "pending" or ("claim" not in guards and at.state != "sent"):
            mine = Worker("claimed", at.claims + 1)
            claimed = {"state": "processing", "token": mine.token, "leased": True, "claims": mine.token}
            yield f"{name} claims", at.by(number, mine, **claimed)
        return
    yield f"{name} dies", at.by(number, Worker())
    ours = at.token == worker.token and at.state == "processing"
    if worker.step == "claimed":
        if "fenced attempt" in guards and not ours:
            yield f"{name} finds its lease gone", at.by(number, Worker())
        else:
            opened = at.attempts | {worker.token} if "attempt" in guards else at.attempts
            yield f"{name} opens an attempt", at.by(number, worker._replace(step="opened"), attempts=opened)
    elif worker.step == "opened":
        for accepted in (True, False):
            called, word = (
                worker._replace(step="called", accepted=accepted),
                "is accepted" if accepted else "is refused for now",
            )
            tokens = at.accepted | {worker.token} if accepted else at.accepted
            yield f"{name} calls and {word}", at.by(number, called, accepted=tokens)
    elif worker.step == "called":
        fenced = "fence" in guards and at.token != worker.token
        if fenced or ("processing" in guards and at.state != "processing"):
            yield f"{name} finds its lease gone", at.by(number, Worker())
        else:
            state, closed = "sent" if worker.accepted else "pending", at.attempts - {worker.token}
            yield f"{name} settles: {state}", at.by(number, Worker(), state=state, leased=False, attempts=closed)


def _rescue(at: Message, guards: frozenset[str]) -> Iterator[tuple[str, Message]]:
    if at.token in at.attempts and "mark" in guards:
        closed, marked = at.attempts - {at.token}, at.marked | {at.token}
        yield "it is uncertain", at._replace(state="uncertain", leased=False, attempts=closed, marked=marked)
    else:
        yield "it was never tried", at._replace(state="pending", leased=False)


def broken(before: Message, after: Message) -> str:
    if len(after.accepted - after.marked) > 1:
        return "sent twice, unmarked"
    if before.state == "sent" and after.state != "sent":
        return "sent is not final"
    return "lost" if after.state == "sent" and not after.accepted else ""


DELIVERY = Model(
    "delivery", Message(), GUARDS, steps, broken, lambda at: at.state == "sent", lambda at: at.claims > MOST_CLAIMS,
    {"lease": "no message is marked, and none sent again, while its worker lives"},
)  # fmt: skip
