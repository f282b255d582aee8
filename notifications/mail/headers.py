"""Headers that a mail brings: what it may bring, and how they are written: as given, folded at blanks only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.headerregistry import BaseHeader, HeaderRegistry
from email.policy import SMTP
from functools import lru_cache
from typing import Any

from config.environment import mailbox

RESERVED = {"to", "cc", "bcc", "from", "subject", "sender", "reply-to", "mime-version", "content-type",
            "content-transfer-encoding", "content-disposition"}  # fmt: skip
# Words for people, which every reader decodes. Any other header is read by programs: of an encoded word they make nothing.
FOR_PEOPLE = {"comments", "keywords", "organization", "thread-topic"}
LINE, LONGEST_LINE = 78, 998  # octets: what a line should have, and what it may have
# With the longest value a line is still a legal one, wherever its blanks are.
LONGEST_NAME = LONGEST_LINE - mailbox.LONGEST_HEADER - len(": ")
# Each word with the blanks before it; those at the end stay with the last one, since a line must not be blank.
WORDS = re.compile(r" *[^ ]+(?: +$)?")


def check_headers(headers: Mapping[str, str]) -> None:
    """ValueError says in one line which header a mail may not bring, and why."""
    known = set()
    for name, value in headers.items():
        lower = name.lower()
        if not name.isascii() or not name.replace("-", "").isalnum() or lower in RESERVED:
            raise ValueError(f"a mail may not bring a header {name!r} of its own")
        if len(name) > LONGEST_NAME:
            raise ValueError(f"the name of a header is longer than {LONGEST_NAME} characters")
        if lower in known:
            raise ValueError(f"a mail may not bring two headers {name!r}")
        known.add(lower)
        mailbox.header(value, name)
        if not value.isascii() and not _for_people(lower, value):
            raise ValueError(f"{name} may only hold ASCII: programs read it as it is")


def _for_people(name: str, value: str) -> bool:
    """Of a JSON text, such as X-SMTPAPI, the letters can be escaped (\\u00e9)."""
    return name in FOR_PEOPLE or (name.startswith("x-") and not value.lstrip(" ").startswith(("{", "[")))


def header_lines(headers: Mapping[str, str]) -> bytes:
    """The lines of headers that `check_headers` has passed."""
    return "".join(_lines(name, value) for name, value in headers.items()).encode("ascii")


@lru_cache(maxsize=64)
def _lines(name: str, value: str) -> str:
    """One header. Unfolded it is again what was given; the library makes encoded words of what is longer than a line."""
    if not value.isascii():
        return str(POLICY.header_factory(name, value).fold(policy=POLICY))
    first, *words = WORDS.findall(value) or [value]
    lines = [f"{name}: {first}"]
    for word in words:
        if len(lines[-1]) + len(word) <= LINE:
            lines[-1] += word
        else:
            lines.append(word)
    return "\r\n".join(lines) + "\r\n"


class KnownHeaders(HeaderRegistry):
    """Keeps what it has parsed, and the class of each name: most headers of a mail are those of the one before.

    The library parses each anew, and that took half of the time which a mail takes to be written.
    """

    def __init__(self) -> None:
        super().__init__()
        self._class = lru_cache(maxsize=64)(super().__getitem__)
        self._header = lru_cache(maxsize=64)(super().__call__)

    def __getitem__(self, name: str) -> type[BaseHeader]:
        return self._class(name)

    def __call__(self, name: str, value: Any) -> BaseHeader:
        return self._header(name, value)


POLICY = SMTP.clone(header_factory=KnownHeaders())
