"""What providers send: a sample of each kind of event, in the shape that their documents and clients show.

Written for these tests. Addresses, names and ids are made up; `MESSAGE` is our id, as it comes back.
"""

from __future__ import annotations

import json
import uuid
from typing import Any, NamedTuple

MESSAGE = str(uuid.UUID("019b8f00-0000-7000-8000-000000000001"))
ADA = "ada@example.com"


class Sample(NamedTuple):
    """One payload and what we make of it; of SES it is what SNS carries as text."""

    name: str
    body: Any
    kind: str


def mailgun(name: str, event: str, kind: str, **more: Any) -> Sample:
    data = {
        "account": {"id": "5f0a"}, "domain": {"name": "mg.example.com"}, "id": "W3X4JOhFT-OZidZGKKr9iA", "event": event,
        "timestamp": 1795200000.329574, "log-level": "info", "method": "HTTP", "recipient": ADA, "recipient-domain": "example.com",
        "envelope": {"sender": "shop@mg.example.com", "targets": ADA, "transport": "smtp", "sending-ip": "192.0.2.9"},
        "flags": {"is-routed": False, "is-authenticated": True, "is-system-test": False, "is-test-mode": False},
        "message": {"headers": {"to": ADA, "from": "shop@mg.example.com", "message-id": "20261120.1.A@mg.example.com",
                                "subject": "Your order"}, "attachments": [], "size": 111},
        "storage": {"url": "https://example.com/s", "key": "message_key"}, "campaigns": [], "tags": ["order"],
        "user-variables": {"message_id": MESSAGE}, **more,
    }  # fmt: skip
    return Sample(name, {"event-data": data}, kind)


def failed(reason: str, kind: str, code: int, message: str, severity: str = "permanent") -> Sample:
    said = {"tls": True, "mx-host": "mx.example.com", "code": code, "description": "", "session-seconds": 0.43,
            "attempt-no": 1, "message": message, "certificate-verified": True, "bounce-type": "hard"}  # fmt: skip
    return mailgun(
        f"{severity} {reason}", "failed", kind, **{"severity": severity, "reason": reason, "delivery-status": said}
    )


MAILGUN = [
    mailgun("accepted", "accepted", "accepted"),
    mailgun("delivered", "delivered", "delivered", **{"delivery-status": {"code": 250, "message": "OK", "utf8": True}}),
    failed("generic", "deferred", 451, "try later", "temporary"),
    failed("greylisted", "deferred", 450, "greylisted", "temporary"),
    failed("bounce", "bounced", 550, "5.1.1 no such user"),
    failed("hardfail", "bounced", 550, "5.1.1 no such user"),
    failed("suppress-bounce", "bounced", 605, "Not delivering to previously bounced address"),
    failed("suppress-complaint", "complained", 607, "Not delivering to a user who complained"),
    failed("suppress-unsubscribe", "rejected", 606, "Not delivering to unsubscribed address"),
    failed("old", "rejected", 602, "Too old"),
    failed("espblock", "rejected", 550, "5.7.1 blocked"),
    failed("generic", "rejected", 498, "No MX for example.com"),
    failed("a-new-reason", "rejected", 550, "?"),
    mailgun("rejected", "rejected", "rejected", reject={"reason": "Sandbox", "description": ""}),
    mailgun("complained", "complained", "complained"),
    mailgun("opened", "opened", "other", ip="192.0.2.1", **{"client-info": {"device-type": "desktop"}}),
    mailgun("unsubscribed, no variables", "unsubscribed", "other", **{"user-variables": []}),
    mailgun("what they may add", "list_member_uploaded", "other"),
]


def sendgrid(name: str, event: str, kind: str, **more: Any) -> Sample:
    body = {"email": ADA, "timestamp": 1795200000, "smtp-id": "<1@geopod>", "event": event, "category": ["order"],
            "sg_event_id": f"ev-{name}", "sg_message_id": f"14c5d75ce93.dfd.64b469.filter0001.{name}",
            "message_id": MESSAGE, **more}  # fmt: skip
    return Sample(name, body, kind)


SENDGRID = [
    sendgrid("processed", "processed", "accepted", send_at=1795200000, pool={"name": "order", "id": 210}),
    sendgrid("delivered", "delivered", "delivered", response="250 OK", ip="192.0.2.1", tls=1),
    sendgrid("deferred", "deferred", "deferred", response="400 try again later", attempt="5"),
    sendgrid("bounce", "bounce", "bounced", reason="550 5.1.1 no such user", status="5.1.1", type="bounce",
             bounce_classification="Invalid Address"),
    sendgrid("classified", "bounce", "rejected", reason="550 spam", type="bounce", bounce_classification="Reputation"),
    sendgrid("blocked", "bounce", "rejected", reason="550 5.7.1 blocked", type="blocked", bounce_classification="Content"),
    sendgrid("dropped", "dropped", "rejected", reason="Unsubscribed Address", status="5.0.0"),
    sendgrid("spamreport", "spamreport", "complained"),
    sendgrid("open", "open", "other", useragent="Mozilla/5.0", ip="192.0.2.1", sg_machine_open=False),
    sendgrid("group_unsubscribe", "group_unsubscribe", "other", asm_group_id=10),
    sendgrid("account_status_change", "account_status_change", "other", type="compliance_suspend"),
]  # fmt: skip


