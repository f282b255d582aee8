"""Texts without what not everybody may see: rows that a database repeats in an error, e-mail addresses, search keys."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any

# All patterns here run over texts of strangers in linear time: a match begins where a word does and gives nothing back.
ADDRESS = re.compile(r"(?<![^\s<>@,;:\"'])[^\s<>@,;:\"']++@[^\s<>@,;:\"']+")
# Of a word from the first :// on; another :// behind it is part of that URL.
URL_QUERY = re.compile(r"(?<!\S)((?>\S*?\w://)[^\s?#]++)[?#]\S*")
# PostgreSQL says the whole row below its message. MySQL and MariaDB say a value in it, PostgreSQL some, too.
ROW = re.compile(r"(?<!\s)\s*\n(?:DETAIL|CONTEXT):.*", re.DOTALL)
# What stands in front of a value and behind it; \0 is the end of the text.
VALUES = (("entry '", "' for key"), ("value: '", "' for "), (': "', '"\0'), (': "', '"\n'))
MOST_CAUSES = 20
QUERY = re.compile(r"\?.*", re.DOTALL)


def without_values(text: str) -> str:
    """The text of a database's error without the row or the value that it repeats."""
    text = f"{ROW.sub('', text)}\0"
    for opening, closing in VALUES:
        start, end = text.find(opening), text.rfind(closing)
        if 0 <= start < end - len(opening) + 1:
            start += len(opening) - 1
            text = f"{text[:start]}…{text[end + 1 :]}"
    return text[:-1]


def without_addresses(text: str) -> str:
    return ADDRESS.sub("<address>", text)


def said(error: BaseException) -> str:
    """What an error says, without values."""
    return without_values(str(error)).strip()


def trace_of(error: BaseException | None, hide: Callable[[str], str] = str) -> str:
    """The traceback of an error and of its causes, without values and addresses; `hide` takes more out of what they say."""
    text = "".join(traceback.format_exception(error)) if error else ""
    for _ in range(MOST_CAUSES):
        if error is None:
            break
        if str(error):
            text = text.replace(str(error), hide(said(error)))
        error = error.__cause__ or error.__context__
    return without_addresses(text)


def redact(logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
    """A structlog processor: the field `error` without values and addresses."""
    if isinstance(event.get("error"), str):
        event["error"] = without_addresses(without_values(event["error"]))
    return event


def without_query(attributes: dict[str, Any]) -> dict[str, Any]:
    """Those attributes of a request's span that hold a query string, without it: search keys can be addresses."""
    cut = {
        name: QUERY.sub("", attributes[name]) for name in ("http.target", "http.url", "url.full") if name in attributes
    }
    return cut | ({"url.query": ""} if "url.query" in attributes else {})
