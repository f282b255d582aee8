"""Texts for people: what not everybody may read is left out (redaction, masks), and what a terminal would obey is written out."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

from django.conf import settings

from config.environment.env import Env

# -- Errors and URLs without values and addresses ------------------------------------------------------------
# All patterns here run over texts of strangers in linear time: a match begins where a word does and gives nothing back.
ADDRESS = re.compile(r"(?:\"[^\"\n]*+\"|(?<![^\s<>@,;:\"'])[^\s<>@,;:\"']++)@[^\s<>@,;:\"']+")
# The @ as others write it: of a URL, JSON, HTML, East Asian keyboards, UTF-7; and where it may as well be a number: of the admin's
# URLs (ada_40example.com), quoted-printable, SMTP's xtext.
AT = r"%(?:25){0,4}40|\\{1,4}(?:[uU](?:0{2,6}40|\{0*40\}|[fF]{2}20)|x40)|&(?:amp;){0,4}(?:\#0*64|\#[xX]0*40|commat)(?!\w);?|[＠﹫]|\+AEA-"
MAYBE_AT = r"[_=+]40"
SPELT = r"=[0-9A-F]{2}|&\#?\w{1,8};|\\{1,4}[uUx][0-9a-fA-F]{2,4}"  # another character that is written so
# A match begins where a word does and looks over at most four words of 64 letters: the time it takes is linear, too.
ESCAPED = re.compile(
    rf"(?<![\w.+%-])(?:[\w.+%-]{{0,64}}(?:{SPELT})){{0,4}}[\w.+%-]+?(?:(?:{AT})(?=[\w\[])|(?:{MAYBE_AT})(?=[A-Za-z0-9.-]*\.[^\W\d_]))"
    rf"(?:[\w.%\[\]-]|{SPELT})++"
)
# Of a word from the first :// on; another :// behind it is part of that URL.
URL_QUERY = re.compile(r"(?<!\S)((?>\S*?\w://)[^\s?#]++)[?#]\S*")
# PostgreSQL says the whole row below its message. MySQL and MariaDB say a value in it, PostgreSQL some, too.
ROW = re.compile(r"(?<!\s)\s*\n(?:DETAIL|CONTEXT):.*", re.DOTALL)
# What stands in front of a value and behind it; \0 is the end of the text.
VALUES = (("entry '", "' for key"), ("value: '", "' for "), (': "', '"\0'), (': "', '"\n'))
MOST_CAUSES = 20
QUERY = re.compile(r"\?.*", re.DOTALL)
# Of a word that is a path.
PATH_QUERY = re.compile(r"((?<![^\s\"'(])/[^\s?#]*+)[?#][^\s\"']*")
# What opens something: of a link that sets a password, of the API's tokens, of any header.
SECRET = re.compile(
    r"(?<![\w-])(?:[0-9a-z]{1,13}-[0-9a-f]{32,64}|spillway_[0-9a-f]{12}_[\w-]{8,})(?![\w-])|(?<=\b[Bb]earer )[^\s\"']+",
    re.ASCII,
)
ORIGIN = re.compile(r"\A(?:\w+://[^/]*)?")  # what stands in front of the path, if anything
URLS = ("http.target", "http.url", "url.full", "url.path")


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
    """Neither as they are nor as others spell them."""
    return ESCAPED.sub("<address>", ADDRESS.sub("<address>", text))


def error_text(error: BaseException) -> str:
    """What an error says, without values."""
    return without_values(str(error)).strip()


def one_line(error: BaseException) -> str:
    """What an error says, on one line, behind its class unless it says that itself, as those of the Kafka client do."""
    text = " ".join(str(error).split())
    return text if type(error).__name__ in text else f"{type(error).__name__}: {text}"


def trace_of(error: BaseException | None, hide: Callable[[str], str] = str) -> str:
    """The traceback of an error and of its causes, without values and addresses; `hide` takes more out of what they say."""
    text = "".join(traceback.format_exception(error)) if error else ""
    for _ in range(MOST_CAUSES):
        if error is None:
            break
        if str(error):
            text = text.replace(str(error), hide(error_text(error)))
        error = error.__cause__ or error.__context__
    return without_addresses(text)


# Ids that others choose: somebody may call an order, or himself, by an address.
CHOSEN = {
    "order_id", "aggregate", "business_key", "correlation_id", "customer_id", "location_id", "reference_id",
    "event_type", "notification_id", "by", "subject_id", "location", "customer",
}  # fmt: skip

TOLD = {"error", "why", "reason", "path"}  # words of others


def redact(event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """A line whose words of others have lost values and addresses, and whose ids of others addresses."""
    for name, value in event.items():
        if name in TOLD:
            if isinstance(value, str):
                value = without_values(value)
                event[name] = _without_addresses_in_path(value) if name == "path" else without_addresses(value)
        elif name in CHOSEN:
            if isinstance(value, list):
                event[name] = list(map(_redacted, value))
            else:
                event[name] = _redacted(value)
    return event


def _redacted(value: object) -> object:
    """An id without an address, if it holds a character that an @ is spelt with: one look for one costs next to nothing.

    A 40 alone is no sign of one: ids are full of numbers.
    """
    if isinstance(value, str) and ("@" in value or "%" in value or "\\" in value or "&" in value or "＠" in value):
        return without_addresses(value)
    return value


def of_others(text: str) -> str:
    """A text that somebody else's program wrote to the log: without values, addresses, queries and secrets."""
    text = PATH_QUERY.sub(r"\1", URL_QUERY.sub(r"\1", without_values(text)))
    return without_addresses(SECRET.sub("<secret>", text))


