"""SMTP: keeps connections, and tells apart every way a try can end."""

from __future__ import annotations

import smtplib
import socket
import ssl
import time
from dataclasses import dataclass, replace
from functools import cache

from django.conf import settings

from config.environment import mailbox
from config.environment.mail import MailServer
from notifications.channels import LEAST_WAIT, RETRIES_LAST, Channel, Pool, error_line
from notifications.channels.faults import fault_of_reply
from notifications.mail.content import Mail, mime
from outbox.channels.handlers import Outcome

CLOSING = 421  # the server shuts down and has not carried out the command
LOGIN_NEEDED, LOGIN_REFUSED = {530, 534, 535, 538}, {"5.7.8", "5.7.9"}
DEAD = (OSError, smtplib.SMTPServerDisconnected, smtplib.SMTPResponseException, UnicodeError)


class RefusedReply(Exception):
    """A reply that ends the try; `step` is the command it answers."""

    def __init__(self, step: str, code: int, text: bytes | str) -> None:
        reply = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        super().__init__(f"{step}: {code} {reply}")
        self.step, self.code, self.reply = step, code, reply

    @property
    def refuses(self) -> bool:
        """Whether it is a refusal; smtplib gives -1 for a line that is no reply."""
        return 400 <= self.code < 600


def outcome_of(refused: RefusedReply) -> Outcome:
    """The outcome of a reply: for the mail, the channel and the retry."""
    error = error_line(refused)
    if not refused.refuses:
        return Outcome("unreachable", error)  # the server speaks another protocol
    if refused.code in LOGIN_NEEDED or refused.reply[:5] in LOGIN_REFUSED:
        return Outcome("auth", error)
    if refused.step in ("connect", "EHLO", "STARTTLS"):
        return Outcome("unreachable", error)  # refused before anybody was named
    fault, wait = fault_of_reply(refused.reply)
    if fault == "limit":
        return Outcome("throttled", error, retry_after=wait)
    if fault == "account" and (refused.code >= 500 or refused.step == "AUTH"):
        return Outcome("auth", error)
    if refused.code == CLOSING or refused.step == "AUTH":
        return Outcome("unreachable", error)
    if refused.step == "MAIL" and 500 <= refused.code < 600 and refused.code != 552:
        return Outcome("auth", error)  # our sender is refused: the next mail would be, too
    answer = Outcome("permanent", error, unclear=fault in ("", "account"), of_recipient=fault == "recipient")
    if refused.code >= 500:
        return answer
    return replace(answer, kind="transient", least_wait=LEAST_WAIT, retries_last=RETRIES_LAST)


@cache
def tls_context() -> ssl.SSLContext:
    """With the certificates of this machine, which are read once for all connections: 28 ms of a processor and 0.8 MB."""
    return ssl.create_default_context()


