"""Mails as they stand in the outbox: rendered once, when the order changes, and the same bytes on every try."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from html import escape
from typing import Any

import msgspec
from django.conf import settings
from django.template.loader import render_to_string

from config.environment import mailbox
from config.letters import FormField, PayloadForm
from config.payload import digest, is_blank
from notifications.mail.headers import POLICY, check_headers, header_lines

SUBJECTS = {
    "order.paid": "We received your payment for order {number}",
    "order.cancelled": "Order {number} is cancelled",
    "order.refunded": "Order {number} is refunded",
    "order.part_refunded": "Part of order {number} is refunded",
}
KEEPS = "Whoever promised it keeps the address that they have."
REQUIRED = {"to", "subject", "text"}


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """The payload of an e-mail message. `headers` holds Date and Message-ID: every try sends the same ones.

    Made only with exactly one recipient and with values that cannot add a header; else ValueError. A blank `html` is made
    of the text, a blank sender is EMAIL_FROM; beside HTML the text may be blank, and the mail is HTML alone.
    """

    to: str
    sender: str = msgspec.field(name="from", default="")
    subject: str
    text: str
    html: str = ""
    headers: dict[str, str] = {}
    order_id: str = ""
    event_type: str = ""

    def __post_init__(self) -> None:
        if is_blank(self.sender):
            msgspec.structs.force_setattr(self, "sender", settings.EMAIL_FROM)
        if is_blank(self.html):
            msgspec.structs.force_setattr(self, "html", html_of(self.text))
        _check_recipient(self.to)
        mailbox.sender(self.sender)
        _check_subject(self.subject)
        check_headers(self.headers)


def given(payload: Mapping[str, Any]) -> dict[str, Any]:
    """The payload of a mail without the optional fields, and the headers, that are blank: they count as left out."""
    mail = {name: value for name, value in payload.items() if name in REQUIRED or not is_blank(value)}
    headers = mail.get("headers")
    if isinstance(headers, dict):
        mail["headers"] = {name: value for name, value in headers.items() if not is_blank(value)}
    return mail


def render(event_type: str, order: Any, amount: int = 0) -> Mail:
    """The payload of the mail about what has just happened to `order`; `amount` is that of a refund.

    A function of the order as it is now: the same version renders the same bytes. Raises ValueError when the
    recipient cannot be written to, KeyError for an event without a template.
    """
    subject = SUBJECTS[event_type].format(number=short(order.pk))
    context = {
        "order": order,
        "number": short(order.pk),
        "subject": subject,
        "total": money(order.total_amount, order.currency),
        "amount": money(amount or order.refunded_amount, order.currency),
        "refunded": money(order.refunded_amount, order.currency),
        "left": money(order.total_amount - order.refunded_amount, order.currency),
    }
    template = f"notifications/{event_type.replace('.', '_')}"
    return Mail(
        to=mailbox.check(order.user_email),
        sender=settings.EMAIL_FROM,
        subject=subject,
        text=_plain(f"{template}.txt", context),
        html=_plain(f"{template}.html", context),
        headers=identity(f"{order.pk}/{order.version}/{event_type}", order.updated_at),
        order_id=str(order.pk),
        event_type=event_type,
    )


def _plain(template: str, context: dict[str, object]) -> str:
    """A rendered template as a plain `str`: JSON encoders do not know Django's SafeString."""
    return str.__str__(render_to_string(template, context)).strip() + "\n"


def identity(key: str, date: datetime) -> dict[str, str]:
    """Date and Message-ID of a mail that has this idempotency key."""
    domain = mailbox.sender(settings.EMAIL_FROM).address.rpartition("@")[2]
    return {"Date": format_datetime(date), "Message-ID": f"<{digest(key.encode())}@{domain}>"}


def short(order_id: object) -> str:
    """The last, random digits of the id: short enough to read over the telephone."""
    return str(order_id).replace("-", "")[-10:].upper()


def complete(payload: Mapping[str, Any], key: str, date: datetime) -> dict[str, object]:
    """The mail of another service: `to`, `subject` and `text` are enough, the sender is then ours.

    HTML is made of the text, Date and Message-ID of `date` and `key`, and the address gets its normal form. ValueError
    for an address that cannot be written to.
    """
    mail = {"from": settings.EMAIL_FROM, **given(payload)}
    if isinstance(mail.get("to"), str):
        try:
            mail["to"] = mailbox.check(mail["to"])
        except ValueError as error:
            raise ValueError(f"{error} - at `$.to`") from None
    if isinstance(mail.get("text"), str):
        mail.setdefault("html", html_of(mail["text"]))
    headers = mail.get("headers", {})
    if isinstance(headers, dict):
        known = {name.lower() for name in headers}
        ours = {name: value for name, value in identity(key, date).items() if name.lower() not in known}
        mail["headers"] = {**ours, **headers}
    return mail


