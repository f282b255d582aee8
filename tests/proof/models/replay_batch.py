"""One letter of a replay batch, two workers, a person who pauses the batch or discards the letter, and COMMITs without an answer.

It leaves out the preview, the canary, rates and what a flow does with a letter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.proof.models.explore import Model

MOST_CLAIMS = 3


class Batch(NamedTuple):
    state: str = "running"  # paused, cancelled
    token: int = 0
    leased: bool = False
    claims: int = 0
    item: str = "eligible"  # requeued, skipped
    letter: str = "open"  # requeued, discarded
    counted: int = 0  # letters that the batch says it has taken back
    effects: int = 0
    workers: tuple[int, int] = (0, 0)  # the token under which each has read the item; 0: it has nothing in its hands

    def by(self, number: int, read_under: int, **changes: object) -> Batch:
        both = list(self.workers)
        both[number] = read_under
        return self._replace(workers=(both[0], both[1]), **changes)  # type: ignore[arg-type]


GUARDS = {
    "lease": "the chunk's transaction names the lease",
    "state": "the chunk's transaction names the state of the batch",
    "item": "the items are read again under the lock of the batch",
    "letter": "a letter is taken back only from `open`",
    "count": "items and the batch's counts move in one transaction",
}


def steps(at: Batch, guards: frozenset[str]) -> Iterator[tuple[str, Batch]]:
    for number, token in enumerate(at.workers):
        name = "AB"[number]
        if not token and at.state == "running" and not at.leased and at.item == "eligible":
            claim = at.claims + 1
            yield f"{name} takes the batch", at.by(number, claim, token=claim, leased=True, claims=claim)
        if token:
            yield f"{name} dies", at.by(number, 0)
            yield from _act(at, number, token, guards)
    if at.leased:
        yield "the lease ends", at._replace(leased=False)
    if at.state == "running":
        yield "a person pauses the batch", at._replace(state="paused")
    if at.state == "paused":
        yield "a person resumes it", at._replace(state="running")
    if at.letter == "open":
        yield "a person discards the letter", at._replace(letter="discarded")


def _act(at: Batch, number: int, token: int, guards: frozenset[str]) -> Iterator[tuple[str, Batch]]:
    name = "AB"[number]
    lost = "lease" in guards and at.token != token
    if lost or ("state" in guards and at.state != "running"):
        yield f"{name} finds that the batch is not its own", at.by(number, 0)
        return
    if "item" in guards and at.item != "eligible":
        yield f"{name} finds it done", at.by(number, 0)
        return
    if "letter" in guards and at.letter != "open":
        yield f"{name} skips it", at.by(number, 0, item="skipped", leased=False)
        return
    done = {"item": "requeued", "letter": "requeued", "effects": at.effects + 1}
    counted = {"counted": at.counted + 1}
    yield f"{name} takes it back", at.by(number, 0, leased=False, **done, **counted)
    yield f"{name} takes it back, and hears nothing of its COMMIT", at._replace(**done, **counted)
    if "count" not in guards:
        yield f"{name} takes it back, and dies before it counts", at.by(number, 0, **done)


def broken(before: Batch, after: Batch) -> str:
    if after.effects > 1:
        return "took effect twice"
    if after.effects > before.effects and before.letter == "discarded":
        return "took effect although a person had discarded it"
    if after.effects > before.effects and before.state != "running":
        return "took effect although the batch was paused"
    return "the counts do not fit the items" if after.counted != (after.item == "requeued") else ""


REPLAY_BATCH = Model(
    "replay batch", Batch(), GUARDS, steps, broken, lambda at: at.item != "eligible",
    lambda at: at.claims > MOST_CLAIMS, {"lease": "one worker at a time spends the batch's rate"},
)  # fmt: skip
