"""Values as people read them, in the admin and on a terminal: ages, rates, counts, lists, payloads."""

from __future__ import annotations

import json
import re
from datetime import datetime

from django.conf import settings
from django.utils import timezone

from config.telemetry.redaction import visible

# -- Values in words -----------------------------------------------------------------------------------------
MARKED = re.compile(r"`([^`]*)`")
MINUTE, HOUR, DAY = 60, 3600, 86_400
UNKNOWN = "–"


def length(seconds: float, *, coarse: bool = False) -> str:
    """`0.4 s`, `20 s`, `4 min 10 s`, `38 min`, `1 h 40 min`, `14 h`, `3 days`; `coarse` drops the seconds."""
    seconds = max(0.0, seconds)
    if seconds < 1 and not coarse:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < MINUTE:
        return f"{whole} s"
    if whole < 10 * MINUTE and not coarse:
        return _two(whole, MINUTE, "min", 1, "s")
    if whole < HOUR:
        return f"{whole // MINUTE} min"
    if whole < 10 * HOUR:
        return _two(whole, HOUR, "h", MINUTE, "min")
    if whole < DAY:
        return f"{whole // HOUR} h"
    return plural(whole // DAY, "day", "days")


def _two(seconds: int, large: int, large_unit: str, small: int, small_unit: str) -> str:
    rest = seconds % large // small
    return f"{seconds // large} {large_unit}" + (f" {rest} {small_unit}" if rest else "")


def ago(then: datetime | None, now: datetime) -> str:
    """`20 s ago`, or `in 1 h 1 min` for what is still to come."""
    if then is None:
        return UNKNOWN
    seconds = (now - then).total_seconds()
    # Two clocks: what happened this very second must not be announced as still to come.
    return f"in {length(-seconds, coarse=True)}" if seconds < -1 else f"{length(seconds, coarse=True)} ago"


# Times of a page are those of its reader's zone; of a terminal, and of everybody who chose none, UTC.
def clock(when: datetime, now: datetime) -> str:
    """The time, with the date when it is not today's."""
    when = timezone.localtime(when)
    return f"{when:%H:%M:%S}" if when.date() == timezone.localtime(now).date() else f"{when.day} {when:%b %Y %H:%M:%S}"


def clock_in_zone(when: datetime, now: datetime) -> str:
    """`13:41:05 CET`."""
    return f"{clock(when, now)} {zone(when)}"


def stamp(when: datetime) -> str:
    """`2026-02-12 11:00:00 CET`."""
    return f"{timezone.localtime(when):%Y-%m-%d %H:%M:%S} {zone(when)}"


def zone(when: datetime) -> str:
    """What the zone is called at that time: `CEST`; `UTC-03` where it has only a number."""
    name = timezone.localtime(when).tzname() or ""
    return name if name[:1].isalpha() else f"UTC{name}"


def plural(number: int, one: str, many: str) -> str:
    """`1 letter`, `1,064 letters`."""
    return f"{number:,} {word(number, one, many)}"


def word(number: int, one: str, many: str) -> str:
    """The same without the number, which stands beside it."""
    return one if number == 1 else many


def bounded(number: int, most: int) -> str:
    """A count with an upper bound: `10,000+`."""
    return f"{most:,}+" if number > most else f"{number:,}"


def quoted(text: str) -> str:
    """A machine's text with “quotes” where it marks names with backticks."""
    return MARKED.sub(r"“\1”", text)


def runbook(page: str) -> str:
    """Where people read a page of docs/: its address below RUNBOOK_URL, or else its path."""
    return f"{settings.RUNBOOK_URL or 'docs'}/{page}"


def rate(per_unit: float) -> str:
    """`0`, `3.5`, `14.2`, `212`: one decimal below 100."""
    return f"{per_unit:,.0f}" if per_unit >= 100 or per_unit == round(per_unit) else f"{per_unit:.1f}"


# -- Payloads in words ---------------------------------------------------------------------------------------
# JSON is indented, anything else is text, and no byte is hidden.
MOST = 65_536
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
INDENT = "  "
LINE = 72


def pretty(payload: bytes | memoryview | str | None) -> str:
    """The payload as text; longer than a page it is cut, and a line says so."""
    if payload is None:
        return "null: a tombstone"
    text = payload if isinstance(payload, str) else bytes(payload).decode("utf-8", "backslashreplace")
    if len(text) > MOST:
        return f"{visible(text[:MOST])}\n… {len(text) - MOST:,} more characters"
    return visible(indented(text) if is_json(text) else text)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def indented(text: str) -> str:
    """Indent without parsing: a key that occurs twice, or a number written as 1.50, stays as it was sent."""
    parts: list[str] = []
    depth, before = 0, ""
    for word in folded(TOKEN.findall(text)):
        if word in "}]":
            depth -= 1
            parts.append("" if before in "{[" else "\n" + INDENT * depth)
        elif before and before in "{[,":
            parts.append("\n" + INDENT * depth)
        elif before == ":":
            parts.append(" ")
        parts.append(word)
        depth += word in "{["
        before = word
    return "".join(parts)


def folded(words: list[str]) -> list[str]:
    """Innermost objects and lists that fit on a line become one token, as a person would write them."""
    result: list[str] = []
    start = -1
    for word in words:
        if word in "{[":
            start = len(result)
        result.append(word)
        if word in "}]":
            inner = "".join(f"{part} " if part in ",:" else part for part in result[start:])
            if start >= 0 and len(inner) <= LINE:
                result[start:] = [inner]
            start = -1
    return result