def _without_addresses_in_path(url: str) -> str:
    """Of a path, or a URL without its query: what stands beside an address stays."""
    return "/".join(map(without_addresses, SECRET.sub("<secret>", url).split("/")))


def without_query(attributes: Mapping[str, str], path: str = "") -> dict[str, str]:
    """Those attributes of a request's span that hold a query string, without it: search keys can be addresses.

    So can be a part of the path, which is left out alone. `path` stands in them instead of one that holds a secret.
    """
    cut = {name: _without_addresses_in_path(QUERY.sub("", attributes[name])) for name in URLS if name in attributes}
    if path:
        cut = {name: ORIGIN.findall(url)[0] + path for name, url in cut.items()}
    return cut | ({"url.query": ""} if "url.query" in attributes else {})


# -- Masks of payloads and error texts, pure -----------------------------------------------------------------
DOTS = "••••"
MOST_DEPTH = 100
# A readable value is an identifier, a number or a time. A sentence or an address in its place is not.
PLAIN = re.compile(r"[\w.:/+-]{1,100}", re.ASCII)

NAME = re.compile(r"[\w-]+", re.ASCII)

# Cut inside a value, a text has no closing quote.
QUOTED = re.compile(r"“[^”]*+(?:”|\Z)|(?<!\w)'[^']*'(?!\w)|(?<!\w)\"[^\"]*\"(?!\w)", re.DOTALL)
# What a mail server or an HTTP API answers with: 550, 5.1.1, 550-5.1.1.
CODE = re.compile(r"[1-5]\d\d(?:[- ][245]\.\d{1,3}\.\d{1,3})?|[245]\.\d{1,3}\.\d{1,3}")
WORD = re.compile(r"[^\s()\[\]{}<>,;`…•]+")
PLACE = re.compile(r"\$(?:\.[A-Za-z_]+)*\.?")  # in a record, as a gate says it
# How a gate ends what it says of a record. A position in a list is no value of it; any other number may be one.
NAMES = r"(?:\.[A-Za-z_]+)*"
AT_PLACE = re.compile(rf" - at `\${NAMES}(?:\[(?:[0-9]{{1,4}}|\.\.\.)\]{NAMES}){{0,3}}`\.?\Z")
ENDING = ".:!?"
# A word that a program's author wrote: no digit, no six capitals in a row.
SPOKEN = re.compile(r"(?!.*[A-Z]{6})[^\W\d_][^\W\d]*(?:[-/'’][^\W\d]+)*")


# What Spillway itself says, and no payload does: numbers of the log and of sizes, and options of its commands.
COUNTED = re.compile(
    r"(?<![\w.-])("
    r"offsets? (?:below )?\d{1,19}(?: to \d{1,19})?|partition \d{1,9}|the log ends at \d{1,19}|but \d{1,19}(?= was already read)"
    r"|the changelog says \d{1,19}|go on from \d{1,19}|(?<=the log was )truncated at \d{1,19}|from byte \d{1,19} on"
    r"|(?:more than )?\d{1,19} (?:bytes|characters|levels|lanes)|a text of 1 to \d{1,9} characters"
    r"|at most \d{1,19} (?:are|bytes are) (?:accepted|possible)|the (?:broker|server) takes \d{1,19}"
    r"|ISO 8601 time|UUID of version 7|the character U\+0000|UTF-8|base64|more than 64 bits|docs/[a-z-]+\.md"
    r")(?![\w-]|\.\w)"
)
OPTION = re.compile(r"--[a-z]+(?:-[a-z]+)*")
PARTITION = re.compile(r"/\d{1,9}\Z")  # behind the name of a topic


