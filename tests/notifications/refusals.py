"""How mail servers refuse a recipient, in their own words: each refusal has ids of its own."""

from __future__ import annotations

import random
import string
from collections.abc import Callable

HEX = string.hexdigits[:16]


def some(chance: random.Random, letters: str, number: int) -> str:
    return "".join(chance.choices(letters, k=number))


def gmail(chance: random.Random) -> str:
    who = (
        some(chance, HEX, 13)
        + "-"
        + some(chance, HEX, 14)
        + "si"
        + str(chance.randrange(10**9, 10**11))
        + some(chance, HEX, 1)
    )
    return (
        "5.1.1 The email account that you tried to reach does not exist. Please try\n5.1.1 double-checking the recipient's "
        "email address for typos or\n5.1.1 unnecessary spaces. For more information, go to\n"
        f"5.1.1  https://support.google.com/mail/?p=NoSuchUser {who}.{chance.randrange(1000)} - gsmtp"
    )


def full(chance: random.Random) -> str:
    who = (
        some(chance, HEX, 12)
        + "-"
        + some(chance, HEX, 15)
        + "si"
        + str(chance.randrange(10**10))
        + "pxa."
        + some(chance, string.digits, 3)
    )
    return f"5.2.2 The recipient's inbox is out of storage space. https://support.google.com/mail/?p=OverQuota{chance.choice(['Temp', 'Perm'])} {who} - gsmtp"


def outlook(chance: random.Random) -> str:
    region = chance.choice(["EUR01", "EUR05", "NAM02", "APC01"])
    host = f"{some(chance, string.ascii_uppercase, 2)}{chance.randrange(10)}{region}FT{chance.randrange(100):03}"
    when = f"2026-11-{chance.randrange(1, 29):02}T{chance.randrange(24):02}:{chance.randrange(60):02}:11.{chance.randrange(1000):03}Z"
    return (
        "5.5.0 Requested action not taken: mailbox unavailable (S2017062302). "
        f"[{host}.eop-{region}.prod.protection.outlook.com {when} {some(chance, HEX.upper(), 16)}]"
    )


WORDS: tuple[Callable[[random.Random], str], ...] = (gmail, full, outlook)


def reply(code: int, text: str) -> str:
    """As it goes over the line: one line a line, all but the last with a dash."""
    *first, last = text.split("\n")
    return "\r\n".join([*(f"{code}-{line}" for line in first), f"{code} {last}"])
