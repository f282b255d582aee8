"""Checks of recipients, senders and headers: exactly one address, and values that cannot add a header."""

from __future__ import annotations

import re
import unicodedata
from email.header import Header
from functools import lru_cache
from typing import NamedTuple

LONGEST_ADDRESS, LONGEST_LOCAL_PART, LONGEST_DOMAIN = 254, 64, 253  # RFC 5321, 4.5.3.1, and its errata
LONGEST_HEADER = 900  # characters; the protocol allows 998 octets a line

# RFC 5322 dot-atom. Quoted local parts are refused: they occur in attacks, hardly in addresses.
LOCAL_PART = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
CONTROLS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# RFC 2047: `=?utf-8?q?…?=` is decoded by whoever reads the header, and may then name somebody else.
ENCODED_WORD = "=?"
SEPARATORS = re.compile(r"[,;:<>()\[\]\"\\]")
# A name: in quotes anything may stand, outside of them nothing that begins another address, a list or a group.
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
NEEDS_QUOTES = re.compile(r'[,;:<>@"\\\[\]]')
ATOMS = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~ -]+")


def check(address: str) -> str:
    """One bare address, its domain in lower-case punycode. ValueError says in one line why not.

    Django refuses line breaks in headers, but sends `to=["a@b.c, d@e.f"]` to two people.
    """
    if not isinstance(address, str) or not address:
        raise ValueError("there is no address")
    address = address.strip(" ")
    if len(address) > LONGEST_ADDRESS:
        raise ValueError(f"the address is longer than {LONGEST_ADDRESS} characters")
    if has_control(address):
        raise ValueError("the address holds a control character")
    if ENCODED_WORD in address:
        raise ValueError("the address holds an encoded word (=?)")
    if SEPARATORS.search(address) or " " in address:
        raise ValueError("it is not one bare address: no names, lists, comments, quotes or spaces")
    local, at, domain = address.rpartition("@")
    if not at:
        raise ValueError("there is no @ in it; an address is like anna@example.com")
    if not LOCAL_PART.fullmatch(local):
        raise ValueError("the part before the @ is missing, or holds what few servers accept")
    if len(local) > LONGEST_LOCAL_PART:
        raise ValueError(f"the part before the @ is longer than {LONGEST_LOCAL_PART} characters")
    return f"{local}@{_domain(domain)}"


class Mailbox(NamedTuple):
    """A name, which may be empty, and an address in its normal form."""

    name: str
    address: str

    @property
    def text(self) -> str:
        """As providers with an API take it, whose JSON holds every letter."""
        return f"{_quoted(self.name)} <{self.address}>" if self.name else self.address

    @property
    def wire(self) -> str:
        """As a header of SMTP holds it: ASCII, and never an encoded word in the address or in quotes."""
        if self.name.isascii():
            return self.text
        words = Header(self.name, "utf-8").encode(linesep=" ")
        return f"{' '.join(words.split())} <{self.address}>"


@lru_cache(maxsize=64)
def sender(text: str) -> Mailbox:
    """The one sender in `orders@example.com`, `Shop <orders@example.com>` or `"Shop, Ltd." <orders@example.com>`.

    What checks accept is what is sent: there is no other parser. ValueError says in one line why there is none.
    Cached: nearly every mail has the same sender.
    """
    text = header(text, "the sender").strip(" ")
    try:
        if not text.endswith(">"):
            return Mailbox("", check(text))
        name, _, address = text[:-1].rpartition("<")
        return Mailbox(_name(name.strip(" ")), check(address))
    except ValueError as error:
        raise ValueError(f"the sender is not like Shop <orders@example.com>: {error}") from None


def _name(text: str) -> str:
    """A display name without its quotes."""
    if quoted := QUOTED.fullmatch(text):
        # Read again, since without its backslashes a name may be an encoded word.
        return header(re.sub(r"\\(.)", r"\1", quoted[1]), "the name").strip(" ")
    if NEEDS_QUOTES.search(text):
        raise ValueError("a name with commas, colons, brackets, quotes or an @ must stand in quotes")
    return text


def _quoted(name: str) -> str:
    return name if ATOMS.fullmatch(name) else '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'


def header(value: str, name: str = "a header") -> str:
    """A header's value, unchanged. ValueError if it could end the header or be read as another text, or is too long."""
    if has_control(value):
        raise ValueError(f"{name} holds a control character")
    if ENCODED_WORD in value:
        raise ValueError(f"{name} holds an encoded word (=?)")
    if len(value) > LONGEST_HEADER:
        raise ValueError(f"{name} is longer than {LONGEST_HEADER} characters")
    return value


def masked(address: str) -> str:
    """`a…@example.com`: tells two addresses apart, and cannot be written to."""
    local, _, domain = address.rpartition("@")
    return f"{local[:1]}…@{domain}"


def has_control(text: str) -> bool:
    """Controls, format characters such as right-to-left overrides, line separators, lone surrogates."""
    # Printable characters are none of these: for nearly every text this one call is enough.
    return not text.isprintable() and any(unicodedata.category(char) in CONTROLS for char in text)


def _domain(domain: str) -> str:
    # Python's codec is IDNA 2003: it would turn straße.de into strasse.de, another domain.
    if "ß" in domain or "ς" in domain:
        raise ValueError("the domain holds a letter with two readings; write it in punycode (xn--…)")
    try:
        ascii_domain = domain.encode("idna").decode() if not domain.isascii() else domain
    except UnicodeError:
        raise ValueError("the domain is not one that can be written in ASCII") from None
    labels = ascii_domain.lower().split(".")
    if len(ascii_domain) > LONGEST_DOMAIN or not all(LABEL.fullmatch(label) for label in labels):
        raise ValueError("the domain is not a host name")
    if len(labels) < 2 or labels[-1].isdigit():
        raise ValueError("the domain is neither a name with a dot nor anything mail goes to")
    return ".".join(labels)
