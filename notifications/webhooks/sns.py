"""Amazon SNS: messages signed with a certificate that lies at Amazon, and nowhere else."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from notifications.webhooks.event import moment, read
from notifications.webhooks.signatures import Forged, Headers, Unavailable, decoded, within

# SNS tries again for hours with the first timestamp; a repeat is found by its id.
PAST = timedelta(hours=24)
PLACE = re.compile(r"https://sns\.[a-z0-9-]{3,30}\.amazonaws\.com(\.cn)?/[A-Za-z0-9/_.?=&%:-]{1,1000}")
LARGEST_CERTIFICATE = 20_000
SECONDS = 5
SIGNED = {
    "Notification": ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"],
    "SubscriptionConfirmation": [
        "Message",
        "MessageId",
        "SubscribeURL",
        "Timestamp",
        "Token",
        "TopicArn",
        "Type",
    ],
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
    subject: str | None = None
    subscribe_u_r_l: str | None = msgspec.field(name="SubscribeURL", default=None)
    token: str | None = None


def verify(topics: Sequence[str], headers: Headers, body: bytes, now: datetime) -> None:
    """`topics` are the ARNs we listen to. A subscription to one of them is confirmed at once."""
    envelope = read(body, Envelope)
    if envelope.topic_arn not in topics or envelope.type not in SIGNED:
        raise Forged("TopicArn")
    if not PLACE.fullmatch(envelope.signing_cert_u_r_l):
        raise Forged("SigningCertURL")
    _check(envelope, body)
    when = moment(envelope.timestamp)
    within(when or now, now, PAST)
    if envelope.type == "SubscriptionConfirmation":
        if not PLACE.fullmatch(envelope.subscribe_u_r_l or ""):
            raise Forged("SubscribeURL")
        fetch(envelope.subscribe_u_r_l or "")


def _check(envelope: Envelope, body: bytes) -> None:
    try:
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
        from cryptography.hazmat.primitives.hashes import SHA1, SHA256
    except ImportError as error:
        raise Unavailable("SNS signatures need the package cryptography (extra anymail)") from error
    algorithm: Any = {"1": SHA1, "2": SHA256}.get(envelope.signature_version)
    if algorithm is None:
        raise Forged("SignatureVersion")
    try:
        key = x509.load_pem_x509_certificate(certificate(envelope.signing_cert_u_r_l)).public_key()
    except (ValueError, OSError) as error:
        raise Unavailable(f"the certificate of SNS cannot be read: {type(error).__name__}") from error
    if not isinstance(key, RSAPublicKey):
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


@lru_cache(maxsize=16)
def certificate(url: str) -> bytes:
    """PEM; their addresses change with the certificate, so it is kept for the life of the process."""
    return fetch(url)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead anywhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def fetch(url: str) -> bytes:
    """Only addresses that PLACE allows come here. OSError when there is no answer."""
    with urllib.request.build_opener(NoRedirect).open(url, timeout=SECONDS) as answer:
        found: bytes = answer.read(LARGEST_CERTIFICATE)
    return found
