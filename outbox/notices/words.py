"""What a notice says: one incident in a few lines, or several as a list; and which incident of a service it is about."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from django.conf import settings
from django.urls import reverse

from config.admin import humanize
from outbox.notices.addresses import Words
from outbox.notices.models import URGENCIES, Incident, Notice, Subscription

Phase = Notice.Phase

# One incident in a few lines, or several as a list; no payload, nothing that calls a whole channel.
MOST_LINES = 20
FORGOTTEN = timedelta(days=1)  # a worker that was not heard of for so long is not watched any more
KINDS_OF_APPRISE = {"now": "failure", "soon": "warning", "watch": "info"}
BEGINNINGS = {
    Phase.RETURNED: "Back again: ",
    Phase.REMINDED: "Still: ",
    Phase.RESOLVED: "Over: ",
    Phase.SETTLED: "Over, and not back since: ",
}
ENDS = (Phase.RESOLVED, Phase.SETTLED)
REPEAT = "This may be a repeat: an earlier try was cut off before anybody answered."
TEST = "Nothing is wrong. Somebody asked for this to see whether notices arrive here."
# What chat services read as a call to everybody, or as a link with other words; and what steers a terminal.
CALLS = re.compile(r"([@<])(?=[!@#\w])")
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]+")


def words_of(notices: Sequence[Notice], subscription: Subscription, now: datetime) -> Words:
    """One incident with all that is known, several as a list of headlines."""
    name = " ".join(filter(None, ["Spillway", settings.ENVIRONMENT_NAME]))
    if len(notices) == 1:
        notice = notices[0]
        lines = [*_facts(notice, subscription, now), *([REPEAT] if notice.repeat else []), _link(notice.url)]
        title = headline(notice)
    else:
        title = _count(notices)
        lines = [f"• {headline(notice)}{_amount(notice)}" for notice in notices[:MOST_LINES]]
        if rest := len(notices) - MOST_LINES:
            lines += [f"and {rest:,} more"] if rest > 0 else []
        lines += [REPEAT] if any(notice.repeat for notice in notices) else []
        lines += [_link(reverse("admin:index"))]
    title, text = harmless(f"[{name}] {title}")[:250], harmless("\n".join(filter(None, lines)))[:3500]
    return Words(title, text, _kind(notices), key_of(notices[0]), over=all(map(says_over, notices)))


def key_of(notice: Notice) -> str:
    """The same for all that is said of an incident in an episode, to whomever: services that keep incidents know it by that."""
    incident = notice.incident
    about = (incident.kind, incident.key, notice.episode) if incident else ("test", notice.pk)
    names = [settings.SITE_URL, settings.ENVIRONMENT_NAME, *map(str, about)]
    return f"spillway-{hashlib.sha256(json.dumps(names).encode()).hexdigest()[:40]}"


def headline(notice: Notice) -> str:
    """`Over: Dead: relay_outbox on db-1, process 12`."""
    if notice.incident is None:
        return "A test"
    begin = BEGINNINGS.get(Phase(notice.phase), "")
    if is_over(notice) and notice.phase not in ENDS:
        begin = "Was, and is over: "
    return f"{begin}{notice.incident.title}"


def is_over(notice: Notice) -> bool:
    """Whether what it is about has ended by now, or has ended and begun anew."""
    incident = notice.incident
    return incident is not None and (incident.over_at is not None or incident.episode != notice.episode)


def says_over(notice: Notice) -> bool:
    """Whether it is told as an end: also a beginning is, of what is over by now."""
    return notice.phase in ENDS or is_over(notice)


def _facts(notice: Notice, subscription: Subscription, now: datetime) -> list[str]:
    incident = notice.incident
    if incident is None:
        return [TEST]
    if says_over(notice):
        return [_how_it_ended(incident, subscription, now)]
    amount = f"{incident.amount}, since" if incident.amount else "Since"
    facts = [incident.why, f"{amount} {_clock(incident.opened_at, subscription)}."]
    if notice.phase == Phase.RETURNED:
        facts.append("It comes and goes: the next notice says when it has stayed away, or that it is still there.")
    return facts


def _how_it_ended(incident: Incident, subscription: Subscription, now: datetime) -> str:
    end = incident.over_at or now
    if incident.kind == "worker" and end - incident.opened_at >= FORGOTTEN:
        return "Nothing was heard of it for a day: it is not watched any more."
    lasted = humanize.length((end - incident.opened_at).total_seconds(), coarse=True)
    times = f" It came back {humanize.plural(incident.returns, 'time', 'times')}." if incident.returns else ""
    return f"From {_clock(incident.opened_at, subscription)}, for {lasted}.{times}"


def _clock(when: datetime, subscription: Subscription) -> str:
    local = when.astimezone(ZoneInfo(subscription.zone))
    return f"{local:%d %b %H:%M} {subscription.zone}"


def _amount(notice: Notice) -> str:
    incident = notice.incident
    return f" ({incident.amount})" if incident and incident.amount and not says_over(notice) else ""


def _count(notices: Sequence[Notice]) -> str:
    over = sum(map(says_over, notices))
    here = len(notices) - over
    parts = [
        humanize.plural(here, "thing needs you", "things need you") if here else "",
        humanize.plural(over, "is over", "are over") if over else "",
    ]
    return ", ".join(filter(None, parts))


def _kind(notices: Sequence[Notice]) -> str:
    there = [notice.incident.urgency for notice in notices if notice.incident and not says_over(notice)]
    if not there:
        return "info" if any(notice.incident is None for notice in notices) else "success"
    return KINDS_OF_APPRISE[min(there, key=URGENCIES.index)]


def _link(url: str) -> str:
    return f"{settings.SITE_URL}{url}" if settings.SITE_URL else ""


def harmless(text: str) -> str:
    """Names and errors come from outside: they call nobody and steer nothing."""
    return CALLS.sub("\\1\u200b", CONTROL.sub(" ", text))
