"""Signatures of webhooks: over the raw bytes, compared in constant time, valid for a short time."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from notifications.webhooks.fields import parsed_record, record, text

PAST, FUTURE = timedelta(seconds=300), timedelta(seconds=60)
# Mailgun tries again 10, 20, 35, 65, 125, 245 and 485 minutes later, with the first try's time and token; each try may
# last. A token is accepted once while its event is kept: WEBHOOK_RETENTION_DAYS is at least a day.
MAILGUN_PAST = timedelta(hours=9)

Headers = Mapping[str, str]


class Forged(Exception):
    """No secret of ours made this signature."""


class StaleSignature(Exception):
    """The signature is right and its time is not: a replay, or a clock that is wrong."""


class Unavailable(Exception):
    """The signature cannot be verified here; the text names what is missing."""


def fresh(timestamp: str, now: datetime, past: timedelta = PAST) -> None:
    """`timestamp` in seconds since 1970. StaleSignature if it is too old or ahead, Forged if it is no time."""
    try:
        when = datetime.fromtimestamp(int(timestamp), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise Forged("the timestamp is no time") from error
    within(when, now, past)


def within(when: datetime, now: datetime, past: timedelta = PAST) -> None:
    if not now - past <= when <= now + FUTURE:
        raise StaleSignature(f"signed at {when:%F %T}Z")


def matches(expected: Iterable[bytes], given: Iterable[bytes]) -> bool:
    """Whether one of the given is one of the expected; every pair is compared, whatever was found."""
    found = [hmac.compare_digest(one, other) for one in list(expected) for other in list(given)]
    return any(found)


def sha256(secret: bytes, message: bytes) -> bytes:
    return hmac.new(secret, message, hashlib.sha256).digest()


def decoded(text: str) -> bytes:
    """Decoded base64; empty, which matches no signature, if it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def resend(secrets: Sequence[str], headers: Headers, body: bytes, now: datetime) -> None:
    """Svix: HMAC over id, timestamp and body; several signatures while a secret is rotated."""
    name, timestamp = headers.get("svix-id", ""), headers.get("svix-timestamp", "")
    message = f"{name}.{timestamp}.".encode() + body
    expected = [sha256(decoded(secret.removeprefix("whsec_")), message) for secret in secrets]
    given = [
        decoded(value)
        for version, _, value in (part.partition(",") for part in headers.get("svix-signature", "").split())
        if version == "v1"
    ]
    if not name or not matches(expected, given):
        raise Forged("svix-signature")
    fresh(timestamp, now)


def generic(secrets: Sequence[str], headers: Headers, body: bytes, now: datetime) -> None:
    """Ours: HMAC-SHA256 over `timestamp.body`, in hexadecimal digits."""
    timestamp = headers.get("x-spillway-timestamp", "")
    expected = [sha256(secret.encode(), timestamp.encode() + b"." + body).hex().encode() for secret in secrets]
    given = [headers.get("x-spillway-signature", "").lower().encode()]
    if not matches(expected, given):
        raise Forged("x-spillway-signature")
    fresh(timestamp, now)


def mailgun(secrets: Sequence[str], headers: Headers, body: bytes, now: datetime) -> None:
    """HMAC over timestamp and token: the body is not covered, so a token counts once (see its reader)."""
    signed = record(parsed_record(body).get("signature"))
    timestamp, token, given = (text(signed.get(name)) for name in ("timestamp", "token", "signature"))
    expected = [sha256(secret.encode(), (timestamp + token).encode()).hex().encode() for secret in secrets]
    if not token or not matches(expected, [given.lower().encode()]):
        raise Forged("signature")
    fresh(timestamp, now, MAILGUN_PAST)


def basic(secrets: Sequence[str], headers: Headers, body: bytes, now: datetime) -> None:
    """HTTP basic authentication with `user:password`: all that some providers offer. No time is signed."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic" or not matches([secret.encode() for secret in secrets], [decoded(value)]):
        raise Forged("authorization")


def sendgrid(secrets: Sequence[str], headers: Headers, body: bytes, now: datetime) -> None:
    """ECDSA P-256 over timestamp and body; the secret is their public key, base64 of DER."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_der_public_key
    except ImportError as error:
        raise Unavailable("SendGrid's signatures need the package cryptography (extra anymail)") from error
    timestamp = headers.get("x-twilio-email-event-webhook-timestamp", "")
    signature = decoded(headers.get("x-twilio-email-event-webhook-signature", ""))
    for secret in secrets:
        try:
            key = load_der_public_key(decoded(secret))
        except ValueError as error:
            raise Unavailable("EMAIL_WEBHOOK_SECRETS: SendGrid's entry is no public key") from error
        if not isinstance(key, EllipticCurvePublicKey):
            raise Unavailable("EMAIL_WEBHOOK_SECRETS: SendGrid's entry is no elliptic-curve key")
        try:
            key.verify(signature, timestamp.encode() + body, ECDSA(SHA256()))
        except InvalidSignature:
            continue
        return fresh(timestamp, now)
    raise Forged("x-twilio-email-event-webhook-signature")
