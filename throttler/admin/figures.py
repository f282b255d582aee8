"""The figures of a customer's page: what other rates would do, what each window allows and uses, who changed what. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from config.admin import humanize
from config.telemetry.redaction import without_addresses
from outbox.trail.models import OperatorAction
from throttler.admin.charts import per_second
from throttler.admin.situation import Situation
from throttler.admin.words import gone_by, hourly
from throttler.limits.outlook import Outlook
from throttler.limits.rate import NAMES, RateWindow, rates_text

PERIODS = {"s": "second", "min": "minute", "hour": "hour", "day": "day"}
TIMES = (1.0, 1.5, 3.0)  # the needed rate
DEEDS = {
    "set_rate_customer": ("changed the rate", "edit"),
    "set_ttl_customer": ("changed the lifetime", "clock"),
    "set_weight_customer": ("changed the weight", "edit"),
    "import_customers": ("imported the terms", "edit"),
    "hold_customer": ("held the customer", "pause"),
    "resume_customer": ("resumed the customer", "play"),
    "purge_customer": ("dropped the backlog", "ban"),
}


@dataclass(frozen=True)
class TriedRate:
    """A line of "what a new rate would do"."""

    rates: str
    backlog: str
    lost: str
    current: bool = False
    loses: bool = False

    @property
    def shown(self) -> str:
        return spaced(self.rates)


@dataclass(frozen=True)
class HistoryLine:
    """A line of the history."""

    icon: str
    who: str
    did: str
    when: datetime
    change: str
    reason: str


@dataclass(frozen=True)
class WindowUse:
    """A line of the table of rates."""

    name: str
    allowed: str
    used: str


def tried_rates(found: Situation) -> list[TriedRate]:
    """What the current rate does, the one that is enough, and larger ones."""
    tried = [found.named_rates]
    tried += [found.traffic.enough(found.named_rates, times) for times in TIMES]
    distinct = list({rates_text(rates): rates for rates in tried}.items())
    return [tried_rate(found.after(rates), text, found.now, text == distinct[0][0]) for text, rates in distinct]


def tried_rate(outlook: Outlook, text: str, now: datetime, current: bool = False) -> TriedRate:
    gone, lost = outlook.gone_in, "0"
    if outlook.expires_in is not None and outlook.lost_per_second >= 0.001:
        lost = f"{hourly(outlook)}/h"
    elif outlook.lost:
        lost = f"{outlook.lost:,}"
    backlog = "grows" if outlook.lost_per_second >= 0.001 else "stays"
    if gone is not None:
        backlog = gone_by(now, gone) if gone else "none"
    return TriedRate(text, backlog, lost, current, lost != "0")


def spaced(rates: str) -> str:
    """Rates with room for a line to end."""
    return rates.replace(";", "; ")


def uses(found: Situation) -> list[WindowUse]:
    """Each window with what is allowed and used, and the burst."""
    if found.zero:
        return [WindowUse("any", "0", "")]
    rows = [_use(window, index, found) for index, window in enumerate(found.named_rates.windows)]
    return [*rows, WindowUse("burst", f"{found.named_rates.burst:,}", "")]


def _use(window: RateWindow, index: int, found: Situation) -> WindowUse:
    name = f"per {PERIODS[NAMES[window.period_us]]}"
    if index:
        used = found.traffic.used(window.period_us)
        return WindowUse(name, f"{window.limit:,}", f"{used:,}")
    sent = found.timeline.sent
    used_rate = humanize.UNKNOWN if sent is None else per_second(sent * window.period_us / 1_000_000)
    return WindowUse(name, f"{window.limit:,}", used_rate)


def allowed(found: Situation) -> tuple[str, str]:
    """`2` and `/s` of the shortest window."""
    if found.zero:
        return "0", "/s"
    window = found.named_rates.windows[0]
    return f"{window.limit:,}", f"/{NAMES[window.period_us]}"


def quotas(found: Situation) -> str:
    """`and 150,000 a day, 26 % used`, of the longer windows."""
    told = []
    for window in found.named_rates.windows[1:]:
        share = round(100 * found.traffic.used(window.period_us) / window.limit)
        told.append(f"{window.limit:,} a {PERIODS[NAMES[window.period_us]]}, {share}\u00a0% used")
    return f"and {'; '.join(told)}" if told else ""


def growth(per_minute: float) -> str:
    """How the backlog moves, in words."""
    if abs(per_minute) < 1:
        return "stays as it is"
    return f"{'grows' if per_minute > 0 else 'shrinks'} by {humanize.rate(round(abs(per_minute), 1 if abs(per_minute) < 10 else None))} a minute"


def rates_changed(action: OperatorAction, customer_id: str) -> tuple[str, str] | None:
    """From what to what an operator action changed the rates of a customer; None: not, or nobody kept it."""
    if one := action.detail.get("rates", {}).get(customer_id):  # of a file, which may have changed the burst alone
        return (one[0], one[1]) if one[0] != one[1] else None
    before, after = action.detail.get("before", {}), action.detail.get("after", {})
    return (before["rates"], after["rates"]) if "rates" in before and "rates" in after else None


def deed(action: OperatorAction, customer_id: str) -> HistoryLine:
    """An operator action on a customer, as its page tells it."""
    did, icon = DEEDS.get(action.verb, (action.verb.replace("_", " "), "person"))
    before, after = action.detail.get("before", {}), action.detail.get("after", {})
    change = " to ".join(rates_changed(action, customer_id) or ())
    if "ttl_seconds" in after:
        change = f"{_lived(before.get('ttl_seconds'))} to {_lived(after['ttl_seconds'])}"
    if "weight" in after:
        change = f"{before.get('weight')} to {after['weight']}"
    if "file" in action.detail:
        change = ", ".join(filter(None, [change, f"from {action.detail['file']}"]))
    if action.verb == "purge_customer":
        change = humanize.plural(action.detail.get("waiting", 0), "message waited", "messages waited")
    return HistoryLine(icon, action.actor_name, did, action.created_at, change, without_addresses(action.reason))


def _lived(seconds: int | None) -> str:
    return "the default" if seconds is None else humanize.length(seconds)


def owners_line(found: Situation) -> Sequence[str]:
    """Who owns the lanes: `Owned by throttler-2, partition 5. Reported 0.4 s ago.`"""
    told = []
    for lane in found.lanes:
        owner = found.owner_of(lane)
        who = (
            f"Owned by {owner.name}, partition {lane.partition}"
            if owner
            else f"Partition {lane.partition}, no owner reports"
        )
        told.append(f"{who}, reported {humanize.ago(owner.updated_at, found.now)}." if owner else f"{who}.")
    if not told and found.reporting:
        told.append(
            f"Nothing buffered; {humanize.plural(len(found.reporting), 'throttler reports', 'throttlers report')}."
        )
    return told
