"""Settings from the environment: every bad value is one line that names the variable."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

Number = TypeVar("Number", int, float)
UNREADABLE = "it cannot be read; in a user or password write / ? # @ : [ ] % as %2F %3F %23 %40 %3A %5B %5D %25"


class BadSetting(Exception):
    """A variable holds a value Spillway cannot run with; the text names it."""


def flag_of(name: str, text: str, default: bool) -> bool:
    """Whether the text says yes; raises BadSetting for what says neither."""
    if (value := text.lower()) in ("", "1", "true", "yes", "on", "0", "false", "no", "off"):
        return default if value == "" else value in ("1", "true", "yes", "on")
    raise BadSetting(f"{name}: {value!r} is neither true nor false")


def split_url(name: str, url: str) -> SplitResult:
    """A URL with a login, in parts. Raises BadSetting, which repeats nothing of it: any of it may be the password."""
    try:
        parts = urlsplit(url)
        known = parts.port is None or parts.port > 0
    except ValueError:
        known = False
    # A / ? or # in a password ends the host early: the @ then stands behind it.
    if not known or "@" in parts.path + parts.query + parts.fragment:
        raise BadSetting(f"{name}: {UNREADABLE}") from None
    return parts


def _once_each(members: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON; a name that stands twice would hide what was meant by one of them."""
    values = dict(members)
    if len(values) < len(members):
        raise ValueError("a name stands twice")
    return values


# -- Files ---------------------------------------------------------------------------------------------------
ASSIGNMENT = re.compile(r"\s*(?:export\s+)?(\w+)\s*=(.*)", re.ASCII | re.DOTALL)
# As a value; what stands behind it can only be a comment. In "…" a backslash takes what is special from the next character.
QUOTED = re.compile(r"""(?:'(?P<plain>.*?)'|"(?P<escaped>(?:[^\\]|\\.)*?)")(?:\s+#.*)?""", re.DOTALL)
ESCAPE = re.compile(r"\\([^rnt])")
COMMENT = re.compile(r"\s#.*", re.DOTALL)
# What a line is about that assigns nothing, or in another way (`NAME: value`); anything else may be a piece of a secret.
SUBJECT = re.compile(r"\s*(?:export\s+)?([A-Z][A-Z0-9_]*)\s*[=:]", re.ASCII)
NOT_UTF8 = re.compile("[\0\udc80-\udcff]")


def secret_in(path: Path) -> str:
    """The text of a file, without the byte order mark of an editor and the end of its last line. OSError; ValueError for no text."""
    text = path.read_bytes().decode("utf-8-sig").strip()
    if "\0" in text:
        raise ValueError("a zero byte")
    return text


def variables_of(dotenv: Path) -> Iterator[tuple[str, str]]:
    """The lines of a file such as `.env`. BadSetting names the variable or the line of what cannot be read, and repeats no value."""
    if not os.path.lexists(dotenv):
        return
    try:
        text = dotenv.read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise BadSetting(f"{dotenv.name}: cannot be read: {error.strerror}") from None
    last: dict[str, str] = {}
    for number, line in enumerate(re.split(r"\r\n?|\n", text), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            name, value = _assigned(line, f"line {number} of {dotenv.name}")
            last[name] = value
    yield from last.items()


def _assigned(line: str, place: str) -> tuple[str, str]:
    subject = SUBJECT.match(line)
    about = f"{subject[1]}: {place}" if subject else place
    if NOT_UTF8.search(line):
        raise BadSetting(f"{about} is no text in UTF-8")
    if not (assignment := ASSIGNMENT.fullmatch(line)):
        raise BadSetting(f"{about} is not NAME=value")
    name, text = assignment.groups()
    if text.lstrip()[:1] not in ("'", '"'):
        return name, COMMENT.sub("", text).strip()
    if not (quoted := QUOTED.fullmatch(text.strip())):
        raise BadSetting(f"{about} opens a quotation mark and does not close it at its end")
    return name, quoted["plain"] if quoted["escaped"] is None else ESCAPE.sub(r"\1", quoted["escaped"])


# -- Variables -----------------------------------------------------------------------------------------------
class Env:
    """Reads variables from the process, then from `.env`; `NAME_FILE` points at a file holding a secret."""

    asked: ClassVar[set[str]] = set()  # the names of all that were read

    def __init__(self, dotenv: Path | None = None) -> None:
        for name, value in variables_of(dotenv) if dotenv else ():
            os.environ.setdefault(name, value)

    def text(self, name: str, default: str = "") -> str:
        """The value, or the content of the file that `NAME_FILE` names; empty is the default."""
        self.asked.add(name)
        path = os.environ.get(f"{name}_FILE")
        if path and name not in os.environ:
            try:
                return secret_in(Path(path)) or default
            except OSError as error:  # the path is not repeated: somebody may have written the secret itself there
                raise BadSetting(f"{name}_FILE: cannot read the file that it names: {error.strerror}") from None
            except ValueError:
                raise BadSetting(f"{name}_FILE: the file that it names is no text in UTF-8") from None
        return os.environ.get(name, "").strip() or default

    def brokers(self, name: str, default: str) -> str:
        """URLs with logins, separated by semicolons."""
        text = self.text(name, default)
        for url in text.split(";"):
            split_url(name, url)
        return text

    def site(self, name: str) -> str:
        """`https://ops.example.com`, without a slash at its end; empty when nothing is given."""
        return self.address(name, "the address of a site, such as https://ops.example.com").rstrip("/")

    def address(self, name: str, what: str = "an address, such as https://id.example.com/token") -> str:
        """A URL of the web without a query; empty when nothing is given."""
        text = self.text(name)
        parts = split_url(name, text)
        if text and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment):
            raise BadSetting(f"{name}: {text!r} is not {what}")
        return text

    def flag(self, name: str, default: bool) -> bool:
        return flag_of(name, self.text(name), default)

    def integer(self, name: str, default: int, *, least: int = 0, most: int = 2**53) -> int:
        return self._number(name, default, int, "a whole number", least, most)

    def seconds(self, name: str, default: float, *, least: float = 0.0, most: float = 3.2e8) -> float:
        return self._number(name, default, float, "a number of seconds", least, most)

    def number(self, name: str, default: float, *, least: float = 0.0, most: float = 1e9) -> float:
        return self._number(name, default, float, "a number", least, most)

    def prefixed(self, pattern: str) -> dict[str, Any]:
        """`{"RESEND_API_KEY": …}` for the pattern `ANYMAIL_*`; a value that begins with { is JSON."""
        prefix = pattern.removesuffix("*")
        names = {name.removesuffix("_FILE") for name in os.environ if name.startswith(prefix)}
        return {name.removeprefix(prefix): self._json_or_text(name) for name in sorted(names)}

    def _json_or_text(self, name: str) -> object:
        value = self.text(name)
        try:
            return json.loads(value, object_pairs_hook=_once_each) if value.startswith("{") else value
        except ValueError:
            raise BadSetting(f"{name}: begins like JSON and is none, or says a name twice") from None

    def choice(self, name: str, default: str, allowed: Sequence[str]) -> str:
        value = self.text(name) or default
        if value not in (*allowed, default):
            raise BadSetting(f"{name}: {value!r} is not one of {', '.join(allowed)}")
        return value

    def listing(self, name: str, default: Sequence[str] = ()) -> list[str]:
        """Comma-separated words."""
        return [word.strip() for word in self.text(name).split(",") if word.strip()] or list(default)

    def pairs(self, name: str) -> dict[str, str]:
        """`name=value,…`, both of letters and signs that separate nothing."""
        words = self.listing(name)
        for word in words:
            if not re.fullmatch(r"[A-Za-z]+=[!-~]+", word):
                raise BadSetting(f"{name}: {word!r} is not name=value, such as logicalCluster=lkc-1")
        return dict(word.split("=", 1) for word in words)

    def version(self, name: str) -> tuple[int, ...] | None:
        """`2.3` becomes (2, 3); empty becomes None."""
        value = self.text(name)
        if value and not re.fullmatch(r"\d+(\.\d+){1,2}", value):
            raise BadSetting(f"{name}: {value!r} is not a version such as 2.3")
        return tuple(int(part) for part in value.split(".")) if value else None

    def _number(self, name: str, default: Number, kind: type[Number], what: str, least: Number, most: Number) -> Number:
        value = self.text(name)
        try:
            number = kind(value) if value else default
        except ValueError:
            raise BadSetting(f"{name}: {value!r} is not {what}") from None
        if not least <= number <= most:
            raise BadSetting(f"{name}: {value} is outside {least} … {most}")
        return number


