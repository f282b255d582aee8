"""What letters of one cause have in common: the text of their error without what differs from letter to letter. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

from django.utils.text import capfirst

from config.admin import humanize
from config.fields import storable
from config.payload import digest
from config.telemetry.redaction import ADDRESS, URL_QUERY

LONGEST_READ = 1000  # characters of an error
LONGEST_TEMPLATE = 200
LONGEST_TITLE = 300
LEAST_NAME = 3  # characters of a name that is taken out wherever it stands
GAP = "…"
# Words of reasons that are no words.
ACRONYMS = {"json": "JSON", "utf8": "UTF-8", "nul": "NUL", "id": "id"}

# 'one', "two", “three”; not what is between two apostrophes, and not `names of fields`, which are part of the cause.
QUOTED = re.compile(r"“.*”|(?<!\w)'[^']*'(?!\w)|(?<!\w)\"[^\"]*\"(?!\w)", re.DOTALL)
# What a mail server or an HTTP API answers with: 550, 5.1.1, 550-5.1.1. At the start, behind a colon or behind their name.
CODE = re.compile(
    r"(?:(?:^|: |\bHTTP(?:/\d(?:\.\d)?)? |\b(?:status|code|error)(?: code)?:? )[1-5]\d\d(?:[- ][245]\.\d{1,3}\.\d{1,3})?"
    r"|(?<![\w.])[245]\.\d{1,3}\.\d{1,3})(?![\w./-])"
)
# Of a word in brackets only what is inside.
WORD = re.compile(r"[^\s()\[\]{}<>,;`…]+")
DIGIT = re.compile(r"\d")
BYTE = re.compile(r" \(byte \d+\)")
GAPS = re.compile(rf"[<(\[{{.\s-]*+{GAP}(?:[>)\]}}.\s-]*+[<(\[{{.\s-]*+{GAP})+[>)\]}}.\s-]*+")


def cause_in_words(reason: str) -> str:
    """`Invalid JSON` for `invalid_json`."""
    return capfirst(" ".join(ACRONYMS.get(word, word) for word in reason.split("_")))


def fingerprint_of(source: str, step: str, reason: str, template: str) -> str:
    """The same for letters of one cause."""
    return digest("\x1f".join((source, step, reason, template)).encode("utf-8", "replace"))


@lru_cache(maxsize=1024)  # in a storm the same text comes again and again
def template_of(text: str, name: str = "") -> str:
    """An error text without quoted values, addresses, queries of URLs, words that hold a digit, and `name`.

    Codes of SMTP and HTTP stay: they are the cause.
    """
    text = _cut(" ".join(text[: 2 * LONGEST_READ].split()), LONGEST_READ)
    text = URL_QUERY.sub(r"\1", BYTE.sub("", text))
    text = ADDRESS.sub(GAP, QUOTED.sub(GAP, text.replace("<address>", GAP)))
    if len(name) >= LEAST_NAME:
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", GAP, text)
    return _cut(GAPS.sub(f" {GAP} ", _without_numbers(text)).strip(), LONGEST_TEMPLATE)


def title_of(reason: str, template: str) -> str:
    """The cause in words, for the list of groups. Of the example it holds only what all its letters share."""
    text = f"{cause_in_words(reason)}: {humanize.quoted(template)}" if template else cause_in_words(reason)
    return storable(text, LONGEST_TITLE)


def _without_numbers(text: str) -> str:
    """Take out the words that hold a digit, between the codes."""
    parts, end = [], 0
    for code in CODE.finditer(text):
        parts += [WORD.sub(_gap, text[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, WORD.sub(_gap, text[end:])])


def _gap(word: re.Match[str]) -> str:
    if not DIGIT.search(word[0]):
        return word[0]
    ending = word[0][len(word[0].rstrip(".:!?")) :]
    return GAP + ending


def _cut(text: str, most: int) -> str:
    """At the end of a word: half a word may be all letters in one text and hold a digit in the next."""
    return text if len(text) <= most else text[:most].rpartition(" ")[0] or text[:most]
