"""What a customer's page says: the state in a word, and the forecast in a sentence. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from config.admin import humanize
from config.flows import Tone
from throttler.admin.charts import per_second
from throttler.admin.situation import Situation
from throttler.limits.outlook import Outlook
from throttler.limits.rate import rates_text

DAY = 86_400
SOON = DAY / 2
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
    """A key of `config.admin.states.STATES`."""
    return state(found.rates.held, found.traffic.backlog, found.outlook)


def state(held: bool, backlog: int, outlook: Outlook) -> str:
    if held:
        return "on_hold"
    if not backlog:
        return "live"
    return "expiring" if soon(outlook) else "over_rate"


def soon(outlook: Outlook) -> bool:
    """Whether messages expire within half a day: what lies further ahead changes before."""
    return outlook.expires_in is not None and outlook.expires_in < SOON


def callouts(found: Situation) -> list[Callout]:
    """At most two: that nobody reports or sends exactly once, and the forecast."""
    if not found.reporting:
        return [_silence(found)]
    if not found.owned:
        return [ORPHANED]
    told = [forecast(found)]
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


def forecast(found: Situation) -> Callout | None:
    """The forecast of a customer who waits, or of one over the rate; None when there is nothing to say."""
    traffic, outlook = found.traffic, found.outlook
    if found.rates.held:
        return _held(found)
    if outlook.expires_in is None or (not traffic.backlog and outlook.lost_per_second < 0.001):
        return _gone(found) if traffic.backlog else None
    return Callout(
        "warn" if soon(outlook) else "info", "clock", starts_at(outlook, found.now), " ".join(_why(found)), advice(found)
    )  # fmt: skip


def _held(found: Situation) -> Callout:
    waiting, outlook = found.traffic.backlog, found.outlook
    end = "somebody resumes" if found.row.held else "the rate is changed: it is 0/s"
    if not waiting:
        return Callout("info", "pause", "On hold.", f"Nothing waits yet. What arrives is buffered until {end}.")
    rest = f"{humanize.plural(waiting, 'message waits', 'messages wait')} and nothing leaves until {end}."
    return Callout("warn", "pause", "On hold.", rest, starts_at(outlook, found.now))


def _gone(found: Situation) -> Callout:
    gone, at = found.outlook.gone_in, found.now
    if gone is None:
        verdict = "Nothing expires, and the backlog stays."
    else:
        verdict = f"Nothing expires; the backlog is {gone_by(at, gone)}."
    return Callout("info", "tick", verdict, " ".join(_speeds(found)))


def starts_at(outlook: Outlook, now: datetime) -> str:
    """`Messages start to expire at 09:42, in 1 h 1 min.`"""
    seconds = outlook.expires_in or 0.0
    if seconds < 1:
        return "Messages expire now."
    return f"Messages start to expire at {clock(now, seconds)}, {_in(seconds)}."


def _why(found: Situation) -> list[str]:
    told, outlook = _speeds(found), found.outlook
    if outlook.lost_per_second >= 0.001:
        told.append(
            f"From then on {per_second(outlook.lost_per_second)} a second, about {hourly(outlook)} an hour, "
            "are too old to send."
        )
    elif outlook.lost:
        told.append(
            f"Of those that wait, about {humanize.plural(outlook.lost, 'is', 'are')} too old before their turn."
        )
    return told


def hourly(outlook: Outlook) -> str:
    """What expires in an hour, to two digits: it is a forecast."""
    found = f"{outlook.lost_per_second * 3600:.2g}"
    return f"{float(found):,.0f}" if float(found) >= 1 else found


def _speeds(found: Situation) -> list[str]:
    arriving = found.timeline.arriving
    leaving = f"leave at {per_second(found.leaving)}/s" if found.leaving else "do not leave: a quota is used up"
    if arriving is None:
        return [f"They {leaving}. How fast they arrive is not measured yet; this is without new ones."]
    return [f"They arrive at {per_second(arriving)}/s and {leaving}."]


def advice(found: Situation) -> str:
    """The smallest rate that avoids the loss, as somebody would set it."""
    if found.outlook.expires_in is None:
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
