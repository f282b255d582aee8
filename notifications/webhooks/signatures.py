"""Signatures of webhooks, also by Amazon's certificates: over the raw bytes, valid for a short time."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from config.http import ask
from config.telemetry.logs import log
from notifications.webhooks.fields import moment, parsed_record, read, record, text

PAST, FUTURE = timedelta(seconds=300), timedelta(seconds=60)
# Mailgun tries again 10, 20, 35, 65, 125, 245 and 485 minutes later, with the first try's time and token; each try may
# last. A token is accepted once while its event is kept: WEBHOOK_RETENTION_DAYS is at least a day.
MAILGUN_PAST = timedelta(hours=9)

Headers = Mapping[str, str]

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


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
    """Whether one of the given is one of the expected; every pair is compared, whatever the first ones gave."""
    results = [hmac.compare_digest(mine, theirs) for mine in list(expected) for theirs in list(given)]
    return any(results)


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


# -- Amazon SNS ----------------------------------------------------------------------------------------------
# SNS tries again for hours with the first timestamp; a repeat is found by its id.
SNS_PAST = timedelta(hours=24)
# A bucket may be called sns.s3-…, and anybody can put a certificate into one: host and path are matched whole.
SNS_HOST = r"https://sns\.[a-z]{2}(?:-[a-z]+)+-\d{1,2}\.amazonaws\.com(?:\.cn)?"
CERTIFICATE = re.compile(SNS_HOST + r"/SimpleNotificationService-[0-9a-f]{32}\.pem")
CONFIRMATION = re.compile(SNS_HOST + r"/\?Action=ConfirmSubscription&[A-Za-z0-9_.=&%:-]{1,1000}")
SNS_PAUSE = timedelta(seconds=10)  # between two new certificates: unsigned requests must not make us call out
LARGEST_CERTIFICATE = 20_000
SNS_SECONDS = 5
SUBSCRIPTION = ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]
SIGNED = {
    "Notification": ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"],
    "SubscriptionConfirmation": SUBSCRIPTION,
    # Somebody ended the subscription. Its SubscribeURL would begin it again: that is left to a person.
    "UnsubscribeConfirmation": SUBSCRIPTION,
}


class Envelope(msgspec.Struct, rename="pascal"):
    type: str
    message: str
    message_id: str
    timestamp: str
    topic_arn: str
    signature: str
    signature_version: str
    signing_cert_u_r_l: str = msgspec.field(name="SigningCertURL")
    subscribe_u_r_l: object = msgspec.field(name="SubscribeURL", default=None)


def verify_sns(topics: Sequence[str], headers: Headers, body: bytes, now: datetime) -> None:
    """`topics` are the ARNs we listen to. A subscription to one of them is confirmed at once."""
    envelope = read(body, Envelope)
    if envelope.topic_arn not in topics or envelope.type not in SIGNED:
        raise Forged("TopicArn")
    if not CERTIFICATE.fullmatch(envelope.signing_cert_u_r_l):
        raise Forged("SigningCertURL")
    confirmation = text(envelope.subscribe_u_r_l) if envelope.type == "SubscriptionConfirmation" else ""
    if envelope.type == "SubscriptionConfirmation" and not CONFIRMATION.fullmatch(confirmation):
        raise Forged("SubscribeURL")
    if (signed_at := moment(envelope.timestamp)) is None:
        raise Forged("Timestamp")
    within(signed_at, now, SNS_PAST)
    _check(envelope, body, now)
    if envelope.type == "UnsubscribeConfirmation":
        log.warning("webhook_unsubscribed", provider="amazon_ses", topic=envelope.topic_arn)
    if confirmation:
        _confirm(confirmation)


def _confirm(url: str) -> None:
    try:
        fetch(url)
    except OSError as error:  # SNS asks again
        raise Unavailable(f"the subscription cannot be confirmed: {type(error).__name__}") from error


def _check(envelope: Envelope, body: bytes, now: datetime) -> None:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
        from cryptography.hazmat.primitives.hashes import SHA1, SHA256
    except ImportError as error:
        raise Unavailable("SNS signatures need the package cryptography (extra anymail)") from error
    algorithm: Any = {"1": SHA1, "2": SHA256}.get(envelope.signature_version)
    if algorithm is None:
        raise Forged("SignatureVersion")
    certificate = certificates.read(envelope.signing_cert_u_r_l, now)
    key = certificate.public_key()
    valid = certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc
    if not valid or certificate.issuer == certificate.subject or not isinstance(key, RSAPublicKey):
        raise Forged("SigningCertURL")
    try:
        key.verify(decoded(envelope.signature), canonical(envelope, body), PKCS1v15(), algorithm())
    except InvalidSignature as error:
        raise Forged("Signature") from error


def canonical(envelope: Envelope, body: bytes) -> bytes:
    """What SNS signs: the names and values of some fields, a line each, in alphabetical order."""
    values = read(body, dict[str, Any])
    pairs = [(name, values[name]) for name in SIGNED[envelope.type] if values.get(name) is not None]
    return "".join(f"{name}\n{value}\n" for name, value in pairs).encode()


class Certificates:
    """Certificates by their address, which changes with the certificate: each is fetched once."""

    def __init__(self) -> None:
        self._known: dict[str, Certificate] = {}
        self._next_fetch: datetime | None = None

    def read(self, url: str, now: datetime) -> Certificate:
        """The x509 certificate at `url`. Unavailable when it cannot be read, or another one was fetched just now."""
        if url not in self._known:
            if self._next_fetch and now < self._next_fetch:
                raise Unavailable("a certificate of SNS was fetched just now")
            self._next_fetch = now + SNS_PAUSE
            self._known[url] = _load(url)
        return self._known[url]


certificates = Certificates()


def _load(url: str) -> Certificate:
    from cryptography import x509

    try:
        pem = fetch(url)
        if not pem.startswith(b"-----BEGIN CERTIFICATE-----"):
            raise ValueError("no PEM")  # the library would find one inside any text
        return x509.load_pem_x509_certificate(pem)
    except (ValueError, OSError) as error:
        raise Unavailable(f"the certificate of SNS cannot be read: {type(error).__name__}") from error


def fetch(url: str) -> bytes:
    """Only addresses that CERTIFICATE or CONFIRMATION allow come here. OSError when there is no answer."""
    return ask(url, timeout=SNS_SECONDS, most=LARGEST_CERTIFICATE)
