"""Guards of `notifications`: orders and their mails, what providers report, and who may call."""

from __future__ import annotations

from tests.proof.guard import of

CHANGES = "tests/notifications/orders/test_changes.py"
EFFECTS = "tests/notifications/webhooks/test_effects.py"
INBOX = "tests/notifications/webhooks/test_inbox.py"
READERS = "tests/notifications/webhooks/test_readers.py"
TOKENS = "tests/notifications/api/test_tokens.py"
REFUSALS = "tests/notifications/api/test_refusals.py"

GUARDS = [
    *of(
        "notifications/orders/models.py",
        CHANGES,
        (
            "an order that has changed since it was seen does not change",
            "pk=order.pk, version=order.version, status=order.status, refunded_amount=order.refunded_amount",
            "pk=order.pk",
        ),
        (
            "an order changes from its version alone",
            "pk=order.pk, version=order.version, status",
            "pk=order.pk, status",
        ),
    ),
    *of(
        "notifications/orders/changes.py",
        CHANGES,
        ("a change that found another order writes no mail", "    if taken != 1:\n        raise Stale\n", ""),
        ("no more is refunded than was paid", "    if not 0 < amount <= left:", "    if not 0 < amount:"),
        ("no refund is negative", "    if not 0 < amount <= left:", "    if not amount <= left:"),
        (
            "what is paid is not cancelled",
            'if action == "cancel" and order.status == Status.PENDING:',
            'if action == "cancel":',
        ),
        (
            "what is cancelled is not paid",
            'if action == "pay" and order.status == Status.PENDING:',
            'if action == "pay":',
        ),
        (
            "what is not paid is not refunded",
            'if action == "refund" and order.status in (Status.PAID, Status.PART_REFUNDED):',
            'if action == "refund":',
        ),
        ("mails rise with the version", "after=seen.last_message_id or NONE_BEFORE, now", "after=NONE_BEFORE, now"),
    ),
    *of(
        "notifications/mail/deliveries.py",
        "tests/notifications/mail/test_deliveries.py",
        (
            "a delivery moves from the status that was locked",
            'constants="updated_at",\n    fixed="status",',
            'constants="updated_at",',
        ),
        ("a move of fewer than were locked is taken back", "        if moved != len(rows):", "        if False:"),
        (
            "deliveries are locked in one order",
            '.order_by("message_id").select_for_update()',
            '.order_by("message_id")',
        ),
        (
            "a complaint is never taken back",
            "REJECTED: 2, BOUNCED: 2, COMPLAINED: 3}",
            "REJECTED: 2, BOUNCED: 2, COMPLAINED: 2}",
        ),
        (
            "of what happened twice the first time is kept",
            "min(filter(None, [getattr(row, name), news.standing.at]))",
            "news.standing.at",
        ),
        (
            "what a webhook wrote first is not set back",
            'update={"provider": "new.provider", "provider_message_id": "new.provider_message_id"},',
            'update={"provider": "new.provider", "provider_message_id": "new.provider_message_id", "status": "new.status"},',
            EFFECTS,
        ),
        (
            "a mail whose day was dropped is settled",
            "gone = older - with_partition(DELIVERIES, older)",
            "gone = set[uuid.UUID]()",
            "tests/notifications/webhooks/test_old_mails.py tests/notifications/test_email_handler.py",
        ),
    ),
    *of(
        "notifications/mail/suppression.py",
        "tests/notifications/test_email_handler.py",
        (
            "a complaint stays the reason",
            "CASE WHEN old.reason = 'complaint' THEN old.reason ELSE new.reason END",
            "new.reason",
        ),
        ("an address is suppressed in any case", "digest(address.casefold().encode())", "digest(address.encode())"),
    ),
    *of(
        "notifications/email_handler.py",
        "tests/notifications/test_email_handler.py",
        (
            "a suppressed address gets nothing",
            "            if address in stopped\n        }",
            "            if False\n        }",
        ),
        (
            "keys that end before the message are not relied on",
            "self.channel.keys_last >= settings.OUTBOX_EXPIRES_SECONDS",
            "self.channel.keys_last > 0",
            "tests/notifications/channels/test_anymail.py",
        ),
        (
            "what is no mail is a letter and no crash",
            "        except ValueError as error:\n            return Outcome",
            "        except LookupError as error:\n            return Outcome",
        ),
    ),
    *of(
        "notifications/channels/smtp.py",
        "tests/notifications/channels/test_smtp.py",
        ("a mail whose end was sent is ambiguous", "if self.dot_left and not refused.refuses:", "if False:"),
        (
            "silence behind the end of a mail is ambiguous",
            '"ambiguous" if self.dot_left else "unreachable", error_line',
            '"unreachable", error_line',
        ),
        ("a try begins anew", "        self.dot_left = False\n        try:", "        try:"),
    ),
    *of(
        "notifications/channels/anymail.py",
        "tests/notifications/channels/test_anymail.py",
        (
            "an answer that nobody can read is ambiguous",
            'return Outcome("ambiguous", f"{text}, and nothing that can be read")',
            'return Outcome("permanent", text)',
        ),
        (
            "silence is ambiguous",
            'return Outcome("ambiguous", f"no answer: {text}")',
            'return Outcome("unreachable", text)',
        ),
        ("the SDK does not send again", '"retries": {"total_max_attempts": 1}', '"retries": {}'),
        (
            "silence about the recipient is no acceptance",
            "    if status.message_id or status.status & TAKEN:",
            "    if True:",
        ),
    ),
    *of(
        "notifications/mail/content.py",
        "tests/notifications/mail/test_recipients.py",
        ("a mail has one recipient in its normal form", "    if mailbox.check(address) != address:", "    if False:"),
        ("no header becomes another one", "        check_headers(self.headers)\n", ""),
        ("no subject becomes a header", "        _check_subject(self.subject)\n", ""),
        (
            "a sender is one address",
            "        mailbox.sender(self.sender)\n        _check_subject",
            "        _check_subject",
            "tests/notifications/mail/test_senders.py",
        ),
    ),
    *of(
        "notifications/webhooks/inbox.py",
        EFFECTS,
        (
            "a message that was never tried was not delivered",
            'filter(channel="email", attempts__gt=0)',
            'filter(channel="email")',
        ),
        (
            "an event of a mail confirms no other message",
            'filter(channel="email", attempts__gt=0)',
            "filter(attempts__gt=0)",
        ),
        (
            "an event is applied once",
            "WebhookEvent.objects.open().filter(pk__in=ids).locked()",
            "WebhookEvent.objects.filter(pk__in=ids).locked()",
        ),
        (
            "a verdict of another process stands",
            "WebhookEvent.objects.open().filter(pk__in=ids).update(verdict",
            "WebhookEvent.objects.filter(pk__in=ids).update(verdict",
        ),
        (
            "an event about another recipient does nothing",
            "elif not same_address(event.recipient, mail.recipient):",
            "elif False:",
        ),
        (
            "a clock that runs ahead does not decide",
            "min(event.occurred_at or now, now + timedelta(seconds=60))",
            "event.occurred_at or now",
        ),
        (
            "a bounce that a delivery overtook stops nobody",
            "(event.kind == deliveries.BOUNCED and all(effect))",
            "event.kind == deliveries.BOUNCED",
        ),
        (
            "of a bounce and a complaint the complaint is the reason",
            'if final and reasons.get(address, ("", ""))[0] != "complaint":',
            "if final:",
        ),
        ("an event waits for its message", "old = event.received_at <= now - PATIENCE", "old = True"),
        (
            "what is open is not swept",
            "WebhookEvent.objects.applied().received_before(before)",
            "WebhookEvent.objects.received_before(before)",
        ),
        (
            "an event that breaks spares the others",
            "        if len(wanted) == 1:\n            log",
            "        if True:\n            log",
        ),
        (
            "an event is stored once",
            'key="provider dedup_id",\n    update={},',
            'key="provider dedup_id",\n    update={"detail": "new.detail"},',
            INBOX,
        ),
        (
            "an event that the database refuses spares the others",
            "if remedy_for(error) is not Remedy.DATA or (",
            "if True or (",
            INBOX,
        ),
    ),
    *of(
        "notifications/webhooks/inbox.py",
        "tests/notifications/test_mail_races.py::test_two_that_apply_the_same_events_apply_each_once",
        ("an event is in one process's hand", 'order_by("id").select_for_update(skip_locked=True)', 'order_by("id")'),
        server=True,
    ),
    *of(
        "notifications/webhooks/signatures.py",
        INBOX,
        (
            "what was signed long ago is stale",
            "if not now - past <= when <= now + FUTURE:",
            "if not when <= now + FUTURE:",
        ),
        (
            "what is signed for later is stale",
            "if not now - past <= when <= now + FUTURE:",
            "if not now - past <= when:",
        ),
        ("a signature is compared", "return any(results)", "return bool(results)"),
        (
            "a signature by Resend has an id",
            "if not name or not matches(expected, given):",
            "if not matches(expected, given):",
        ),
        ("a mistyped secret is no empty key", 'return b""', "return text.encode()", INBOX),
        ("a signature by Mailgun has a token", "if not token or not matches", "if not matches"),
        (
            "basic authentication is compared",
            "or not matches([secret.encode() for secret in secrets], [decoded(value)]):",
            "or False:",
        ),
        (
            "SendGrid's signature is fresh",
            "        return fresh(timestamp, now)",
            "        return None",
            f"{INBOX} {READERS}",
        ),
        (
            "a certificate comes from Amazon",
            "if not CERTIFICATE.fullmatch(envelope.signing_cert_u_r_l):",
            "if False:",
            READERS,
        ),
        ("a certificate's host is matched whole", "CERTIFICATE.fullmatch", "CERTIFICATE.match", READERS),
        ("a confirmation goes to Amazon", "and not CONFIRMATION.fullmatch(confirmation):", "and False:", READERS),
        (
            "a topic is ours",
            "if envelope.topic_arn not in topics or envelope.type not in SIGNED:",
            "if envelope.type not in SIGNED:",
            READERS,
        ),
        ("SNS signs what is fresh", "    within(signed_at, now, SNS_PAST)\n", "", READERS),
        (
            "a certificate is valid and no one's own",
            "if not valid or certificate.issuer == certificate.subject or not",
            "if not",
            READERS,
        ),
        (
            "unsigned requests do not make us call out",
            "if self._next_fetch and now < self._next_fetch:",
            "if False:",
            READERS,
        ),
    ),
    *of(
        "notifications/webhooks/views.py",
        INBOX,
        ("without a secret nobody is believed", "    if not secrets:", "    if False:"),
        ("a weak secret is refused", "    if any(is_weak(esp, secret) for secret in secrets):", "    if False:"),
        ("a request has a limit of events", "    if len(events) > MOST_EVENTS:", "    if False:"),
        (
            "a body has a limit",
            'if int(request.META.get("CONTENT_LENGTH") or 0) > settings.EMAIL_WEBHOOK_MAX_BYTES:',
            "if False:",
        ),
    ),
    *of(
        "notifications/api/tokens.py",
        TOKENS,
        ("a token's secret is compared", "return token if right and token else None", "return token"),
        (
            "a revoked token opens nothing",
            "ApiToken.objects.unrevoked().filter(prefix=prefix)",
            "ApiToken.objects.filter(prefix=prefix)",
        ),
        ("a revoked token stays so", "return self.unrevoked().update(revoked_at", "return self.update(revoked_at"),
        (
            "a token cannot begin when it is over",
            "    if expires_at is not None and expires_at <= now:",
            "    if False:",
        ),
        ("a use of another process is noted once", ".unused_since(now - TOUCH_EVERY).update", ".update"),
    ),
    *of(
        "notifications/api/auth.py",
        TOKENS,
        ("an expired token is refused", "        if caller.is_expired(timezone.now()):", "        if False:"),
        ("a token keeps its rate", "taken = rows.filter(full_at__lte=latest).update", "taken = rows.update"),
        (
            "a block is no larger than what was drawn",
            "if block and block.left > 0 and now < block.until:",
            "if block and now < block.until:",
        ),
        (
            "what was drawn is not kept for later",
            "if block and block.left > 0 and now < block.until:",
            "if block and block.left > 0:",
        ),
        ("a customer's token sees no orders", "        if caller.customer_id:", "        if False:", REFUSALS),
        (
            "a token with channels sees no orders",
            "        if caller.channels:",
            "        if False:",
            "tests/notifications/api/test_messages.py",
        ),
        (
            "a token without channels promises nothing",
            "        if not caller.channels:",
            "        if False:",
            "tests/notifications/api/test_messages.py",
        ),
    ),
    *of(
        "outbox/api/promises.py",
        "tests/notifications/api/test_messages.py tests/notifications/api/test_message_keys.py",
        (
            "a token promises for its channels alone",
            "        if channel not in promiser.channels:",
            "        if False:",
        ),
        ("of promises with one fault none is stored", "    if faults:\n        raise", "    if False:\n        raise"),
        ("a key of another message refuses all", "    if taken.letters:", "    if False:"),
        ("a message of another channel is none", ".filter(channel__in=promiser.channels)", ""),
        ("keys belong to the name of the token", 'return f"{PLACE}:{self.name}"', "return PLACE"),
    ),
]
