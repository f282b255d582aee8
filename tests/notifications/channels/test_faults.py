"""Whose fault a refusal is: the table of each provider, and the replies of mail servers."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifications.channels.anymail import outcome_of
from notifications.channels.faults import PROVIDERS, RULES, fault_of_api, fault_of_reply, in_vain, rule_of
from notifications.channels.smtp import RefusedReply
from notifications.channels.smtp import outcome_of as outcome_of_reply


def answer(status, body, headers=None):
    text = body if isinstance(body, str) else json.dumps(body)
    return SimpleNamespace(status_code=status, text=text, headers=headers or {}, json=lambda: json.loads(text))


def amazon(status, code, message):
    return {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {}},
    }


# Pause: what every mail would get. Wait: a limit. Letter: this mail. Rule: nobody can tell from one answer.
API = [
    ("mailgun", answer(404, {"message": "Domain not found: mg.example.com"}), "pause"),
    ("mailgun", answer(401, "Forbidden"), "pause"),
    ("mailgun", answer(403, {"message": "Domain mg.example.com is not allowed to send: free accounts are for tests"}), "pause"),
    ("mailgun", answer(400, {"message": "Sandbox subdomains are for test purposes only."}), "pause"),
    ("mailgun", answer(400, {"message": "from parameter is not a valid address. please check documentation"}), "pause"),
    ("mailgun", answer(400, {"message": "Domain mg.example.com is disabled: Account disabled"}), "pause"),
    ("mailgun", answer(400, {"message": "Message has been rejected: hourly sending limit"}), "wait 900"),
    ("mailgun", answer(400, {"message": "to parameter is not a valid address. please check documentation"}), "letter"),
    ("mailgun", answer(400, {"message": "something else"}), "rule"),
    ("sendgrid", answer(403, {"errors": [{"message": "The from address does not match a verified Sender Identity.",
                                          "field": "from", "help": None}]}), "pause"),
    ("sendgrid", answer(401, {"errors": [{"message": "Maximum credits exceeded", "field": None}]}), "pause"),
    ("sendgrid", answer(400, {"errors": [{"message": "The from email does not contain a valid address.", "field": "from.email"}]}),
     "pause"),
    ("sendgrid", answer(400, {"errors": [{"message": "Does not contain a valid address.",
                                          "field": "personalizations.0.to.0.email"}]}), "letter"),
    ("sendgrid", answer(413, {"errors": [{"message": "Payload too large"}]}), "letter"),
    ("sendgrid", answer(400, {"errors": [{"message": "Bad Request"}]}), "rule"),
    *[("postmark", answer(422, {"ErrorCode": code, "Message": "x"}), "pause") for code in (10, 400, 401, 405, 412, 413)],
    ("postmark", answer(422, {"ErrorCode": 300, "Message": "Invalid 'From' address: 'x'."}), "pause"),
    ("postmark", answer(422, {"ErrorCode": 1235, "Message": "The 'MessageStream' provided does not exist."}), "pause"),
    ("postmark", answer(422, {"ErrorCode": 406, "Message": "You tried to send to inactive recipients."}), "letter"),
    ("postmark", answer(422, {"ErrorCode": 300, "Message": "Invalid 'To' address: 'x'."}), "letter"),
    ("postmark", answer(422, {"ErrorCode": 403, "Message": "Incompatible JSON"}), "rule"),
    ("resend", answer(403, {"name": "validation_error", "message": "The example.com domain is not verified."}), "pause"),
    ("resend", answer(422, {"name": "invalid_from_address", "message": "Invalid `from` field."}), "pause"),
    ("resend", answer(400, {"name": "validation_error", "message": "API key is invalid"}), "pause"),
    ("resend", answer(451, {"name": "security_error", "message": "Contact support"}), "pause"),
    ("resend", answer(405, {"name": "method_not_allowed", "message": "x"}), "pause"),
    ("resend", answer(429, {"name": "monthly_quota_exceeded", "message": "x"}), "wait 3600"),
    ("resend", answer(429, {"name": "daily_quota_exceeded", "message": "x"}), "wait 3600"),
    ("resend", answer(429, {"name": "rate_limit_exceeded", "message": "x"}, {"retry-after": "2"}), "wait 2"),
    ("resend", answer(422, {"name": "validation_error", "message": "Invalid `to` field."}), "letter"),
    ("resend", answer(422, {"name": "invalid_parameter", "message": "x"}), "rule"),
    ("amazon_ses", amazon(400, "MessageRejected", "Email address is not verified: shop@example.com"), "pause"),
    ("amazon_ses", amazon(400, "AccountSuspendedException", "x"), "pause"),
    ("amazon_ses", amazon(404, "NotFoundException", "Configuration set does not exist"), "pause"),
    ("amazon_ses", amazon(400, "Throttling", "Daily message quota exceeded."), "wait 3600"),
    ("amazon_ses", amazon(400, "Throttling", "Maximum sending rate exceeded."), "wait"),
    ("amazon_ses", amazon(400, "MessageRejected", "Virus found"), "rule"),
    ("brevo", answer(400, {"code": "invalid_parameter", "message": "Sender is invalid / inactive"}), "pause"),
    ("brevo", answer(400, {"code": "account_under_validation", "message": "x"}), "pause"),
    ("brevo", answer(400, {"code": "invalid_parameter", "message": "email is not valid in to"}), "letter"),
    ("brevo", answer(400, {"code": "missing_parameter", "message": "htmlContent is missing"}), "rule"),
    ("sparkpost", answer(400, {"errors": [{"message": "Unconfigured Sending Domain <example.com>", "code": "7001"}]}), "pause"),
    ("sparkpost", answer(420, {"errors": [{"message": "Exceed Sending Limit (daily)", "code": "2102"}]}), "wait 3600"),
    ("sparkpost", answer(400, {"errors": [{"message": "Message generation rejected", "code": "1902",
                                           "description": "recipient address suppressed"}]}), "rule"),
    *[(esp, answer(status, "<html>"), "pause") for esp in ("mailersend", "postal")
      for status in (401, 402, 403, 404, 405, 407, 410, 451)],
    ("mailersend", answer(429, {"message": "Monthly quota reached"}), "wait 3600"),
    ("mailersend", answer(420, ""), "wait"), ("mailersend", answer(422, {"message": "odd"}), "rule"),
]  # fmt: skip


@pytest.mark.parametrize(("provider", "response", "said"), API)
def test_the_table_of_each_provider(provider, response, said):
    outcome = outcome_of(response, provider)
    word, _, seconds = said.partition(" ")
    kinds = {"pause": "auth", "wait": "throttled", "letter": "permanent", "rule": "permanent"}
    assert (outcome.kind, outcome.unclear) == (kinds[word], word == "rule"), outcome
    assert not seconds or outcome.retry_after == float(seconds)
    assert "@" not in outcome.error


@pytest.mark.parametrize("body", ["", "<html>no</html>", "[]", "[5]", "null", '{"errors": []}', '{"errors": [5]}', '{"message": 5}',
                                  '{"Error": "x", "message": {"a": 1}}', "x" * 9999])  # fmt: skip
@pytest.mark.parametrize("provider", [*PROVIDERS, "unknown"])
def test_an_answer_that_says_nothing_is_unclear_and_breaks_nothing(provider, body):
    outcome = outcome_of(answer(400, body), provider)
    assert (outcome.kind, outcome.unclear) == ("permanent", True)
    assert len(outcome.error) <= 300


@given(
    st.sampled_from([*PROVIDERS, "unknown"]), st.integers(400, 499), st.none() | st.integers() | st.text(), st.text()
)
def test_whatever_they_say_has_a_fault(provider, status, code, text):
    assert fault_of_api(provider, status, code, text) in ("account", "limit", "recipient", "message", "")


# Wait: a limit of ours. Again: later, an attempt is spent. Mail: nobody else's; it neither counts nor pauses.
REPLIES = [
    # Google
    ("550 5.4.5 Daily user sending quota exceeded. https://support.google.com/a/answer/166852 x-gsmtp", "wait 3600"),
    ("550 5.4.5 Daily SMTP relay limit exceeded for customer.", "wait 3600"),
    ("450 4.2.1 The user you are trying to contact is receiving mail at a rate that prevents", "again"),
    ("450 4.2.1 The user you are trying to contact is receiving mail too quickly.", "again"),
    ("550 5.2.1 The user you are trying to contact is receiving mail at a rate that prevents", "letter"),
    ("550 5.7.0 Mail relay denied [192.0.2.1]. Invalid credentials for relay", "pause"), ("550 5.7.1 Invalid credentials for relay", "pause"),
    ("553 5.7.0 Authentication Required. Learn more", "pause"), ("550 5.7.26 This mail is unauthenticated", "rule"),
    ("550 5.7.28 There is an unusual rate of unsolicited mail originating from your IP address.", "wait 900"),
    ("421 4.7.28 Our system has detected an unusual rate of unsolicited mail", "wait 900"),
    ("552 5.2.2 The recipient's inbox is out of storage space.", "letter"),
    ("550 5.1.1 The email account that you tried to reach does not exist", "letter"), ("452 4.2.2 over quota", "again"),
    ("550 5.2.1 The email account that you tried to reach is disabled.", "letter"), ("552 5.2.3 Your message exceeded Google's message size limits", "mail"),
    # Microsoft
    ("554 5.2.0 STOREDRV.Submission.Exception:SendAsDeniedException.MapiExceptionSendAsDenied; Failed to process", "pause"),
    ("554 5.2.252 SendAsDenied; shop@example.com not allowed to send as info@example.com", "pause"),
    ("550 5.7.60 SMTP; Client does not have permissions to send as this sender", "pause"),
    ("530 5.7.57 SMTP; Client was not authenticated to send anonymous mail", "pause"), ("550 5.7.57 Client not authenticated", "pause"),
    ("550 5.7.64 TenantAttribution; Relay Access Denied", "pause"), ("550 5.7.705 Access denied, tenant has exceeded threshold", "pause"),
    ("550 5.7.708 Service unavailable. Access denied, traffic not accepted from this IP", "pause"),
    ("550 5.7.750 Service unavailable. Client blocked from sending from unregistered domains", "pause"),
    ("550 5.1.8 Access denied, bad outbound sender", "pause"), ("550 5.7.606 Access denied, banned sending IP", "pause"),
    ("451 4.7.500 Server busy. Please try again later", "wait 300"), ("451 4.7.652 The mail server has exceeded the maximum", "wait 300"),
    ("550 5.1.90 Your message can't be sent because you've reached your daily limit for message recipients", "wait 3600"),
    ("554 5.2.0 STOREDRV.Submission.Exception:SubmissionQuotaExceededException; the sender's submission quota was exceeded", "wait 3600"),
    ("432 4.3.2 STOREDRV.ClientSubmit; sender thread limit exceeded", "wait 1"), ("432 4.3.2 Concurrent connections limit exceeded", "wait 1"),
    ("554 5.2.0 STOREDRV.Deliver.Exception:OtherException; Failed to process", "rule"), ("550 5.2.0 refused", "rule"),
    ("550 5.2.121 RESOLVER.RST.RecipientThrottled; recipient's per hour message receive limit from this sender exceeded", "letter"),
    ("550 5.2.122 The recipient has exceeded their limit for the number of messages they can receive per hour", "letter"),
    ("550 5.7.54 SMTP; Unable to relay recipient in non-accepted domain", "rule"),
    ("550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302).", "letter"),
    ("550 5.1.10 recipient not found", "letter"), ("554 5.2.2 mailbox full; STOREDRV.Deliver.Exception:QuotaExceededException", "letter"),
    # Amazon
    ("454 Throttling failure: Maximum sending rate exceeded.", "wait 1"), ("454 Throttling failure: Daily message quota exceeded.", "wait 3600"),
    ("554 Message rejected: Email address is not verified. The following identities failed the check in region EU-WEST-1: x", "pause"),
    ("554 Message rejected: Sending paused for this account.", "pause"), ("554 Access denied: User is not authorized to perform ses:SendRawEmail", "pause"),
    ("554 Message rejected: Address blacklisted.", "letter"),
    # Postfix, exim and who sells them
    ("550 Domain example.com has exceeded the max emails per hour (200/200 (100%)) allowed. Message discarded.", "wait 900"),
    ("550 Domain example.com has exceeded the max defers and failures per hour (5/5 (100%)) allowed.", "wait 900"),
    ("550 Outgoing mail quota exceeded for this account", "wait 3600"), ("451 Outgoing mail quota exceeded, try again", "wait 3600"),
    ('550 Outgoing mail from "shop@example.com" has been suspended.', "pause"), ("450 4.7.1 Error: too much mail from 192.0.2.1", "wait 60"),
    ("553 5.7.1 <shop@example.com>: Sender address rejected: not owned by user shop", "pause"),
    ("550 5.1.8 <shop@example.com>: Sender address rejected: Domain not found", "pause"), ("550 5.1.7 bad sender", "pause"),
    ("450 4.1.8 <shop@example.com>: Sender address rejected: Domain not found", "again rule"),
    ("550 You have exceeded your sending limit for today", "wait 3600"), ("550 5.7.1 Your sending quota for this month is used up", "wait 3600"),
    ("450 Requested mail action not taken: mailbox unavailable. Mail send limit exceeded.", "wait 3600"),
    ("550 5.7.1 Your account has been suspended for spam", "pause"), ("550 Hourly sending limit reached", "wait 900"),
    ("554 5.7.1 <ada@example.com>: Relay access denied", "rule"), ("454 4.7.1 Relay access denied", "again rule"),
    ("550 relay not permitted", "rule"), ("554 5.7.1 Message rejected as spam", "rule"), ("450 4.7.1 greylisted", "again rule"),
    ("554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked", "rule"), ("552 5.7.0 limit of the account", "rule"),
    ("550 5.7.1 Recipient address rejected: user unknown to the policy", "rule"), ("550 5.4.4 unrouteable address", "letter"),
    ("550 User unknown", "letter"), ("550 No such user here", "letter"), ("552 5.3.4 refused", "mail"), ("552 Message size exceeds fixed limit", "mail"),
    ("550 5.7.1 You are not allowed to send mail to this recipient", "rule"), ("550 5.7.1 Not authorized to send to the group", "rule"),
    ("550 5.7.1 RESOLVER.RST.AuthRequired; authentication required", "rule"), ("550 Your domain is blocked by the recipient", "rule"),
    ("550 Recipient has exceeded the max emails per hour", "rule"), ("550 You have reached an invalid address", "rule"),
    ("450 You have exceeded the maximum number of mails per connection", "wait 1"),
    ("550 You have exceeded the maximum number of messages", "wait 3600"), ("550 Your storage quota is used up", "rule"),
    # Yahoo, Zoho, OVH, SendGrid, Mailgun, Postmark, Resend, Brevo
    ("554 5.7.9 Message not accepted for policy reasons", "pause"), ("550 Daily sending limit exceeded", "wait 3600"),
    ("554 5.1.8 Email Outgoing Blocked", "pause"), ("550 5.4.6 Unusual sending activity detected. Please try after sometime", "wait 3600"),
    ("553 Relaying disallowed as info@example.com", "pause"), ("550 5.7.1 You have sent too many emails", "wait 3600"),
    ("550 Maximum credits exceeded", "pause"), ("550 Unauthenticated senders not allowed", "pause"),
    ("550 The from address does not match a verified Sender Identity.", "pause"),
    ("550 5.7.1 Domain mg.example.com is not allowed to send: disabled", "pause"), ("550 Sandbox subdomains are for test purposes only", "pause"),
    ("550 5.7.1 Sender signature not found", "pause"), ("550 Recipients that have been marked as inactive", "letter"),
    ("451 You have reached your daily email sending quota", "wait 3600"), ("502 5.7.0 Your SMTP account is not yet activated", "pause"),
    # The mailboxes of everybody
    ("552 5.2.2 Mailbox quota exceeded", "letter"), ("550 Recipient's quota exceeded", "letter"), ("550 The mailbox is over quota", "letter"),
    ("552 User quota exceeded", "letter"), ("452 4.2.2 The recipient's mailbox is full and cannot receive your message", "again"),
    ("550 5.2.1 mailbox disabled", "letter"), ("550 5.2.1 Recipient has reached the daily receiving limit", "letter"),
    ("552 Cannot send to this mailbox, quota exceeded", "letter"), ("552 Sending to a mailbox over quota limit", "letter"),
    ("550 Your recipient is over quota", "letter"), ("552 quota exceeded", "letter"), ("450 4.2.0 Recipient is receiving too many messages per hour", "again rule"),
]  # fmt: skip


def said_of(outcome):
    """What the table above says, of an outcome."""
    if outcome.kind in ("throttled", "auth"):
        return f"wait {outcome.retry_after:g}" if outcome.kind == "throttled" else "pause"
    whose = "rule" if outcome.unclear else "letter" if outcome.of_recipient else "mail"
    return whose if outcome.kind == "permanent" else f"again {whose}".removesuffix(" letter")


@pytest.mark.parametrize(("reply", "said"), REPLIES)
@pytest.mark.parametrize("step", ["RCPT", "DATA"])
def test_the_replies_of_mail_servers(reply, said, step):
    code, _, text = reply.partition(" ")
    assert said_of(outcome_of_reply(RefusedReply(step, int(code), text.encode()))) == said


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("550 5.4.5 Daily user sending quota exceeded", "wait 3600"), ("550 not today", "pause"),
        ("451 Authentication failed: Maximum credits exceeded", "pause"), ("454 4.7.0 Temporary failure", "unreachable"),
    ],
)  # fmt: skip
def test_limits_and_accounts_at_other_steps(reply, said):
    code, _, text = reply.partition(" ")
    outcome = outcome_of_reply(RefusedReply("MAIL" if code == "550" else "AUTH", int(code), text))
    assert (said_of(outcome) if outcome.kind != "unreachable" else outcome.kind) == said


@pytest.mark.parametrize("rule", RULES)
def test_no_rule_is_left_that_no_reply_needs(rule):
    """Each decides a reply of the table: without it that one would be told otherwise, or by luck."""
    replies = [reply.partition(" ")[2] for reply, _ in REPLIES]
    assert any(rule_of(reply) is rule for reply in replies)


@given(st.text())
def test_whatever_a_reply_says_has_a_fault(text):
    assert fault_of_reply(text)[0] in ("account", "limit", "recipient", "message", "")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("RCPT: 550 5.1.1 no such mailbox", "550 5.1.1 is for good. It fails again unless the address works now."),
        ("RCPT: 550 No such user here", "550 is for good. It fails again unless the address works now."),
        (
            "DATA: 552 5.3.4 too big",
            "552 5.3.4 is for good. It fails again unless the mail is taken now: it is too large.",
        ),
        ("RCPT: 450 4.2.1 mailbox busy", ""),
        ("RCPT: 550 5.7.1 policy", ""),
        (
            "postmark answers 422 406: inactive",
            "The provider's answer is for good. It fails again unless the address works now.",
        ),
        ("postmark answers 422 300: x", ""),
        (
            "the provider refuses the recipient: x",
            "The provider's answer is for good. It fails again unless the address works now.",
        ),
        ("no such mailbox", ""),
    ],
)
def test_a_refusal_is_for_good_where_the_table_says_whose_fault_it_is(error, said):
    assert in_vain(error) == said