@dataclass
class Connection:
    """A connection to the server and how long a try may still take on it."""

    server: MailServer
    deadline: float = 0.0
    smtp: smtplib.SMTP | None = None
    dot_left: bool = False  # the end of the mail was sent: only a reply tells whether it was accepted

    def send(self, mail: Mail) -> Outcome:
        self.dot_left = False
        try:
            data = mime(mail)
        except Exception as error:  # noqa: BLE001 (nothing has been sent, and the same mail fails again every time)
            return Outcome("permanent", error_line(f"the mail cannot be written: {type(error).__name__}: {error}"))
        try:
            smtp = self._ready()
            if (largest := int(smtp.esmtp_features.get("size") or 0)) and len(data) > largest:
                return Outcome("permanent", f"the mail has {len(data)} bytes, the server takes {largest}")
            return self._converse(smtp, mail, data)
        except RefusedReply as refused:
            outcome = outcome_of(refused)
            # After a limit on a fresh one: some servers count the mails of each connection.
            if outcome.kind in ("unreachable", "throttled") or refused.step in ("connect", "EHLO", "STARTTLS", "AUTH"):
                self.drop()
            if self.dot_left and not refused.refuses:
                return replace(outcome, kind="ambiguous")
            return outcome
        except DEAD as error:
            self.drop()
            return Outcome(
                "ambiguous" if self.dot_left else "unreachable", error_line(f"{type(error).__name__}: {error}")
            )

    def drop(self) -> None:
        """Close the connection without QUIT: a dead server would make us wait."""
        if self.smtp:
            self.smtp.close()
        self.smtp = None

    def _converse(self, smtp: smtplib.SMTP, mail: Mail, data: bytes) -> Outcome:
        self._ask(smtp, "MAIL", f"MAIL FROM:<{mailbox.sender(mail.sender).address}>", 250)
        self._ask(smtp, "RCPT", f"RCPT TO:<{mail.to}>", 250, 251)
        self._ask(smtp, "DATA", "DATA", 354)
        self._hurry(smtp)
        smtp.send(quoted(data))
        # The final dot is sent alone: a mail that fails before it was certainly not accepted.
        self.dot_left = True
        self._hurry(smtp)
        smtp.send(b".\r\n")
        code, reply = smtp.getreply()
        if code != 250:
            raise RefusedReply("DATA", code, reply)
        return Outcome("sent", receipt=reply.decode("utf-8", "replace")[:300])

    def _ready(self) -> smtplib.SMTP:
        """The kept connection if it still answers, else a new one."""
        if self.smtp:
            try:
                self._ask(self.smtp, "RSET", "RSET", 250)
            except (*DEAD, RefusedReply):
                self.drop()
        if not self.smtp:
            self.smtp = self._connect()
        return self.smtp

    def _connect(self) -> smtplib.SMTP:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no time left to connect")
        server = self.server
        name = socket.gethostname() or "localhost"
        try:
            if server.security == "ssl":
                smtp: smtplib.SMTP = smtplib.SMTP_SSL(
                    server.host, server.port, name, timeout=left, context=tls_context()
                )
            else:
                smtp = smtplib.SMTP(server.host, server.port, name, timeout=left)
        except smtplib.SMTPConnectError as error:
            raise RefusedReply("connect", error.smtp_code, error.smtp_error) from error
        try:
            self._introduce(smtp)
        except BaseException:
            smtp.close()
            raise
        return smtp

    def _introduce(self, smtp: smtplib.SMTP) -> None:
        if smtp.sock:
            smtp.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._greet(smtp)
        if self.server.security == "tls":
            self._hurry(smtp)
            try:
                smtp.starttls(context=tls_context())
            except smtplib.SMTPNotSupportedError as error:
                raise RefusedReply("STARTTLS", 502, str(error)) from error
            self._greet(smtp)
        if self.server.user:
            self._log_in(smtp)

    def _greet(self, smtp: smtplib.SMTP) -> None:
        self._hurry(smtp)
        code, reply = smtp.ehlo()
        if code != 250:
            raise RefusedReply("EHLO", code, reply)

    def _log_in(self, smtp: smtplib.SMTP) -> None:
        self._hurry(smtp)
        try:
            smtp.login(self.server.user, self.server.password)
        except smtplib.SMTPAuthenticationError as error:
            raise RefusedReply("AUTH", error.smtp_code, error.smtp_error) from error
        except smtplib.SMTPException as error:
            raise RefusedReply("AUTH", 535, f"no way to log in: {error}") from error

    def _ask(self, smtp: smtplib.SMTP, step: str, command: str, *good: int) -> None:
        self._hurry(smtp)
        code, reply = smtp.docmd(command)
        if code not in good:
            raise RefusedReply(step, code, reply)

    def _hurry(self, smtp: smtplib.SMTP) -> None:
        """Give each step the time left of the whole try: ten slow answers must not take ten timeouts."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("the server took too long")
        if smtp.sock:
            smtp.sock.settimeout(left)


class Smtp(Channel):
    """The server of EMAIL_URL. SMTP has no idempotency keys: a try without a final reply stays uncertain."""

    provider = "smtp"

    def __init__(self) -> None:
        self._lines = Pool(lambda: Connection(settings.EMAIL_SERVER))

    @property
    def where(self) -> str:
        return f"{settings.EMAIL_SERVER.host}:{settings.EMAIL_SERVER.port}"

    def send(self, mail: Mail, key: str) -> Outcome:
        with self._lines.one() as line:
            line.deadline = time.monotonic() + self.timeout
            return line.send(mail)

    def close(self) -> None:
        for line in self._lines.empty():
            line.drop()


def quoted(data: bytes) -> bytes:
    """Lines that begin with a dot get another one; the last line ends."""
    body = data if data.endswith(b"\r\n") else data + b"\r\n"
    return (b"." if body.startswith(b".") else b"") + body.replace(b"\r\n.", b"\r\n..")
