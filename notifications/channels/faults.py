"""Whose fault a refusal is, as far as providers' APIs and mail servers say: the account's, a limit's, the recipient's or the mail's. Pure.

What stands in no table is unclear: it is a letter, and several alike for different recipients pause the channel.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

Fault = Literal["account", "limit", "recipient", "message", ""]

# -- What an API answers: a table for each provider --------------------------------------------------------
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


# -- What a mail server replies, by its enhanced code and its words: one table, from top to bottom --------------
ENHANCED = re.compile(r"[245]\.\d{1,3}\.\d{1,3}(?![\w.])")
# Words between "sending" or "your" and "quota" that do not turn it into a mailbox's.
OURS = r"(?:(?!to |over |recipient|mailbox|inbox|user|storage|disk)[\w-]+ )"
SECOND, MINUTE, QUARTER, HOUR = 1.0, 60.0, 900.0, 3600.0


@dataclass(frozen=True)
class Rule:
    """A reply with one of these codes and one of these words; what is empty holds for every reply."""

    fault: Fault
    codes: str = ""
    words: str = ""
    wait: float = 0.0  # seconds that a limit lasts, where the reply names neither an hour nor a day

    def fits(self, code: str, reply: str) -> bool:
        return bool(
            (not self.codes or re.fullmatch(self.codes, code))
            and (not self.words or re.search(self.words, reply, re.IGNORECASE))
        )


RULES = (
    # The mail: no other is refused for it.
    Rule("message", codes=r"5\.3\.4"),
    Rule("message", words=r"message size|size limit|(?:mail|message) (?:is )?too (?:big|large)"),
    # The account may send no more for now. Before the mailboxes: Ionos says "mailbox unavailable" with it.
    Rule("limit", codes=r"5\.4\.5|5\.1\.90", wait=HOUR),  # Google; Microsoft
    # Microsoft: a server is busy, or an address sends too fast.
    Rule("limit", codes=r"4\.7\.[56]\d\d", wait=5 * MINUTE),
    Rule("limit", codes=r"[45]\.7\.28", wait=QUARTER),  # Google: an unusual rate of our address
    Rule(
        "limit",
        words=r"maximum sending rate|sender thread limit|concurrent connections? limit|per (?:connection|session)",
        wait=SECOND,
    ),
    Rule("limit", words=r"too much mail from|connection rate|too many connections", wait=MINUTE),
    Rule(
        "limit",
        words=rf"\b(?:send(?:ing|er|er's)?|submission|out(?:going|bound)) ?{OURS}{{0,4}}(?:limits?|quota|rate)\b"
        r"|submissionquota|throttling failure|(?:daily|hourly) message quota"
        rf"|\byou(?:'ve| have) sent too many|\byou(?:'ve| have) (?:exceeded|reached) {OURS}{{0,4}}(?:limits?|quota|max\w*|number)"
        rf"|\byour {OURS}{{0,3}}(?:limits?|quota)\b"
        r"|(?<!recipient has )(?<!user has )(?<!mailbox has )exceeded (?:the |its )?max(?:imum)? (?:defers and failures|e-?mails|messages)"
        r"|unusual (?:sending )?activity",
        wait=HOUR,
    ),
    # The account, the sender or our address is refused. Many servers look at the sender only when they hear the recipient.
    Rule("account", codes=r"[45]\.1\.[78]|5\.2\.252"),
    Rule("account", codes=r"5\.7\.(?:57|60|64|50\d|51[015]|6\d\d|705|708|723|750)"),  # Microsoft
    Rule("account", words=r"SendAsDenied|not authorized to perform"),
    # "to send to this group" is a recipient's choice, and so is "blocked by the recipient" below.
    Rule("account", words=r"not (?:allowed|authorized|permitted) to send(?! (?:\w+ ){0,2}to\b)"),
    Rule("account", words=r"sender (?:address |domain )?(?:is |was )?(?:rejected|not (?:owned|allowed|verified))"),
    Rule("account", words=r"unauthenticated senders|verified sender identity|sender signature|relaying disallowed as"),
    Rule(
        "account",
        words=r"(?<!recipient )address(?:es)? (?:is|are) not verified|failed the check in region|sandbox subdomain",
    ),
    Rule(
        "account",
        words=r"sending (?:is |has been |was )?(?:paused|suspended|disabled)|credits? exceeded|pending approval",
    ),
    Rule(
        "account",
        words=r"\boutgoing (?:(?:e-?)?mail|messages?) (?:from \S+ )?(?:is |has been |was )?(?:suspended|blocked|disabled)",
    ),
    Rule(
        "account",
        words=r"(?<!AuthRequired; )authentication (?:is )?required|invalid credentials|not (?:yet )?activated",
    ),
    Rule(
        "account",
        words=r"\byour (?:\w+ )?(?:account|domain|ip)\b[^.;]{0,40}(?:disabled|suspended|blocked|locked)(?! by (?:the |this )?(?:recipient|user))",
    ),
    # The mailbox does not exist, is full, takes no mail, or none so fast.
    Rule("recipient", codes=r"[45]\.(?:1\.(?:[1-46]|10)|2\.[1-4]|2\.12[12]|4\.4)"),
    Rule(
        "recipient",
        codes=r"(?![45]\.7\.).*",
        words=r"(?:mailbox|user|recipient|address|account) (?:is |was )?(?:unknown|unavailable|not found|full|disabled|inactive)"
        r"|(?:no such|unknown|invalid) (?:mailbox|user|recipient)|does not exist|out of storage"
        r"|address blacklisted|marked as inactive|over ?quota|(?:mailbox|recipient|user|inbox)\S*(?: \w+){0,3} quota|quota exceeded",
    ),
)


def rule_of(reply: str) -> Rule | None:
    """The first rule that fits; None for a reply that stands in no table."""
    enhanced = ENHANCED.match(reply)
    code = enhanced[0] if enhanced else ""
    return next((rule for rule in RULES if rule.fits(code, reply)), None)


AGAIN = "It fails again unless"
UNLESS = {"recipient": f"{AGAIN} the address works now.", "message": f"{AGAIN} the mail is taken now: it is too large."}
SAID = re.compile(r"(?:(?:MAIL|RCPT|DATA): )?(?P<code>5\d\d)[ -](?P<reply>.*)", re.DOTALL)  # as SMTP's channel says it
ANSWERED = re.compile(
    r"(?P<provider>\w+) answers (?P<status>4\d\d)(?: (?P<code>[\w-]+))?(?:: (?P<words>.*))?", re.DOTALL
)
REFUSED = "the provider refuses the recipient: "


def in_vain(error: str) -> str:
    """`550 5.1.1 is for good. It fails again unless the address works now.`; empty where another try may help."""
    fault, said = "", ""
    if smtp := SAID.match(error):
        enhanced = ENHANCED.match(smtp["reply"])
        fault, said = fault_of_reply(smtp["reply"])[0], " ".join([smtp["code"], *([enhanced[0]] if enhanced else [])])
    elif api := ANSWERED.match(error):
        code = int(api["code"]) if (api["code"] or "").isdecimal() else api["code"]
        fault, said = (
            fault_of_api(api["provider"], int(api["status"]), code, api["words"] or ""),
            "The provider's answer",
        )
    elif error.startswith(REFUSED):
        fault, said = "recipient", "The provider's answer"
    return f"{said} is for good. {UNLESS[fault]}" if fault in UNLESS else ""


def fault_of_reply(reply: str) -> tuple[Fault, float]:
    """Whose fault a refusal is, and the seconds to wait if it is a limit's."""
    rule = rule_of(reply)
    if rule is None:
        return "", 0.0
    return rule.fault, wait_for(reply) or rule.wait if rule.fault == "limit" else 0.0
