"""The e-mail handler in front of a real mail server behind STARTTLS."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from functools import cache
from typing import Any

import pytest

from config.environment.mail import MailServer
from notifications.channels import smtp
from outbox.channels import handlers as registry
from outbox.channels import permits
from outbox.delivery.candidates import lower_bound
from tests.notifications.channels.test_smtp import certificate
from tests.notifications.smtp_sink import Sink


@pytest.fixture
def tls_sink(settings: Any, monkeypatch: Any, tmp_path: Any) -> Iterator[Sink]:
    """EMAIL_URL names it, and its certificate is trusted."""
    file = certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", file)
    monkeypatch.setattr(smtp, "tls_context", cache(smtp.tls_context.__wrapped__))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(file)
    with Sink(tls=tls) as sink:
        settings.EMAIL_CHANNEL = "smtp"
        settings.EMAIL_SERVER = MailServer("localhost", sink.port, security="tls")
        yield sink


@pytest.fixture
def mails(db: Any, settings: Any, tls_sink: Sink) -> Iterator[Any]:
    """The handler of the channel email, which sends there."""
    settings.HANDLERS = {"email": "notifications.email_handler.EmailHandler"}
    registry.installed.clear()
    lower_bound.forget()
    permits.ensure(["email"])
    yield registry.handlers()["email"]
    registry.installed.clear()


def received(sink: Sink) -> list[EmailMessage]:
    """What the server has accepted, as a mailbox reads it."""
    return [message_from_bytes(kept["data"].encode(), policy=default) for kept in sink.accepted]
