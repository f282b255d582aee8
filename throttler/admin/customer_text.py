"""What a customer's page says: state, forecast and figures in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from config.admin import humanize
from config.redelivery import Tone
from config.telemetry.redaction import without_addresses
from outbox.audit_log.models import OperatorAction
from throttler.admin.charts import per_second
from throttler.customers.situation import Situation
from throttler.limits.forecast import Forecast
from throttler.limits.rate import NAMES, RateWindow, rates_text

# -- What a customer's page says: the state in a word, and the forecast in a sentence. Pure ------------------
DAY = 86_400
FAR = 1000 * DAY


@dataclass(frozen=True)
class Callout:
    """What to know before acting: bold first words, the rest, and in bold what would help."""

    tone: Tone
    icon: str
    verdict: str
    rest: str = ""
    advice: str = ""


ORPHANED = Callout(
    "bad", "octagon", "No throttler owns what waits.",
    "Others report, and none of them has its partition. When a process ends or comes back this takes some seconds; if it "
    "stays, nothing leaves until one takes it over.",
)  # fmt: skip


def state_of(found: Situation) -> str:
    """A key of `config.admin.html.STATES`."""
    if found.rates.held:
        return "on_hold"
    if not found.traffic.backlog:
        return "live"
    return "expiring" if found.soon else "over_rate"


def callouts(found: Situation) -> list[Callout]:
    """At most two: that nobody reports or sends exactly once, and the forecast."""
    if not found.reporting:
        return [_silence(found)]
    if not found.owned:
        return [ORPHANED]
    told = [forecast_callout(found)]
    if found.at_least_once:
        told.insert(0, Callout(
            "info", "question", "At least once.",
            "The throttler runs without Kafka's transactions (KAFKA_TRANSACTIONS=off): after a crash some messages leave twice.",
        ))  # fmt: skip
    return [one for one in told if one]


def _silence(found: Situation) -> Callout:
    since = (
        f"the last report came {humanize.ago(found.last_report, found.now)}" if found.last_report else "none ever did"
    )
    return Callout(
        "bad", "octagon", "No throttler reports.",
        f"Each does once a second; {since}. What arrives waits in Kafka, and the numbers below are those of the last report. "
        "There is no forecast until one reports.",
    )  # fmt: skip


def forecast_callout(found: Situation) -> Callout | None:
    """The forecast of a customer who waits, or of one over the rate; None when there is nothing to say."""
    traffic, forecast = found.traffic, found.forecast
    if found.rates.held:
        return _held(found)
    if forecast.expires_in is None or (not traffic.backlog and forecast.lost_per_second < 0.001):
        return _gone(found) if traffic.backlog else None
    return Callout(
        "warn" if found.soon else "info", "clock", starts_at(forecast, found.now), " ".join(_why(found)), advice(found)
    )  # fmt: skip


def _held(found: Situation) -> Callout:
    waiting, forecast = found.traffic.backlog, found.forecast
    end = "somebody resumes" if found.row.held else "the rate is changed: it is 0/s"
    if not waiting:
        return Callout("info", "pause", "On hold.", f"Nothing waits yet. What arrives is buffered until {end}.")
    rest = f"{humanize.plural(waiting, 'message waits', 'messages wait')} and nothing leaves until {end}."
    return Callout("warn", "pause", "On hold.", rest, starts_at(forecast, found.now))


def _gone(found: Situation) -> Callout:
    gone, at = found.forecast.gone_in, found.now
    if gone is None:
        verdict = "Nothing expires, and the backlog stays."
    else:
        verdict = f"Nothing expires; the backlog is {gone_by(at, gone)}."
    return Callout("info", "tick", verdict, " ".join(_speeds(found)))


def starts_at(forecast: Forecast, now: datetime) -> str:
    """`Messages start to expire at 09:42, in 1 h 1 min.`"""
    seconds = forecast.expires_in or 0.0
    if seconds < 1:
        return "Messages expire now."
    return f"Messages start to expire at {clock(now, seconds)}, {_in(seconds)}."


def _why(found: Situation) -> list[str]:
    told, forecast = _speeds(found), found.forecast
    if forecast.lost_per_second >= 0.001:
        told.append(
            f"From then on {per_second(forecast.lost_per_second)} a second, about {hourly(forecast)} an hour, "
            "are too old to send."
        )
    elif forecast.lost:
        told.append(
            f"Of those that wait, about {humanize.plural(forecast.lost, 'is', 'are')} too old before their turn."
        )
    return told


def hourly(forecast: Forecast) -> str:
    """What expires in an hour, to two digits: it is a forecast."""
    found = f"{forecast.lost_per_second * 3600:.2g}"
    return f"{float(found):,.0f}" if float(found) >= 1 else found


def _speeds(found: Situation) -> list[str]:
    arriving = found.timeline.arriving
    leaving = (
        f"leave at {per_second(found.forecast.leaving)}/s"
        if found.forecast.leaving
        else "do not leave: a quota is used up"
    )
    if arriving is None:
        return [f"They {leaving}. How fast they arrive is not measured yet; this is without new ones."]
    return [f"They arrive at {per_second(arriving)}/s and {leaving}."]


def advice(found: Situation) -> str:
    """The smallest rate that avoids the loss, as somebody would set it."""
    if found.forecast.expires_in is None:
        return ""
    enough = found.traffic.enough(found.named_rates)
    if found.traffic.oldest >= found.traffic.ttl:
        return f"A rate of {rates_text(enough)} or more keeps the messages that come from now on."
    return f"A rate of {rates_text(enough)} or more keeps every message."


def clock(now: datetime, seconds: float) -> str:
    """The UTC time so many seconds from now, with the date when it is not today."""
    when = (now + timedelta(seconds=min(seconds, FAR))).astimezone(UTC)
    return f"{when:%H:%M}" if when.date() == now.astimezone(UTC).date() else f"{when.day} {when:%b %H:%M}"


def gone_by(now: datetime, seconds: float) -> str:
    """`gone by 09:12`; beyond two days the length of time says more."""
    return f"gone by {clock(now, seconds)}" if seconds < 2 * DAY else f"gone {_in(min(seconds, FAR))}"


def _in(seconds: float) -> str:
    return f"in {humanize.length(seconds, coarse=True)}"


# -- The figures of a customer's page ------------------------------------------------------------------------
# What other rates would do, what each window allows and uses, who changed what. Pure.
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
    return [tried_rate(found.at(rates), text, found.now, text == distinct[0][0]) for text, rates in distinct]


def tried_rate(forecast: Forecast, text: str, now: datetime, current: bool = False) -> TriedRate:
    gone, lost = forecast.gone_in, "0"
    if forecast.expires_in is not None and forecast.lost_per_second >= 0.001:
        lost = f"{hourly(forecast)}/h"
    elif forecast.lost:
        lost = f"{forecast.lost:,}"
    backlog = "grows" if forecast.lost_per_second >= 0.001 else "stays"
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
