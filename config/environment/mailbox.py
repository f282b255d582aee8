"""Checks of recipients and headers: exactly one address, and values that cannot add a header."""

from __future__ import annotations

import re
import unicodedata

LONGEST_ADDRESS, LONGEST_LOCAL_PART, LONGEST_DOMAIN = 254, 64, 253  # RFC 5321, 4.5.3.1, and its errata
LONGEST_HEADER = 900  # characters; the protocol allows 998 octets a line

# RFC 5322 dot-atom. Quoted local parts are refused: they occur in attacks, hardly in addresses.
LOCAL_PART = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
CONTROLS = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
# RFC 2047: `=?utf-8?q?…?=` is decoded by whoever reads the header, and may then name somebody else.
ENCODED_WORD = "=?"
SEPARATORS = re.compile(r"[,;:<>()\[\]\"\\]")


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
    if not at or not LOCAL_PART.fullmatch(local):
        raise ValueError("the part before the @ is missing, or holds what few servers accept")
    if len(local) > LONGEST_LOCAL_PART:
        raise ValueError(f"the part before the @ is longer than {LONGEST_LOCAL_PART} characters")
    return f"{local}@{_domain(domain)}"


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