def postmark(name: str, record_type: str, kind: str, **more: Any) -> Sample:
    body = {"RecordType": record_type, "ServerID": 23, "MessageStream": "outbound", "Tag": "order",
            "MessageID": "883953f4-6105-42a2-a16a-77a8eac79483", "Metadata": {"message_id": MESSAGE}, **more}  # fmt: skip
    return Sample(name, body, kind)


def returned(what: str, code: int, kind: str, record_type: str = "Bounce") -> Sample:
    return postmark(
        what, record_type, kind, ID=4323372036854775807, Type=what, TypeCode=code, Name=what, Details="what came back",
        Description="what it means", Email=ADA, From="shop@example.com", BouncedAt="2026-11-20T16:33:54.9070259Z",
        DumpAvailable=True, Inactive=False, CanActivate=True, Subject="Your order", Content="",
    )  # fmt: skip


POSTMARK = [
    postmark("Delivery", "Delivery", "delivered", Recipient=ADA, DeliveredAt="2026-11-20T16:33:54-05:00", Details="250 OK"),
    returned("HardBounce", 1, "bounced"), returned("BadEmailAddress", 100000, "bounced"), returned("Transient", 2, "deferred"),
    returned("DnsError", 256, "deferred"), returned("Unknown", 2048, "deferred"), returned("WhatTheyMayAdd", 9, "deferred"),
    *[returned(what, code, "other") for what, code in {
        "Unsubscribe": 16, "Subscribe": 32, "AutoResponder": 64, "AddressChange": 128, "SpamNotification": 512,
        "OpenRelayTest": 1024, "ChallengeVerification": 16384, "InboundError": 100008}.items()],
    *[returned(what, code, "rejected") for what, code in {
        "SoftBounce": 4096, "VirusNotification": 8192, "ManuallyDeactivated": 100002, "Unconfirmed": 100003,
        "Blocked": 100006, "SMTPApiError": 100007, "DMARCPolicy": 100009, "TemplateRenderingFailed": 100010}.items()],
    returned("SpamComplaint", 100001, "complained", "SpamComplaint"),
    postmark("Open", "Open", "other", Recipient=ADA, FirstOpen=True, ReceivedAt="2026-11-20T16:33:54.9Z", Geo={}),
    postmark("SubscriptionChange", "SubscriptionChange", "other", Recipient=ADA, SuppressSending=True,
             ChangedAt="2026-11-20T16:33:54Z", SuppressionReason="HardBounce", Origin="Recipient"),
]  # fmt: skip


def resend(name: str, kind: str, **more: Any) -> Sample:
    what = name.split()[0]
    data = {"created_at": "2026-11-20T23:41:11.894719+00:00", "email_id": "56761188-7520-42d8-8898-ff6fc54ce618",
            "from": "Shop <shop@example.com>", "to": [ADA], "subject": "Your order", "broadcast_id": None,
            "headers": [{"name": "X-Metadata", "value": json.dumps({"message_id": MESSAGE})}],
            "tags": {"category": "order"}, **more}  # fmt: skip
    return Sample(name, {"type": what, "created_at": "2026-11-20 23:41:12.126+00", "data": data}, kind)


def no_way(kind: str, sub_type: str) -> dict[str, Any]:
    return {"bounce": {"type": kind, "subType": sub_type, "message": "The mail came back."}}


RESEND = [
    resend("email.sent", "accepted"), resend("email.delivered", "delivered"),
    resend("email.delivery_delayed", "deferred"), resend("email.complained", "complained"),
    resend("email.bounced Permanent", "bounced", **no_way("Permanent", "Suppressed")),
    resend("email.bounced old", "bounced", bounce={"message": "The mail came back."}),
    resend("email.bounced full", "rejected", **no_way("Transient", "MailboxFull")),
    resend("email.bounced away", "deferred", **no_way("Transient", "General")),
    resend("email.bounced unclear", "deferred", **no_way("Undetermined", "Undetermined")),
    resend("email.failed", "rejected", failed={"reason": "reached_daily_quota"}),
    resend("email.suppressed", "rejected", suppressed={"message": "on the list", "type": "OnAccountSuppressionList"}),
    resend("email.opened", "other"), resend("email.scheduled", "other"),
    Sample("contact.created", {"type": "contact.created", "created_at": "2026-11-20T23:41:12.126Z",
                               "data": {"id": "e1", "email": ADA, "unsubscribed": False}}, "other"),
]  # fmt: skip


