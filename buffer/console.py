"""The levers of the buffer as the console offers them: words, rights, and when each can be pulled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from buffer import explain, levers
from config.levers import Lever, Outcome
from outbox.audit import Operator
from outbox.console import operator_of


def _pull(lever: Callable[[Sequence[Any], Operator, str], int]) -> Callable[[list[Any], Any, str], Outcome]:
    return lambda keys, user, reason: Outcome(lever(keys, operator_of(user), reason))


BUCKETS: dict[str, Any] = {"nouns": ("warehouse", "warehouses")}
FLUSH = Lever(
    name="flush", verb="Flush now", past="Asked for a batch of", icon="send",
    right="flush_bucket", keep="Not now",
    promise="Everything that waits there leaves with the next round of the flusher, seconds from now.",
    detail="An order that arrives later goes into the next batch; the warehouse gets one message more.",
    question="Flush", act=_pull(levers.flush_now),
    ready=lambda rows: rows.filter(open_count__gt=0, held=False).exclude(urged="manual"),
    why_not=explain.why_not_flush, **BUCKETS,
)  # fmt: skip
HOLD = Lever(
    name="hold", verb="Hold", past="Held", icon="pause", right="hold_bucket", keep="Let it run",
    promise="Nothing leaves until somebody releases it.",
    detail="Orders go on arriving and wait. A batch that is already cut is still published.",
    act=_pull(levers.hold), ready=lambda rows: rows.filter(held=False),
    why_not=lambda row: f"{row.location_id} is held already.", **BUCKETS,
)  # fmt: skip
RELEASE = Lever(
    name="release", verb="Release", past="Released", icon="play", right="hold_bucket", keep="Keep holding",
    promise="What waits there is judged at once.",
    detail="Orders that waited longer than the cap leave with the next round of the flusher.",
    act=_pull(levers.release), ready=lambda rows: rows.filter(held=True),
    why_not=lambda row: f"{row.location_id} is not held.", **BUCKETS,
)  # fmt: skip
WITHDRAW = Lever(
    name="withdraw", verb="Withdraw", past="Withdrew", icon="ban",
    right="withdraw_bufferedevent", keep="Leave it in",
    nouns=("order", "orders"),
    promise="It will not be in the next batch.",
    detail="A withdrawn order is marked as discarded, not deleted. A batch that is cut in the meantime wins.",
    act=_pull(levers.withdraw), ready=lambda rows: rows.filter(status="pending"),
    why_not=explain.why_not_withdraw, harm=True, least=10,
)  # fmt: skip
