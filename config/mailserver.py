"""EMAIL_URL: one line that says which SMTP server, how to log in, and how the line is encrypted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote, urlsplit

from config.env import BadSetting

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
    parts = urlsplit(url)
    security: Security = "ssl" if parts.scheme == "smtps" else "none"
    options = {option.partition("=")[0] for option in parts.query.split("&") if option}
    if unknown := options - {"tls", "ssl"}:
        raise BadSetting(f"EMAIL_URL: {', '.join(sorted(unknown))} is no option; there are tls and ssl")
    if "tls" in options or "ssl" in options:
        security = "tls" if "tls" in options else "ssl"
    try:
        port = parts.port or PORTS[security]
    except ValueError:
        raise BadSetting("EMAIL_URL: the port is not a number below 65536") from None
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise BadSetting("EMAIL_URL: it must look like smtp://user:password@host:587/?tls")
    return MailServer(
        parts.hostname, port, unquote(parts.username or ""), unquote(parts.password or ""), security
    )


def secrets_from_text(text: str) -> dict[str, list[str]]:
    """`resend:whsec_new,resend:whsec_old,postmark:user:password` as lists by provider. Raises BadSetting."""
    found: dict[str, list[str]] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, secret = entry.partition(":")
        if not colon or not name or not secret:
            raise BadSetting("EMAIL_WEBHOOK_SECRETS: every entry is provider:secret")
        found.setdefault(name, []).append(secret)
    if many := [name for name, secrets in found.items() if len(secrets) > 2]:
        raise BadSetting(f"EMAIL_WEBHOOK_SECRETS: {many[0]} has more than two secrets, the new and the old")
    return found
