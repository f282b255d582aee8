"""Rows of the throttler's tables, each figure beside what only reads or copies the same records."""

from __future__ import annotations

from functools import partial

from tests.bench.figures import at, in_turns, median, number, ratio
from tests.bench.leg import Plan
from tests.bench.throttler import delay, drain, fairness, live, restart, restore

LIVE = {1_000: 100_000, 100_000: 200_000}  # active customers, messages


def live_rows(plan: Plan) -> list[dict[str, str]]:
    return [live_row(plan, active, count // (5 if plan.quick else 1)) for active, count in LIVE.items()]


def live_row(plan: Plan, active: int, count: int) -> dict[str, str]:
    given = (plan.servers, active, count)
    runs, copied = in_turns(plan.repeat, partial(live.process, *given), partial(live.ceiling, *given))
    rates = [rate for rate, _usage in runs]
    return {
        "active customers": number(active), "messages/s": median(rates), "only copied/s": median(copied),
        "of it": ratio(rates, copied),
        "processor µs a message": median([1e6 * usage.seconds / count for _rate, usage in runs]),
        "peak MB": number(max(usage.megabytes for _rate, usage in runs)),
    }  # fmt: skip


def delay_rows(plan: Plan) -> list[dict[str, str]]:
    return [delay_row(plan, rate) for rate in (10, 1000)]


def delay_row(plan: Plan, rate: int) -> dict[str, str]:
    found = [delay.measure(plan.servers, rate, 5 if plan.quick else 15) for _ in range(plan.repeat)]
    bare = [delay.bare(plan.servers, rate, 5) for _ in range(plan.repeat)]
    cells = {f"p{share}, ms": median([at(times, share / 100) for times, _rows in found]) for share in (50, 99)}
    return {
        "messages/s": number(rate), **cells,
        **{f"Kafka alone p{share}, ms": median([at(times, share / 100) for times in bare]) for share in (50, 99)},
        "rows written/s": median([rows for _times, rows in found]),
    }  # fmt: skip


def drain_rows(plan: Plan) -> list[dict[str, str]]:
    found = [drain.measure(plan.servers, 4 if plan.quick else 8) for _ in range(1 if plan.quick else plan.repeat)]
    return [{
        "customers": number(drain.CUSTOMERS), "rate of each": drain.RATE,
        "drained, of what the rates allow": median([share for share, _over, _usage in found]),
        "largest overshoot, messages": number(max(over for _share, over, _usage in found)),
        "peak MB": number(max(usage.megabytes for _share, _over, usage in found)),
    }]  # fmt: skip


def restore_rows(plan: Plan) -> list[dict[str, str]]:
    lanes, updates = (20_000, 200_000) if plan.quick else (100_000, 1_000_000)
    found = restore.measure(plan.servers, lanes, updates, plan.repeat)
    return [{
        "lanes": number(lanes), "updates": number(updates), "restored, s": median(found["restored"]),
        "of it processor time, s": median(found["processor"]), "only read, s": median(found["read"]),
        "times that": ratio(found["restored"], found["read"]),
    }]  # fmt: skip


def restart_rows(plan: Plan) -> list[dict[str, str]]:
    lanes = 2_000 if plan.quick else 10_000
    found = [restart.measure(plan.servers, lanes) for _ in range(1 if plan.quick else plan.repeat)]
    return [{
        "lanes": number(lanes), "first message, s": median([one.first for one in found]),
        "since the process was started, s": median([one.from_start for one in found]),
        "longest pause of the other, s": median([one.others for one in found]),
        "stopped by an added partition, s": median([one.alarm for one in found]),
    }]  # fmt: skip


def fairness_rows(plan: Plan) -> list[dict[str, str]]:
    return [fairness_row(plan, processes) for processes in (1, 3)]


def fairness_row(plan: Plan, processes: int) -> dict[str, str]:
    found = [fairness.share_out(plan.servers, processes) for _ in range(1 if plan.quick else plan.repeat)]
    return {
        "processes": number(processes), "Jain's index of served / allowed": f"{min(one for one, *_ in found):.4f}",
        "of the limit that left": median([used for _index, used, *_ in found]),
        "messages of the fullest second": number(max(most for _index, _used, most, _over in found)),
        "most above limit × span, messages": number(max(over for *_, over in found)),
    }  # fmt: skip


def noisy_rows(plan: Plan) -> list[dict[str, str]]:
    beside = partial(fairness.beside, plan.servers, 5 if plan.quick else 15)
    noisy, quiet = in_turns(plan.repeat, partial(beside, noisy=True), partial(beside, noisy=False))
    return [
        {"noisy customer": word}
        | {f"p{share}, ms": median([at(times, share / 100) for times in runs]) for share in (50, 99)}
        for word, runs in (("no", quiet), ("yes", noisy))
    ]
