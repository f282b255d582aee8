"""System checks of this app: settings with which no mail could ever be sent."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, register
from django.utils.module_loading import import_string

from config.environment import mailbox
from notifications.webhooks.providers import PROVIDERS

NEED_CRYPTOGRAPHY = {"sendgrid", "amazon_ses"}


@register(Tags.compatibility)
def mail_can_leave(app_configs: object, **_: object) -> list[CheckMessage]:
    """The chosen channel exists, its sender is an address, and a lease is long enough to use it."""
    return [*_sender(), *_channel(), *_lease(), *_webhooks()]


@register(Tags.security, deploy=True)
def mail_really_leaves(app_configs: object, **_: object) -> list[CheckMessage]:
    """Warn of channels that only pretend to send."""
    if settings.EMAIL_CHANNEL in ("memory", "console") and not settings.DEMO:
        return [Error(f"EMAIL_CHANNEL is {settings.EMAIL_CHANNEL}: nobody gets any mail.", id="spillway.E040")]
    return []


def _sender() -> Iterator[CheckMessage]:
    try:
        mailbox.sender(settings.EMAIL_FROM)
    except ValueError as error:
        yield Error(f"EMAIL_FROM: {error}.", id="spillway.E041")


def _channel() -> Iterator[CheckMessage]:
    path = settings.CHANNELS[settings.EMAIL_CHANNEL]
    try:
        import_string(path)
        if settings.EMAIL_CHANNEL == "anymail":
            import_string(f"anymail.backends.{settings.EMAIL_ESP}.EmailBackend")
    except ImportError as error:
        hint = "EMAIL_ESP names no backend of django-anymail, or the extra anymail is not installed"
        yield Error(
            f"EMAIL_CHANNEL={settings.EMAIL_CHANNEL}: {error}.",
            hint=hint if settings.EMAIL_CHANNEL == "anymail" else "",
            id="spillway.E042",
        )


def _lease() -> Iterator[CheckMessage]:
    # The relay starts no try that may outlast the lease, of which it keeps a tenth for settling.
    longest = settings.OUTBOX_LEASE_SECONDS * 0.45
    if longest <= settings.EMAIL_TIMEOUT_SECONDS:
        yield Error(
            f"EMAIL_TIMEOUT_SECONDS: above {longest:g} nothing is ever sent within OUTBOX_LEASE_SECONDS.",
            id="spillway.E045",
        )


def _webhooks() -> Iterator[CheckMessage]:
    named = set(settings.EMAIL_WEBHOOK_SECRETS)
    for name in sorted(named - set(PROVIDERS)):
        known = ", ".join(PROVIDERS)
        yield Error(f"EMAIL_WEBHOOK_SECRETS: there is no provider {name!r}; known: {known}.", id="spillway.E043")
    for name in sorted(named & NEED_CRYPTOGRAPHY):
        if find_spec("cryptography") is None:
            yield Error(
                f"EMAIL_WEBHOOK_SECRETS: {name} needs the package cryptography (extra anymail).", id="spillway.E044"
            )