def ses(name: str, what: str, kind: str, named: str = "eventType", **part: Any) -> Sample:
    mail = {
        "timestamp": "2026-11-20T14:59:38.237Z", "messageId": "0100018dd-01", "source": "shop@example.com", "sourceIp": "127.0.3.0",
        "sendingAccountId": "123456789012", "destination": [ADA], "headersTruncated": False,
        "headers": [{"name": "To", "value": ADA}, {"name": "X-Metadata", "value": json.dumps({"message_id": MESSAGE})}],
        "commonHeaders": {"from": ["shop@example.com"], "to": [ADA], "subject": "Your order"}, "tags": {"ses:caller": ["x"]},
    }  # fmt: skip
    inner = what[0].lower() + what[1:].replace(" ", "")
    stamp = {} if what == "Send" else {"timestamp": "2026-11-20T15:00:38.237Z"}
    return Sample(name, {named: what, "mail": mail, inner: {**stamp, **part}}, kind)


def came_back(kind: str, sub_type: str, ours: str) -> Sample:
    person = {"emailAddress": ADA, "status": "5.1.1", "action": "failed", "diagnosticCode": "smtp; 550 5.1.1"}
    return ses(f"{kind} {sub_type}", "Bounce", ours, bounceType=kind, bounceSubType=sub_type, bouncedRecipients=[person],
               feedbackId="01-02", remoteMtaIp="192.0.2.1", reportingMTA="dsn; a1.smtp.example.com")  # fmt: skip


def complaint(feedback: str | None, ours: str) -> Sample:
    return ses(f"complaint {feedback}", "Complaint", ours, "notificationType", complainedRecipients=[{"emailAddress": ADA}],
               complaintSubType=None, complaintFeedbackType=feedback, userAgent="AnyCompany FBL", feedbackId="01-03",
               arrivalDate="2026-11-20T14:59:38.237Z")  # fmt: skip


SES = [
    ses("Send", "Send", "accepted"),
    ses("Delivery", "Delivery", "delivered", recipients=[ADA], processingTimeMillis=546, smtpResponse="250 ok",
        remoteMtaIp="192.0.2.1", reportingMTA="a8-70.smtp.example.com"),
    ses("DeliveryDelay", "DeliveryDelay", "deferred", delayType="TransientCommunicationFailure",
        delayedRecipients=[{"emailAddress": ADA, "status": "4.4.1"}]),
    *[came_back("Permanent", sub, "bounced") for sub in ("General", "NoEmail", "Suppressed", "OnAccountSuppressionList")],
    *[came_back("Transient", sub, "rejected") for sub in ("MailboxFull", "MessageTooLarge", "ContentRejected",
                                                          "AttachmentRejected", "CustomTimeoutExceeded")],
    came_back("Transient", "General", "deferred"), came_back("Undetermined", "Undetermined", "deferred"),
    came_back("WhatTheyMayAdd", "General", "deferred"),
    *[complaint(feedback, "complained") for feedback in ("abuse", "fraud", "other", "virus", None)],
    complaint("not-spam", "other"), complaint("auth-failure", "other"),
    ses("Reject", "Reject", "rejected", reason="Bad content"),
    Sample("Rendering Failure", {"eventType": "Rendering Failure", "mail": ses("", "Send", "").body["mail"],
                                 "failure": {"errorMessage": "no attribute", "templateName": "t"}}, "rejected"),
    ses("Open", "Open", "other", ipAddress="192.0.2.1", userAgent="Mozilla/5.0"),
    Sample("a test of the topic", {"notificationType": "AmazonSnsSubscriptionSucceeded", "message": "You have subscribed"}, "other"),
]  # fmt: skip

GENERIC = [
    Sample(kind, {"id": f"evt-{kind}", "event": kind, "message_id": MESSAGE, "provider_message_id": "p-1", "recipient": ADA,
                  "occurred_at": "2026-11-20T12:00:00Z", "detail": "250 ok"}, kind if kind != "opened" else "other")
    for kind in ("accepted", "deferred", "delivered", "bounced", "rejected", "complained", "opened")
]  # fmt: skip

PAYLOADS = {
    "mailgun": MAILGUN, "sendgrid": SENDGRID, "postmark": POSTMARK, "resend": RESEND, "amazon_ses": SES, "generic": GENERIC,
}  # fmt: skip
