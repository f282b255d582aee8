"""Hashes that identify a payload."""

from __future__ import annotations

import hashlib


def short_hash(value: bytes | None) -> int:
    """64 bits that tell two payloads at one position apart, as a signed integer."""
    return int.from_bytes(hashlib.blake2b(value or b"", digest_size=8).digest(), "big", signed=True)


def digest(data: bytes | None) -> str:
    """32 hexadecimal digits that identify a payload (BLAKE2b, 128 bits)."""
    return hashlib.blake2b(data or b"", digest_size=16).hexdigest()
