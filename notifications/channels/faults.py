"""Whose fault a refusal is, as far as providers' APIs say: the account's, a limit's, the recipient's or the mail's. Pure.

What stands in no table is unclear: it is a letter, and several alike for different recipients pause the channel.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Fault = Literal["account", "limit", "recipient", "message", ""]

# Whatever the provider: the key, the address of its API, the account, a proxy in between, a block.
ACCOUNT_STATUS = {401, 402, 403, 404, 405, 407, 410, 451}
LIMIT_STATUS = {420, 429}  # SparkPost's and Mailgun's, and everybody's
# Seconds until a limit is looked at again, where no time is told, by its word; the others are rates.
WAITS = (("month", 3600.0), ("day", 3600.0), ("daily", 3600.0), ("hour", 900.0))


@dataclass(frozen=True)
class KnownAnswers:
    """Codes of a provider, and words of its texts in lower case."""

    account: Collection[str | int] = ()
    limit: Collection[str | int] = ()
    recipient: Collection[str | int] = ()
    account_words: tuple[str, ...] = ()
    limit_words: tuple[str, ...] = ()
    recipient_words: tuple[str, ...] = ()


PROVIDERS = {
    "postmark": KnownAnswers(
        account={10, 400, 401, 405, 412, 413},
        limit={100, 429},
        recipient={406, 411},
        account_words=("invalid 'from'", "message stream", "'messagestream'"),
        recipient_words=("invalid 'to'",),
    ),
    "resend": KnownAnswers(
        account={"missing_api_key", "invalid_api_key", "restricted_api_key", "invalid_from_address", "security_error"},
        limit={"daily_quota_exceeded", "monthly_quota_exceeded"},
        account_words=("api key", "not verified", "invalid `from`"),
        recipient_words=("invalid `to`",),
    ),
    "mailgun": KnownAnswers(
        account_words=("from parameter", "domain not found", "not allowed to send", "sandbox", "disabled", "suspended"),
        limit_words=("sending limit", "hourly", "daily", "limit exceeded"),
        recipient_words=("to parameter",),
    ),
    "sendgrid": KnownAnswers(
        account_words=("from address", "from email", "sender identity", "credits exceeded", "from.email"),
        recipient_words=("does not contain a valid address",),
    ),
    "amazon_ses": KnownAnswers(
        account={"AccountSuspendedException", "SendingPausedException", "MailFromDomainNotVerifiedException",
                 "AccountSendingPausedException", "ConfigurationSetSendingPausedException", "NotFoundException",
                 "ConfigurationSetDoesNotExist", "ConfigurationSetDoesNotExistException"},
        limit={"TooManyRequestsException", "LimitExceededException", "ThrottlingException", "Throttling"},
        account_words=("not verified", "sending paused", "sending suspended"),
        limit_words=("quota exceeded",),
    ),
    "brevo": KnownAnswers(
        account={"unauthorized", "not_enough_credits", "permission_denied", "account_under_validation",
                 "reseller_permission_denied"},
        account_words=("sender",),
        recipient_words=("email is not valid in to",),
    ),
    "sparkpost": KnownAnswers(
        account={"7001"},
        account_words=("unconfigured sending domain", "unverified sending domain"),
        recipient_words=("suppress",),
    ),
}  # fmt: skip


def fault_of_api(provider: str, status: int, code: str | int | None, text: str) -> Fault:
    """Whose fault a 4xx of a provider's API is, by its own code, its words, then the status."""
    known, words = PROVIDERS.get(provider, KnownAnswers()), text.casefold()
    if code in known.account or any(word in words for word in known.account_words):
        return "account"
    if status == 413:
        return "message"
    if code in known.limit or status in LIMIT_STATUS or any(word in words for word in known.limit_words):
        return "limit"
    if code in known.recipient or any(word in words for word in known.recipient_words):
        return "recipient"
    return "account" if status in ACCOUNT_STATUS else ""


def wait_for(text: str) -> float:
    """Seconds to wait for a limit that tells no time; 0 leaves them to the relay."""
    return next((seconds for word, seconds in WAITS if word in text.casefold()), 0.0)