# -- MESSAGES_IN: who may promise messages in Kafka, and for which channels ------------------------------------
TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")
NAME = re.compile(r"[A-Za-z0-9._-]{1,50}")
OFF = "off"

Grants = Mapping[str, Mapping[str, Sequence[str]]]  # topic → producer ("": whoever writes there) → channels


def grants_from_text(text: str) -> Grants:
    """`messages-in=email; messages-in@billing=email,texts` by topic and producer; `off` is none. Raises BadSetting."""
    grants: dict[str, dict[str, Sequence[str]]] = {}
    if text == OFF:
        return grants
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        place, equals, listed = entry.partition("=")
        topic, at, producer = (part.strip() for part in place.partition("@"))
        channels = [name.strip() for name in listed.split(",")]
        if not equals or not TOPIC.fullmatch(topic) or not all(map(NAME.fullmatch, channels)):
            raise BadSetting(f"MESSAGES_IN: {entry!r} is not topic=channel,… or topic@producer=channel,…")
        if at and not NAME.fullmatch(producer):
            raise BadSetting(f"MESSAGES_IN: {entry!r} names no producer of letters, digits and ._- behind the @")
        if producer in grants.setdefault(topic, {}):
            raise BadSetting(f"MESSAGES_IN: {place.strip()} stands twice")
        grants[topic][producer] = channels
    return grants


def formats_from_text(text: str) -> Mapping[str, Mapping[str, object]]:
    """`notifications-in=avro; messages-in=protobuf?message=acme.mail_pb2.Promise` by topic. Raises BadSetting."""
    formats: dict[str, Mapping[str, object]] = {}
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        topic, _, said = (part.strip() for part in entry.partition("="))
        name, _, options = said.partition("?")
        if not TOPIC.fullmatch(topic) or not NAME.fullmatch(name):
            raise BadSetting(f"TOPIC_FORMATS: {entry!r} is not topic=format or topic=format?option=value&…")
        if topic in formats:
            raise BadSetting(f"TOPIC_FORMATS: {topic} stands twice")
        formats[topic] = {"FORMAT": name, "FORMAT_OPTIONS": dict(parse_qsl(options))}
    return formats


# -- OIDC_ROLES: which groups of the identity provider have which roles here -----------------------------------
def roles_from_text(text: str) -> tuple[tuple[str, str], ...]:
    """`ops-support=Support; cn=ops,dc=example=Operator` as (group, role): a role has no `=`. Raises BadSetting."""
    pairs = []
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        group, _, role = (part.strip() for part in entry.rpartition("="))
        if not group or not role:
            raise BadSetting(f"OIDC_ROLES: {entry!r} is not group=Role")
        pairs.append((group, role))
    return tuple(pairs)
