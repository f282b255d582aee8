"""Whose fault a refusal is: the table of each provider, and the replies of mail servers."""

import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifications.channels.anymail import outcome_of
from notifications.channels.faults import PROVIDERS, fault_of_api, fault_of_reply
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
    ("resend", answer(429, {"name": "monthly_quota_exceeded", "message": "x"}), "pause"),
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
    ("mailersend", answer(429, {"message": "Monthly quota reached"}), "pause"),
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
    assert fault_of_api(provider, status, code, text) in ("account", "limit", "message", "")


REPLIES = [
    ("554 5.7.1 <ada@example.com>: Relay access denied", "rule"), ("550 relay not permitted", "rule"),
    ("550 5.7.54 SMTP; Unable to relay recipient in non-accepted domain", "rule"), ("554 5.7.1 Message rejected as spam", "rule"),
    ("550 5.7.26 This mail is unauthenticated", "rule"), ("554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked", "rule"),
    ("550 5.7.1 Recipient address rejected: user unknown to the policy", "rule"), ("552 5.7.0 limit of the account", "rule"),
    ("553 5.7.1 <shop@example.com>: Sender address rejected: not owned by user shop", "pause"),
    ("550 5.1.8 <shop@example.com>: Sender address rejected: Domain not found", "pause"), ("550 5.1.7 bad sender", "pause"),
    ("550 5.1.1 The email account that you tried to reach does not exist", "letter"), ("550 5.1.10 recipient not found", "letter"),
    ("552 5.2.2 The mailbox is full", "letter"), ("550 5.4.4 unrouteable address", "letter"), ("550 User unknown", "letter"),
    ("550 No such user here", "letter"), ("550 5.5.0 Requested action not taken: mailbox unavailable (S2017062302).", "letter"),
    ("452 4.2.2 over quota", "wait"), ("450 4.7.1 greylisted", "wait rule"), ("454 4.7.1 Relay access denied", "wait rule"),
]  # fmt: skip


@pytest.mark.parametrize(("reply", "said"), REPLIES)
@pytest.mark.parametrize("step", ["RCPT", "DATA"])
def test_the_replies_of_mail_servers(reply, said, step):
    code, _, text = reply.partition(" ")
    outcome = outcome_of_reply(RefusedReply(step, int(code), text.encode()))
    kinds = {"pause": "auth", "wait": "transient", "letter": "permanent", "rule": "permanent"}
    assert (outcome.kind, outcome.unclear) == (kinds[said.split()[0]], "rule" in said), outcome


@given(st.text())
def test_whatever_a_reply_says_has_a_fault(text):
    assert fault_of_reply(text) in ("account", "message", "")
