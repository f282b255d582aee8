"""Providers with an HTTP API, through django-anymail: its exceptions become one of our seven outcomes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

from anymail.exceptions import (
    AnymailConfigurationError,
    AnymailError,
    AnymailInvalidAddress,
    AnymailRecipientsRefused,
    AnymailSerializationError,
    AnymailUnsupportedFeature,
)
from anymail.message import AnymailMessage, AnymailStatus
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.mail import get_connection
from django.utils import timezone

from config.environment import mailbox
from config.payload import is_blank
from notifications.channels import Channel, Pool, error_line
from notifications.channels.faults import REFUSED, fault_of_api, wait_for
from notifications.mail.content import Mail
from notifications.mail.headers import LONGEST_LINE
from outbox.channels.handlers import Outcome

DAY, HALF_HOUR = 86_400.0, 1_800.0
# For how long each provider remembers a key; the others have none.
KEYS_LAST = {"resend": DAY, "sparkpost": DAY, "brevo": HALF_HOUR}
KEY_IN_HTTP = {"resend", "sparkpost"}
# Providers write these themselves; our Date and Message-ID are for SMTP.
NOT_PASSED_ON = {"date", "message-id"}

NEVER = (AnymailInvalidAddress, AnymailSerializationError, AnymailUnsupportedFeature)
# Names in the chain of causes; boto3 is not installed everywhere, so they are not imported.
TAKEN = {"sent", "queued"}
NOBODY_THERE = {
    "NewConnectionError",
    "NameResolutionError",
    "ConnectTimeout",
    "ConnectTimeoutError",
    "ProxyError",
    "SSLCertVerificationError",
    "EndpointConnectionError",
}
NO_CREDENTIALS = {"NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"}
STILL_AT_IT = ("concurrent", "in progress", "1601")


class HttpAnswer(Protocol):
    """What `requests` returns."""

    status_code: int
    text: str
    headers: Mapping[str, str]

    def json(self) -> object: ...


Answer = HttpAnswer | dict[str, Any]  # a dict is boto3's


class Session:
    """A backend with its open session; one try at a time."""

    backend: Any = None

    def open(self, provider: str, options: dict[str, Any]) -> Any:
        backend = get_connection(f"anymail.backends.{provider}.EmailBackend", **options)
        backend.open()
        self.backend = backend
        return backend

    def drop(self) -> None:
        if self.backend:
            self.backend.close()
        self.backend = None


class UnfoldedMail(AnymailMessage):
    """A mail for those who take it as bytes: each header is one line, since Django leaves the first empty if a value is long."""

    def message(self) -> Any:
        whole = super().message()
        whole.policy = whole.policy.clone(max_line_length=LONGEST_LINE)
        return whole


class Anymail(Channel):
    """The provider that EMAIL_ESP names, with its settings from ANYMAIL_*."""

    def __init__(self) -> None:
        self.provider = settings.EMAIL_ESP
        self.keys_last = KEYS_LAST.get(self.provider, 0.0)
        self._lines = Pool(Session)

    @property
    def where(self) -> str:
        return self.provider

    def send(self, mail: Mail, key: str) -> Outcome:
        with self._lines.one() as line:
            outcome = self._try(line, mail, key)
            if outcome.kind in ("unreachable", "ambiguous"):
                line.drop()
            return outcome

    def close(self) -> None:
        for line in self._lines.empty():
            line.drop()

    def _try(self, line: Session, mail: Mail, key: str) -> Outcome:
        message: AnymailMessage | None = None
        try:
            message = self._message(mail, key)
            backend = line.backend or line.open(self.provider, self._options())
            if self.provider in KEY_IN_HTTP:
                backend.session.headers["Idempotency-Key"] = key
            backend.send_messages([message])
        except (AnymailConfigurationError, ImproperlyConfigured) as error:
            return Outcome("auth", error_line(error))
        except AnymailRecipientsRefused as error:
            return Outcome("permanent", f"{REFUSED}{error_line(error)}", of_recipient=True)
        except NEVER as error:
            # Anymail raises the same while it reads an answer: then the mail may have been sent.
            answer = message.anymail_status.esp_response if message else None
            if answer is None:
                return Outcome("permanent", error_line(error), unclear=True)
            return outcome_of(answer, self.provider)
        except AnymailError as error:
            response = error.response
            return _without_answer(error) if response is None else outcome_of(response, self.provider)
        return accepted(message.anymail_status, self.provider)

    def _message(self, mail: Mail, key: str) -> AnymailMessage:
        headers = {name: value for name, value in mail.headers.items() if name.lower() not in NOT_PASSED_ON}
        if self.provider == "brevo":
            headers["idempotencyKey"] = key
        message = UnfoldedMail(mail.subject, mail.text, mailbox.sender(mail.sender).text, [mail.to], headers=headers)
        if is_blank(mail.text):
            message.body, message.content_subtype = mail.html, "html"
        else:
            message.attach_alternative(mail.html, "text/html")
        message.metadata = {"message_id": key}  # comes back in every webhook
        return message

    def _options(self) -> dict[str, object]:
        connect, answer = self.timeout / 3, self.timeout * 2 / 3
        if self.provider != "amazon_ses":
            return {"timeout": (connect, answer)}
        # The SDK's own retries would send again behind our back.
        limits = {"connect_timeout": connect, "read_timeout": answer, "retries": {"total_max_attempts": 1}}
        params = settings.ANYMAIL.get("AMAZON_SES_CLIENT_PARAMS", {})
        return {"client_params": {**params, "config": {**params.get("config", {}), **limits}}}


def accepted(status: AnymailStatus, provider: str) -> Outcome:
    """The outcome of a send that raised nothing: some refusals come without an exception."""
    if status_of(status.esp_response) >= 400:
        return outcome_of(status.esp_response, provider)
    if status.message_id or status.status & TAKEN:
        return Outcome("sent", receipt=str(status.message_id or "")[:300])
    return Outcome("ambiguous", f"{provider} says {', '.join(sorted(map(str, status.status)))}")


def outcome_of(response: Answer, provider: str) -> Outcome:
    """The outcome of a provider's answer: for the mail, the channel and the retry."""
    status, code, words = status_of(response), code_of(response), words_of(response)
    text = error_line(f"{provider} answers {status}{f' {code}' if code else ''}")
    if status >= 500 or 300 <= status < 400:
        return Outcome("unreachable", text)
    if 200 <= status < 300:
        return Outcome("ambiguous", f"{text}, and nothing that can be read")
    if status == 408 or (status == 409 and any(sign in body_of(response) for sign in STILL_AT_IT)):
        return Outcome("transient", text, least_wait=5.0)
    fault, text = fault_of_api(provider, status, code, words), error_line(f"{text}{f': {words}' if words else ''}")
    if fault == "account":
        return Outcome("auth", text)
    if fault == "limit":
        return Outcome("throttled", text, retry_after=retry_after(response) or wait_for(f"{code} {words}"))
    return Outcome("permanent", text, unclear=not fault, of_recipient=fault == "recipient")


