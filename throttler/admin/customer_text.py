"""What a customer's page says: state, forecast and figures in words. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.dateparse import parse_datetime

from config.admin import humanize
from config.letters import Tone
from config.telemetry.redaction import without_addresses
from outbox.audit_log.models import OperatorAction
from throttler.admin.charts import per_second
from throttler.customers.situation import Situation
from throttler.limits.forecast import Forecast
from throttler.limits.rate import NAMES, RateWindow, rates_text

# -- State and forecast in words -----------------------------------------------------------------------------
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


def state_of(situation: Situation) -> str:
    """A key of `config.admin.html.STATES`."""
    if situation.rates.held:
        return "on_hold"
    if not situation.traffic.backlog:
        return "live"
    return "expiring" if situation.soon else "over_rate"


def callouts(situation: Situation) -> list[Callout]:
    """At most two: that nobody reports or sends exactly once, and the forecast."""
    if not situation.reporting:
        return [_silence(situation)]
    if not situation.owned:
        return [ORPHANED]
    shown = [forecast_callout(situation)]
    if situation.at_least_once:
        shown.insert(0, Callout(
            "info", "question", "At least once.",
            "The throttler runs without Kafka's transactions (KAFKA_TRANSACTIONS=off): after a crash some messages leave twice.",
        ))  # fmt: skip
    return [one for one in shown if one]


def _silence(situation: Situation) -> Callout:
    since = (
        f"the last report came {humanize.ago(situation.last_report, situation.now)}"
        if situation.last_report
        else "none ever did"
    )
    return Callout(
        "bad", "octagon", "No throttler reports.",
        f"Each does once a second; {since}. What arrives waits in Kafka, and the numbers below are those of the last report. "
        "There is no forecast until one reports.",
    )  # fmt: skip


def forecast_callout(situation: Situation) -> Callout | None:
    """The forecast of a customer who waits, or of one over the rate; None when there is nothing to say."""
    traffic, forecast = situation.traffic, situation.forecast
    if situation.rates.held:
        return _held(situation)
    if forecast.expires_in is None or (not traffic.backlog and forecast.lost_per_second < 0.001):
        return _gone(situation) if traffic.backlog else None
    return Callout(
        "warn" if situation.soon else "info", "clock", starts_at(forecast, situation.now), " ".join(_why(situation)), advice(situation)
    )  # fmt: skip


def _held(situation: Situation) -> Callout:
    waiting, forecast = situation.traffic.backlog, situation.forecast
    end = "somebody resumes" if situation.row.held else "the rate is changed: it is 0/s"
    if not waiting:
        return Callout("info", "pause", "On hold.", f"Nothing waits yet. What arrives is buffered until {end}.")
    rest = f"{humanize.plural(waiting, 'message waits', 'messages wait')} and nothing leaves until {end}."
    return Callout("warn", "pause", "On hold.", rest, starts_at(forecast, situation.now))


def _gone(situation: Situation) -> Callout:
    gone, at = situation.forecast.gone_in, situation.now
    if gone is None:
        verdict = "Nothing expires, and the backlog stays."
    else:
        verdict = f"Nothing expires; the backlog is {gone_by(at, gone)}."
    return Callout("info", "tick", verdict, " ".join(_speeds(situation)))


def starts_at(forecast: Forecast, now: datetime) -> str:
    """`Messages start to expire at 09:42, in 1 h 1 min.`"""
    seconds = forecast.expires_in or 0.0
    if seconds < 1:
        return "Messages expire now."
    return f"Messages start to expire at {clock(now, seconds)}, {_in(seconds)}."


def _why(situation: Situation) -> list[str]:
    sentences, forecast = _speeds(situation), situation.forecast
    if forecast.lost_per_second >= 0.001:
        sentences.append(
            f"From then on {per_second(forecast.lost_per_second)} a second, about {hourly(forecast)} an hour, "
            "are too old to send."
        )
    elif forecast.lost:
        sentences.append(
            f"Of those that wait, about {humanize.plural(forecast.lost, 'is', 'are')} too old before their turn."
        )
    return sentences


def hourly(forecast: Forecast) -> str:
    """What expires in an hour, to two digits: it is a forecast."""
    number = f"{forecast.lost_per_second * 3600:.2g}"
    return f"{float(number):,.0f}" if float(number) >= 1 else number


def _speeds(situation: Situation) -> list[str]:
    arriving = situation.timeline.arriving
    leaving = (
        f"leave at {per_second(situation.forecast.leaving)}/s"
        if situation.forecast.leaving
        else "do not leave: a quota is used up"
    )
    if arriving is None:
        return [f"They {leaving}. How fast they arrive is not measured yet; this is without new ones."]
    return [f"They arrive at {per_second(arriving)}/s and {leaving}."]


def advice(situation: Situation) -> str:
    """The smallest rate that avoids the loss, as somebody would set it."""
    if situation.forecast.expires_in is None:
        return ""
    enough = situation.traffic.enough(situation.named_rates)
    if situation.traffic.oldest >= situation.traffic.ttl:
        return f"A rate of {rates_text(enough)} or more keeps the messages that come from now on."
    return f"A rate of {rates_text(enough)} or more keeps every message."


def clock(now: datetime, seconds: float) -> str:
    """The time so many seconds from now, with the date when it is not today."""
    when = now + timedelta(seconds=min(seconds, FAR))
    when = timezone.localtime(when)
    return f"{when:%H:%M}" if when.date() == timezone.localtime(now).date() else f"{when.day} {when:%b %H:%M}"


def gone_by(now: datetime, seconds: float) -> str:
    """`gone by 09:12`; beyond two days the length of time says more."""
    return f"gone by {clock(now, seconds)}" if seconds < 2 * DAY else f"gone {_in(min(seconds, FAR))}"


def _in(seconds: float) -> str:
    return f"in {humanize.length(seconds, coarse=True)}"


# -- Figures, and who changed what ---------------------------------------------------------------------------
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


def tried_rates(situation: Situation) -> list[TriedRate]:
    """What the current rate does, the one that is enough, and larger ones."""
    tried = [situation.named_rates]
    tried += [situation.traffic.enough(situation.named_rates, times) for times in TIMES]
    distinct = list({rates_text(rates): rates for rates in tried}.items())
    return [tried_rate(situation.at(rates), text, situation.now, text == distinct[0][0]) for text, rates in distinct]


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


def uses(situation: Situation) -> list[WindowUse]:
    """Each window with what is allowed and used, and the burst."""
    if situation.zero:
        return [WindowUse("any", "0", "")]
    rows = [_use(window, index, situation) for index, window in enumerate(situation.named_rates.windows)]
    return [*rows, WindowUse("burst", f"{situation.named_rates.burst:,}", "")]


def _use(window: RateWindow, index: int, situation: Situation) -> WindowUse:
    name = f"per {PERIODS[NAMES[window.period_us]]}"
    if index:
        used = situation.traffic.used(window.period_us)
        return WindowUse(name, f"{window.limit:,}", f"{used:,}")
    sent = situation.timeline.sent
    used_rate = humanize.UNKNOWN if sent is None else per_second(sent * window.period_us / 1_000_000)
    return WindowUse(name, f"{window.limit:,}", used_rate)


def allowed(situation: Situation) -> tuple[str, str]:
    """`2` and `/s` of the shortest window."""
    if situation.zero:
        return "0", "/s"
    window = situation.named_rates.windows[0]
    return f"{window.limit:,}", f"/{NAMES[window.period_us]}"


def quotas(situation: Situation) -> str:
    """`and 150,000 a day, 26 % used`, of the longer windows."""
    uses = []
    for window in situation.named_rates.windows[1:]:
        share = round(100 * situation.traffic.used(window.period_us) / window.limit)
        uses.append(f"{window.limit:,} a {PERIODS[NAMES[window.period_us]]}, {share}\u00a0% used")
    return f"and {'; '.join(uses)}" if uses else ""


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


def history_line(action: OperatorAction, customer_id: str) -> HistoryLine:
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
        waited = humanize.plural(action.detail.get("waiting", 0), "message waited", "messages waited")
        until = parse_datetime(str(after.get("purge_before", "")))
        change = f"up to {humanize.clock_in_zone(until, action.created_at)}, {waited}" if until else waited
    return HistoryLine(icon, action.actor_name, did, action.created_at, change, without_addresses(action.reason))


def _lived(seconds: int | None) -> str:
    return "the default" if seconds is None else humanize.length(seconds)


def owners_line(situation: Situation) -> Sequence[str]:
    """Who owns the lanes: `Owned by throttler-2, partition 5. Reported 0.4 s ago.`"""
    sentences = []
    for lane in situation.lanes:
        owner = situation.owner_of(lane)
        who = (
            f"Owned by {owner.name}, partition {lane.partition}"
            if owner
            else f"Partition {lane.partition}, no owner reports"
        )
        sentences.append(f"{who}, reported {humanize.ago(owner.updated_at, situation.now)}." if owner else f"{who}.")
    if not sentences and situation.reporting:
        sentences.append(
            f"Nothing buffered; {humanize.plural(len(situation.reporting), 'throttler reports', 'throttlers report')}."
        )
    return sentences