def own_names() -> Collection[str]:
    """The names that whoever runs Spillway reads in its settings: those themselves, and topics, as they are on the broker."""
    if not settings.configured:  # a setting is wrong: nobody has topics yet
        return Env.asked
    prefix = settings.KAFKA_TOPIC_PREFIX  # looked up once: a list of letters comes here for each row
    return {*Env.asked, "HANDLERS", "STREAMS", *(f"{prefix}{topic}" for topic in settings.KAFKA_TOPICS)}


def masked(payload: bytes | memoryview | str | None, readable: Collection[str], named: Collection[str] = ()) -> str:
    """The JSON with dots for all values but those at `readable` paths (`items[].sku`), and for unknown names.

    `named` are paths whose names may be read, and whose values not. What is no JSON is dots alone.
    """
    if payload is None:
        return "null"
    try:
        value = json.loads(payload if isinstance(payload, str) else bytes(payload), object_pairs_hook=Pairs)
    except (ValueError, RecursionError):
        return DOTS
    paths = set(readable)
    known = {path[:end] for path in {*paths, *named} for end in _ends(path)}
    return _text(value, "", lambda path: path in paths, known)


class Pairs(list[tuple[str, object]]):
    """The members of an object in their order: a name may stand there twice."""


def _ends(path: str) -> Iterator[int]:
    """Where the names in a path end: those on the way to a readable value may be read, too."""
    yield from (match.start() for match in re.finditer(r"\.|\[\]", path))
    yield len(path)


def _text(value: object, path: str, may_read: Callable[[str], bool], known: Collection[str]) -> str:
    if path.count(".") + path.count("[") > MOST_DEPTH:
        return f'"{DOTS}"'
    if isinstance(value, Pairs):
        members = ((_inner(path, name), name, part) for name, part in value)
        return "{" + ",".join(
            f"{json.dumps(name if inner in known else DOTS, ensure_ascii=False)}:{_text(part, inner, may_read, known)}"
            for inner, name, part in members
        ) + "}"  # fmt: skip
    if isinstance(value, list):
        return "[" + ",".join(_text(part, f"{path}[]", may_read, known) for part in value) + "]"
    return json.dumps(value if may_read(path) and _is_plain(value) else DOTS, ensure_ascii=False)


def _inner(path: str, name: str) -> str:
    """The path of a member; a name that could be read as a path has none that is known."""
    name = name if NAME.fullmatch(name) else "\0"
    return f"{path}.{name}" if path else name


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int) or bool(PLAIN.fullmatch(str(value)))


def masked_error(text: str) -> str:
    """An error text without quoted values, addresses, queries of URLs, and words that nobody speaks.

    Where in a record the error is stays readable: `$.items[3].quantity`. So does what Spillway itself says.
    """
    match = AT_PLACE.search(text)
    place = match[0] if match else ""
    text = URL_QUERY.sub(r"\1", without_values(text.removesuffix(place)))
    text = ADDRESS.sub(DOTS, QUOTED.sub(DOTS, text.replace("<address>", DOTS)))
    spoken = partial(_spoken, own=own_names())
    parts = COUNTED.split(text)  # every other one was found
    return "".join(part if at % 2 else WORD.sub(spoken, part) for at, part in enumerate(parts)) + place


def _spoken(match: re.Match[str], own: Collection[str]) -> str:
    word = match[0]
    bare = word.rstrip(ENDING)
    name, sign, _value = bare.partition("=")
    if sign and name in own:  # a setting and its value
        return f"{name}={DOTS}{word[len(bare) :]}"
    if (
        not bare
        or PLACE.fullmatch(bare)
        or CODE.fullmatch(bare)
        or SPOKEN.fullmatch(bare.strip("“”\"'"))
        or not any(map(str.isalnum, bare))
        or OPTION.fullmatch(bare)
        or PARTITION.sub("", bare) in own
    ):
        return word
    return DOTS + word[len(bare) :]


# -- Texts from outside: control and direction characters -----------------------------------------------------
# What a terminal would obey, or what turns the reading direction, is written out.
def visible(text: str, kept: str = "\n") -> str:
    """Write control and direction characters as escapes, all but those `kept`: they would be invisible, and may be the fault."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in kept else ascii(char)[1:-1] for char in text)


def on_one_line(text: object) -> str:
    r"""The same for one field of a line: a line that a stranger began would look like ours."""
    return visible(str(text), kept="")


def table_row(cells: Sequence[object], widths: Sequence[int]) -> str:
    """One line of a table: cells beside each other, what is too long for its column cut off; the last column ends nowhere."""
    texts = [on_one_line(cell) for cell in cells]
    short = [
        text if len(text) <= width else f"{text[: width - 1]}…" for text, width in zip(texts, widths, strict=False)
    ]
    padded = [text.ljust(width) for text, width in zip(short, widths, strict=True)]
    return "  ".join([*padded, *texts[len(widths) :]]).rstrip()