def _without_answer(error: AnymailError) -> Outcome:
    names = {type(cause).__name__ for cause in causes(error)}
    text = error_line(next(iter(error.args), "") or type(error).__name__)
    if names & NO_CREDENTIALS:
        return Outcome("auth", f"no credentials: {text}")
    if names & NOBODY_THERE:
        return Outcome("unreachable", f"no connection: {text}")
    return Outcome("ambiguous", f"no answer: {text}")


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from, and what those carry as argument or reason."""
    waiting, known = [error], set()
    while waiting:
        cause = waiting.pop()
        if id(cause) in known:
            continue
        known.add(id(cause))
        yield cause
        inner = [cause.__cause__, cause.__context__, getattr(cause, "reason", None), *cause.args]
        waiting += [error for error in inner if isinstance(error, BaseException)]


def status_of(response: Answer) -> int:
    """The HTTP status; 0 when there is none."""
    if isinstance(response, dict):  # boto3
        return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return int(getattr(response, "status_code", 0))


def code_of(response: Answer) -> str | int | None:
    """The provider's own code: a number or a word, never the text, which may name people."""
    told = _told_in(_json(response))
    code = told.get("Code") or told.get("ErrorCode") or told.get("code") or told.get("name")
    return code if isinstance(code, int) or (isinstance(code, str) and code.replace("_", "").isalnum()) else None


def words_of(response: Answer) -> str:
    """What the provider says beside its code; empty for a page of HTML, which some proxy wrote."""
    if (body := _json(response)) is None:
        text = body_of(response)
        return "" if "<" in text else text
    texts = (_told_in(body).get(name) for name in ("message", "Message", "description", "error"))
    return next((text for text in texts if isinstance(text, str)), "")


def _json(response: Answer) -> object:
    """None where it is none."""
    try:
        return response if isinstance(response, dict) else response.json()
    except ValueError:
        return None


def _told_in(body: object) -> dict[str, object]:
    """The object that holds code and words: `Error`, the first of `errors`, or the whole."""
    if not isinstance(body, dict):
        return {}
    inner: dict[str, object] = body["Error"] if isinstance(body.get("Error"), dict) else body
    errors = inner.get("errors")
    return errors[0] if isinstance(errors, list) and errors and isinstance(errors[0], dict) else inner


def body_of(response: Answer) -> str:
    return str(response) if isinstance(response, dict) else str(response.text)


def retry_after(response: Answer) -> float:
    """Seconds to wait as told: `Retry-After` as a number or a date, else `ratelimit-reset`; 0 when not told."""
    headers = response["ResponseMetadata"].get("HTTPHeaders", {}) if isinstance(response, dict) else response.headers
    text = headers.get("retry-after") or headers.get("ratelimit-reset") or ""
    try:
        seconds = float(text)
        return max(0.0, seconds) if math.isfinite(seconds) else 0.0
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(text) - timezone.now()).total_seconds())
    except (ValueError, TypeError):
        return 0.0
