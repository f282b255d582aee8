"""How many messages of a lane may leave now: GCRA for the shortest window, a quota for each longer one; pure, in ints.

Guaranteed: any span s carries at most burst + rate * s, and any quota window at most its limit. Fractions are rounded
against the sender: a spend may take up to a microsecond more than its worth. A clock that steps back grants nothing
by that; what it gains again afterwards counts as time. A quota keeps its later window until the clock is past it, or,
where that is further away than the window is long, for as long as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from throttler.limits.rate import Rates, RateWindow


class LimiterState:
    """`tat`: when all that left has had its time, in microseconds; `quota`: `[period_us, start_us, used]` each."""

    __slots__ = ("quota", "tat")

    def __init__(self, tat: int = 0, quota: list[list[int]] | None = None) -> None:
        self.tat = tat
        self.quota = [] if quota is None else quota


def take_one(rates: Rates, state: LimiterState, now_us: int) -> bool:
    """Whether one may leave now; if so it is spent."""
    if not rates.plain:
        return take_of_several(rates, state, now_us)
    tat = state.tat
    if tat <= now_us:
        state.tat = now_us + rates.interval_us
        return True
    if tat - now_us <= rates.room_us:
        state.tat = tat + rates.interval_us
        return True
    cap(rates, state, now_us)
    return False


def take_of_several(rates: Rates, state: LimiterState, now_us: int) -> bool:
    # What `allowance` and `spend` say of one message, without their divisions, and who is over the rate is refused before
    # any quota is looked at: twice as fast, and asked for every message of a customer with a quota.
    if rates.held:
        return False
    ahead = max(state.tat - now_us, 0)
    if ahead > rates.room_us:
        cap(rates, state, now_us)
        return False
    longer = rates.windows[1:]
    quotas = [quota_of(state, window, now_us) for window in longer]
    for window, quota in zip(longer, quotas, strict=True):
        if quota[2] >= window.limit:
            return False
    state.tat = now_us + ahead + rates.interval_us
    for quota in quotas:
        quota[2] += 1
    return True


def allowance(rates: Rates, state: LimiterState, now_us: int, wanted: int) -> int:
    """How many of `wanted` may leave now; spends nothing."""
    if rates.held:
        return 0
    cap(rates, state, now_us)
    shortest = rates.windows[0]
    ahead = max(state.tat - now_us, 0)
    free = min(wanted, rates.burst - -(-ahead * shortest.limit // shortest.period_us))
    for window in rates.windows[1:]:
        free = min(free, window.limit - quota_of(state, window, now_us)[2])
    return max(free, 0)


def spend(rates: Rates, state: LimiterState, now_us: int, count: int) -> None:
    """`count` left, at most as many as `allowance` said for this moment."""
    if not count:
        return
    state.tat = max(state.tat, now_us) + rates.worth_us(count)
    for window in rates.windows[1:]:
        quota_of(state, window, now_us)[2] += count


def next_due(rates: Rates, state: LimiterState, now_us: int) -> int | None:
    """When the next one may leave, `now_us` at the earliest; None: held. Nothing is changed: `now_us` may be past."""
    if rates.held:
        return None
    due = max(now_us, min(state.tat, now_us + rates.burst_us) - rates.room_us)
    for window in rates.windows[1:]:
        period = window.period_us
        start, used = next(((at, used) for of, at, used in state.quota if of == period), (0, 0))
        if start > now_us + period:  # as quota_of corrects it
            start = now_us
        if used >= window.limit and now_us < start + period:
            due = max(due, start + period)
    return due


def left_late(rates: Rates, state: LimiterState, decided_us: int, left_us: int, count: int) -> bool:
    """Let `count` that were spent count from when they left; whether that says more than the state did.

    What left in a later window than that of its decision counts in both.
    """
    tat = left_us + rates.worth_us(count)
    later = [window for window in rates.windows[1:] if left_us // window.period_us > decided_us // window.period_us]
    later_than_before = tat > state.tat or bool(later)
    state.tat = max(tat, state.tat)
    for window in later:
        quota_of(state, window, left_us)[2] += count
    return later_than_before


def adopt(rates: Rates, state: LimiterState, now_us: int) -> None:
    """A new rate, or a state read back: at most one burst is free, and a quota stays with its window.

    Hold forgets nothing, so that resuming does not give the quotas again.
    """
    if rates.held:
        return
    cap(rates, state, now_us)
    state.quota = [quota_of(state, window, now_us) for window in rates.windows[1:]]


def shift(state: LimiterState, by_us: int, now_us: int) -> None:
    """The clock went forward by `by_us` to `now_us` while that time did not pass: it gives nothing back."""
    state.tat += by_us
    for quota in state.quota:
        if now_us - by_us < quota[1] + quota[0]:
            quota[1] = now_us - now_us % quota[0]


def recovered(state: LimiterState, now_us: int) -> bool:
    """Nothing is left to remember: a fresh state would decide the same."""
    return state.tat <= now_us and not any(used and now_us < start + period for period, start, used in state.quota)


def cap(rates: Rates, state: LimiterState, now_us: int) -> None:
    # Only a clock that stepped back or a new rate puts it further ahead: nothing may leave, yet it is not stuck either.
    # Its quotas are put right here as well: who is over the rate is refused without a look at them, and told when to ask.
    if state.tat > now_us + rates.burst_us:
        state.tat = now_us + rates.burst_us
        for window in rates.windows[1:]:
            quota_of(state, window, now_us)


def quota_of(state: LimiterState, window: RateWindow, now_us: int) -> list[int]:
    period = window.period_us
    for quota in state.quota:
        if quota[0] == period:
            break
    else:
        quota = [period, 0, 0]
        state.quota.append(quota)
    if now_us >= quota[1] + period:
        quota[1], quota[2] = now_us - now_us % period, 0
    elif quota[1] > now_us + period:
        # A clock was far ahead: what it counted stays for a whole period, as the window of this moment may end at once.
        quota[1] = now_us
    return quota


def to_plain(state: LimiterState) -> tuple[list[int], list[list[int]]]:
    """`tat` and `quota` as they stand in the changelog."""
    return [state.tat], [list(one) for one in state.quota]


def from_plain(tat: Sequence[int], quota: Sequence[Sequence[int]]) -> LimiterState:
    """The state that `to_plain` gave; `adopt` comes next, as rate and clock may be others."""
    return LimiterState(tat[0] if tat else 0, [list(one) for one in quota])
