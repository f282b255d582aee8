"""Payloads: JSON as text, what of it is blank, and the hash that stands for a payload."""

from __future__ import annotations

import hashlib

import msgspec


# -- JSON as text --------------------------------------------------------------------------------------------
def as_json(value: object) -> str:
    """`value` in as few characters as JSON needs; sets become arrays."""
    return msgspec.json.encode(value).decode()


def is_blank(value: object) -> bool:
    """Null, a text without a character to see, an empty object or list: it says no more than a field that is left out."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, dict | list) and not value)


# -- What stands for a payload that is too large -------------------------------------------------------------
WHOLE_BYTES = 4 * 1024 * 1024  # escaped it is twice as long, and MariaDB takes 16 MiB in one packet
END_BYTES = 64 * 1024


def short_hash(value: bytes | None) -> int:
    """64 bits that tell two payloads at one position apart, as a signed integer."""
    return int.from_bytes(hashlib.blake2b(value or b"", digest_size=8).digest(), "big", signed=True)


def digest(data: bytes | None) -> str:
    """32 hexadecimal digits that identify a payload (BLAKE2b, 128 bits)."""
    return hashlib.blake2b(data or b"", digest_size=16).hexdigest()


class Excerpt(bytes):
    """The first and the last bytes of a value that is too large to keep, and what the whole value was.

    `size` is in bytes; `sha256` is empty where the value was not read to its end, and `lost` says what else was not.
    """

    reason = "too_large"  # why a gate refuses it
    size: int
    sha256: str
    lost: str

    @classmethod
    def of(cls, value: bytes, lost: str = "") -> Excerpt:
        """The excerpt of a value at hand."""
        ends = value if len(value) <= 2 * END_BYTES else value[:END_BYTES] + value[-END_BYTES:]
        return cls.from_ends(ends, len(value), hashlib.sha256(value).hexdigest(), lost)

    @classmethod
    def from_ends(cls, ends: bytes, size: int, sha256: str = "", lost: str = "") -> Excerpt:
        """An excerpt of what was read of a value of `size` bytes."""
        excerpt = cls(ends)
        excerpt.size, excerpt.sha256, excerpt.lost = size, sha256, lost
        return excerpt


class UnreadableBatch(Excerpt):
    """The bytes of a whole batch that nobody can unpack: it stands for all its records, and `lost` names them."""

    reason = "unreadable_batch"


class EditedCopy(bytes):
    """The value of a record that somebody has edited: JSON, whatever its topic is written in."""


def keepable(value: bytes | None) -> bytes | None:
    """The value itself, or its excerpt if it is longer than WHOLE_BYTES."""
    if value is None or isinstance(value, Excerpt) or len(value) <= WHOLE_BYTES:
        return value
    return Excerpt.of(value)
