"""Amazon SNS: verifies messages with a certificate, which is only fetched from Amazon."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from config.telemetry.logs import log
from notifications.webhooks.fields import moment, read, text
from notifications.webhooks.signatures import Forged, Headers, Unavailable, decoded, within

# SNS tries again for hours with the first timestamp; a repeat is found by its id.
PAST = timedelta(hours=24)
# A bucket may be called sns.s3-…, and anybody can put a certificate into one: host and path are matched whole.
HOST = r"https://sns\.[a-z]{2}(?:-[a-z]+)+-\d{1,2}\.amazonaws\.com(?:\.cn)?"
CERTIFICATE = re.compile(HOST + r"/SimpleNotificationService-[0-9a-f]{32}\.pem")
CONFIRMATION = re.compile(HOST + r"/\?Action=ConfirmSubscription&[A-Za-z0-9_.=&%:-]{1,1000}")
PAUSE = timedelta(seconds=10)  # between two new certificates: unsigned requests must not make us call out
LARGEST_CERTIFICATE = 20_000
SECONDS = 5
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
    subscribe_u_r_l: Any = msgspec.field(name="SubscribeURL", default=None)


def verify(topics: Sequence[str], headers: Headers, body: bytes, now: datetime) -> None:
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
    within(signed_at, now, PAST)
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
    found = certificates.read(envelope.signing_cert_u_r_l, now)
    key = found.public_key()
    valid = found.not_valid_before_utc <= now <= found.not_valid_after_utc
    if not valid or found.issuer == found.subject or not isinstance(key, RSAPublicKey):
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
        self._known: dict[str, Any] = {}
        self._next_fetch: datetime | None = None

    def read(self, url: str, now: datetime) -> Any:
        """The x509 certificate at `url`. Unavailable when it cannot be read, or another one was fetched just now."""
        if url not in self._known:
            if self._next_fetch and now < self._next_fetch:
                raise Unavailable("a certificate of SNS was fetched just now")
            self._next_fetch = now + PAUSE
            self._known[url] = _load(url)
        return self._known[url]


certificates = Certificates()


def _load(url: str) -> Any:
    from cryptography import x509

    try:
        pem = fetch(url)
        if not pem.startswith(b"-----BEGIN CERTIFICATE-----"):
            raise ValueError("no PEM")  # the library would find one inside any text
        return x509.load_pem_x509_certificate(pem)
    except (ValueError, OSError) as error:
        raise Unavailable(f"the certificate of SNS cannot be read: {type(error).__name__}") from error


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead anywhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def fetch(url: str) -> bytes:
    """Only addresses that CERTIFICATE or CONFIRMATION allow come here. OSError when there is no answer."""
    with urllib.request.build_opener(NoRedirect).open(url, timeout=SECONDS) as answer:
        found: bytes = answer.read(LARGEST_CERTIFICATE)
    return found