def renewed(payload: object, key: str, date: datetime) -> object:
    """The same mail with a Date and Message-ID of its own: mailboxes drop the second mail of an id without a word."""
    if not isinstance(payload, dict) or not isinstance(payload.get("headers"), dict):
        return payload  # `decode` says what is wrong with it
    new = identity(key, date)
    replaced = {name.lower() for name in new}
    kept = {name: value for name, value in payload["headers"].items() if name.lower() not in replaced}
    return {**payload, "headers": {**new, **kept}}


def html_of(text: str) -> str:
    """A plain text as HTML: a paragraph for each of its own."""
    parts = (part.strip("\n") for part in re.split(r"\n\s*\n", text))
    return "\n".join(f"<p>{escape(part).replace(chr(10), '<br>')}</p>" for part in parts if part) + "\n"


def decode(payload: str | bytes) -> Mail:
    """The mail in a payload. ValueError when it is none, or could never be delivered."""
    try:
        return mail_of(msgspec.json.decode(payload))
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from error


def mail_of(payload: object) -> Mail:
    """The mail that a decoded payload is. Raises ValidationError, or ValueError when it could never be delivered."""
    return msgspec.convert(given(payload) if isinstance(payload, dict) else payload, Mail)


def _check_recipient(address: str) -> None:
    if mailbox.check(address) != address:
        raise ValueError("the recipient is not in its normal form")


def _check_subject(subject: str) -> None:
    mailbox.header(subject, "the subject")


def faults(payload: object) -> list[str]:
    """All that makes a payload no mail, each with its place; `decode` and `Mail` say the first of them."""
    if not isinstance(payload, dict):
        return ["a mail is a JSON object"]
    mail = given(payload)
    return [fault for field in msgspec.structs.fields(Mail) for fault in _faults_of(field, mail)]


def _faults_of(field: msgspec.structs.FieldInfo, payload: Mapping[str, Any]) -> Iterator[str]:
    name = field.encode_name
    checks: dict[str, Callable[[Any], object]] = {
        "to": _check_recipient,
        "from": mailbox.sender,
        "subject": _check_subject,
        "headers": check_headers,
    }
    if name not in payload:
        if field.required:
            yield f"Object missing required field `{name}` - at `$`"
        return
    try:
        value = msgspec.convert(payload[name], field.type)
        if check := checks.get(name):
            check(value)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$")
        yield f"{words} - at `$.{name}{place.removesuffix('`')}`"
    except ValueError as error:
        yield f"{error} - at `$.{name}`"


def form_of(payload: object) -> PayloadForm | None:
    """How people edit a mail without its JSON."""
    if not isinstance(payload, dict):
        return None
    keeps = "The order keeps its address: its later mails go there." if payload.get("order_id") else KEEPS
    fields = [FormField("$.to", "To"), FormField("$.subject", "Subject"), FormField("$.text", "Text", lines=True)]
    html = FormField("$.html", "HTML", lines=True)
    return PayloadForm(fields, f"Only this mail goes to a new address. {keeps}", html, "$.text", html_of, _normal)


def _normal(path: str, text: str) -> str:
    """An address gets its normal form; one that has none stays as it was typed."""
    with suppress(ValueError):
        return mailbox.check(text) if path == "$.to" else text
    return text


def mime(mail: Mail) -> bytes:
    """The message as SMTP carries it: the same bytes for the same mail, 7 bit, CRLF."""
    message = EmailMessage(policy=POLICY)
    message["Subject"] = mail.subject
    if is_blank(mail.text):
        message.set_content(mail.html, subtype="html", cte="quoted-printable")
    else:
        message.set_content(mail.text, cte="quoted-printable")
        message.add_alternative(mail.html, subtype="html", cte="quoted-printable")
        # By default the boundary is random.
        message.set_boundary("=_" + digest((mail.text + mail.html).encode()))
    addressed = {"From": mailbox.sender(mail.sender).wire, "To": mail.to}
    return header_lines({**mail.headers, **addressed}) + message.as_bytes()


# -- Amounts: the currencies of ISO 4217 that people are charged in, and how one is written ------------------
ACTIVE = """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF
    CHF CLF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD
    HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL
    LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR
    PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP
    TRY TTD TWD TZS UAH UGX USD UYI UYU UYW UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG
"""
CURRENCIES = frozenset(ACTIVE.split())
# Those whose minor unit is not a hundredth.
EXPONENTS = {
    **dict.fromkeys(["BHD", "IQD", "JOD", "KWD", "LYD", "OMR", "TND"], 3),
    **dict.fromkeys(
        ["BIF", "CLP", "DJF", "GNF", "ISK", "JPY", "KMF", "KRW", "PYG", "RWF", "UGX", "UYI", "VND", "VUV",
         "XAF", "XOF", "XPF"], 0,
    ),
    **dict.fromkeys(["CLF", "UYW"], 4),
}  # fmt: skip


def money(minor: int, currency: str) -> str:
    """`1,234.50 EUR`, `1,235 JPY`, `1.250 KWD`: never through a float."""
    exponent = EXPONENTS.get(currency, 2)
    whole, rest = divmod(abs(minor), 10**exponent)
    sign = "-" if minor < 0 else ""
    return f"{sign}{whole:,}{f'.{rest:0{exponent}d}' if exponent else ''} {currency}"
