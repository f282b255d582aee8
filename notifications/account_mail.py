"""The mail that brings a person the link to set a password: sent at once, because the outbox would keep the link."""

from __future__ import annotations

import uuid
from contextlib import closing

from django.conf import settings
from django.utils import timezone
from django.utils.html import linebreaks, urlize

from config.environment import mailbox
from config.environment.env import BadSetting
from notifications import channels
from notifications.mail import content
from notifications.mail.content import Mail


def send(address: str, subject: str, text: str) -> str:
    """ACCOUNT_MAIL: try once; why it was not accepted, in one line without an address, or empty."""
    key = uuid.uuid4()
    try:
        mail = Mail(
            to=mailbox.check(address),
            sender=settings.EMAIL_FROM,
            subject=subject,
            text=text,
            html=str.__str__(linebreaks(urlize(text, autoescape=True))),
            headers=content.identity(str(key), timezone.now()),
        )
        with closing(channels.configured()) as channel:
            outcome = channel.send(mail, str(key))
            there = f"{channel.where}: " if channel.where and outcome.kind == "unreachable" else ""
    except (ValueError, BadSetting) as error:
        return channels.error_line(error)
    return "" if outcome.ok else f"{there}{outcome.error or outcome.kind}"
