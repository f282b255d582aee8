"""Settings of mail that have to be parsed: server, sender, provider, secrets of webhooks."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Literal
from urllib.parse import unquote

from config.environment import mailbox
from config.environment.env import BadSetting, split_url

LEAST_SECRET = 16  # bytes of a webhook's secret
Security = Literal["none", "tls", "ssl"]
PORTS: dict[Security, int] = {"none": 25, "tls": 587, "ssl": 465}


@dataclass(frozen=True)
class MailServer:
    """`tls` is STARTTLS, `ssl` is TLS from the first byte. The password stays out of every repr."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)
    security: Security = "none"


def server_from_url(url: str) -> MailServer:
    """`smtp://user:password@host:587/?tls`, `?ssl`, or neither. Raises BadSetting."""
    parts = split_url("EMAIL_URL", url)
    security: Security = "ssl" if parts.scheme == "smtps" else "none"
    options = {option.partition("=")[0] for option in parts.query.split("&") if option}
    if unknown := options - {"tls", "ssl"}:
        raise BadSetting(f"EMAIL_URL: {', '.join(sorted(unknown))} is no option; there are tls and ssl")
    if "tls" in options or "ssl" in options:
        security = "tls" if "tls" in options else "ssl"
    port = parts.port or PORTS[security]
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise BadSetting("EMAIL_URL: it must look like smtp://user:password@host:587/?tls")
    return MailServer(parts.hostname, port, unquote(parts.username or ""), unquote(parts.password or ""), security)


def sender_from_text(text: str) -> str:
    """EMAIL_FROM as it is, if it is a sender. Raises BadSetting."""
    try:
        mailbox.sender(text)
    except ValueError as error:
        raise BadSetting(f"EMAIL_FROM: {error}") from None
    return text


def esp_from_text(name: str) -> str:
    """The provider of EMAIL_CHANNEL=anymail, if django-anymail has a backend for it. Raises BadSetting.

    Unknown ones are refused at start: a failure inside a try would look as if the mail might have been sent.
    """
    if not name:
        raise BadSetting("EMAIL_ESP: EMAIL_CHANNEL=anymail needs to know which provider, such as resend")
    if find_spec("anymail") is None:
        raise BadSetting("EMAIL_CHANNEL: anymail needs the package django-anymail (extra anymail)")
    if not name.isidentifier() or find_spec(f"anymail.backends.{name}") is None:
        raise BadSetting(f"EMAIL_ESP: django-anymail has no backend {name!r}")
    return name


def is_weak(provider: str, secret: str) -> bool:
    """Whether a webhook secret could be guessed: mistyped base64, say, would leave an empty key."""
    if provider != "resend":
        return len(secret.encode()) < LEAST_SECRET
    try:
        return len(b64decode(secret.removeprefix("whsec_"), validate=True)) < LEAST_SECRET
    except ValueError:
        return True


def secrets_from_text(text: str) -> dict[str, list[str]]:
    """`resend:whsec_new,resend:whsec_old,postmark:user:password` as lists by provider. Raises BadSetting."""
    providers: dict[str, list[str]] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, secret = entry.partition(":")
        if not colon or not name or not secret:
            raise BadSetting("EMAIL_WEBHOOK_SECRETS: every entry is provider:secret")
        if is_weak(name, secret):
            raise BadSetting(
                f"EMAIL_WEBHOOK_SECRETS: {name}'s secret is shorter than {LEAST_SECRET} bytes, or mistyped"
            )
        providers.setdefault(name, []).append(secret)
    if many := [name for name, secrets in providers.items() if len(secrets) > 2]:
        raise BadSetting(f"EMAIL_WEBHOOK_SECRETS: {many[0]} has more than two secrets, the new and the old")
    return providers
