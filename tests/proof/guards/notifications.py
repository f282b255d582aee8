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
    ),
    *of(
        "notifications/orders/changes.py",
        CHANGES,
        ("a change that found another order writes no mail", "    if taken != 1:\n        raise Stale\n", ""),
        ("no more is refunded than was paid", "    if not 0 < amount <= left:", "    if not 0 < amount:"),
        (
            "mails rise with the version",
            "after=seen.last_message_id or NONE_BEFORE, now",
            "after=NONE_BEFORE, now",
            f"{CHANGES}::test_the_key_of_a_message_is_the_number_of_its_event",
        ),
    ),
    *of(
        "notifications/mail/deliveries.py",
        "tests/notifications/mail/test_deliveries.py",
        (
            "a delivery moves from the status that was locked",
            'constants="updated_at",\n    fixed="status",',
            'constants="updated_at",',
            "tests/notifications/mail/test_deliveries.py::test_a_delivery_that_changed_although_it_is_locked_is_not_overwritten",
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
            "tests/notifications/mail/test_deliveries.py::test_what_is_said_later_holds_where_time_decides",
        ),
        (
            "what a provider has reported is not taken back",
            'update={"provider": "new.provider", "provider_message_id": "new.provider_message_id"},',
            'update={"provider": "new.provider", "provider_message_id": "new.provider_message_id", "status": "new.status"},',
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
            "tests/notifications/test_email_handler.py::test_a_complaint_outweighs_what_is_known_and_keeps_its_time",
        ),
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
            "silence is ambiguous",
            'return Outcome("ambiguous", f"no answer: {text}")',
            'return Outcome("unreachable", text)',
        ),
        (
            "silence about the recipient is no acceptance",
            "    if status.message_id or status.status & TAKEN:",
            "    if True:",
            "tests/notifications/channels/test_anymail.py::test_silence_about_the_recipient_is_no_acceptance",
        ),
    ),
    *of(
        "notifications/mail/content.py",
        "tests/notifications/mail/test_recipients.py",
        (
            "no header becomes another one",
            "        check_headers(self.headers)\n",
            "",
            "tests/notifications/mail/test_recipients.py::test_a_payload_with_what_another_program_could_read_in_two_ways_is_no_mail",
        ),
    ),
    *of(
        "notifications/webhooks/inbox.py",
        EFFECTS,
        (
            "a message that was never tried was not delivered",
            'filter(channel="email", attempts__gt=0)',
            'filter(channel="email")',
            f"{EFFECTS}::test_a_message_that_was_never_tried_cannot_have_been_delivered",
        ),
        (
            "an event of a mail confirms no other message",
            'filter(channel="email", attempts__gt=0)',
            "filter(attempts__gt=0)",
            f"{EFFECTS}::test_an_event_of_a_mail_confirms_no_message_of_another_channel",
        ),
        (
            "an event is applied once",
            "WebhookEvent.objects.open().filter(pk__in=ids).locked()",
            "WebhookEvent.objects.filter(pk__in=ids).locked()",
            f"{EFFECTS}::test_late_proof_settles_an_uncertain_message_and_cancels_its_retry",
        ),
        (
            "a verdict of another process stands",
            "WebhookEvent.objects.open().filter(pk__in=ids).update(verdict",
            "WebhookEvent.objects.filter(pk__in=ids).update(verdict",
            f"{EFFECTS}::test_late_proof_settles_an_uncertain_message_and_cancels_its_retry",
        ),
        (
            "an event about another recipient does nothing",
            "elif not same_address(event.recipient, mail.recipient):",
            "elif False:",
            f"{EFFECTS}::test_an_event_about_another_recipient_does_nothing",
        ),
        (
            "a bounce that a delivery overtook stops nobody",
            "(event.kind == deliveries.BOUNCED and all(effect))",
            "event.kind == deliveries.BOUNCED",
        ),
        ("an event waits for its message", "old = event.received_at <= now - PATIENCE", "old = True"),
        (
            "an event that breaks spares the others",
            "        if len(wanted) == 1:\n            log",
            "        if True:\n            log",
            f"{EFFECTS}::test_late_proof_settles_an_uncertain_message_and_cancels_its_retry",
        ),
        (
            "an event is stored once",
            'key="provider dedup_id",\n    update={},',
            'key="provider dedup_id",\n    update={"detail": "new.detail"},',
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
        ("a signature is compared", "return any(results)", "return bool(results)"),
        (
            "a signature by Resend has an id",
            "if not name or not matches(expected, given):",
            "if not matches(expected, given):",
        ),
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
            f"{READERS}::test_sendgrids_signature_covers_time_and_body",
        ),
        (
            "a certificate's host is matched whole",
            "CERTIFICATE.fullmatch",
            "CERTIFICATE.match",
            f"{READERS}::test_what_amazon_did_not_sign_fetches_nothing_from_elsewhere",
        ),
        (
            "a confirmation goes to Amazon",
            "and not CONFIRMATION.fullmatch(confirmation):",
            "and False:",
            f"{READERS}::test_what_amazon_did_not_sign_fetches_nothing_from_elsewhere",
        ),
        (
            "a topic is ours",
            "if envelope.topic_arn not in topics or envelope.type not in SIGNED:",
            "if envelope.type not in SIGNED:",
            f"{READERS}::test_what_amazon_did_not_sign_fetches_nothing_from_elsewhere",
        ),
        ("SNS signs what is fresh", "    within(signed_at, now, SNS_PAST)\n", "", READERS),
        (
            "a certificate is valid and no one's own",
            "if not valid or certificate.issuer == certificate.subject or not",
            "if not",
            READERS,
        ),
    ),
    *of(
        "notifications/webhooks/views.py",
        INBOX,
        (
            "without a secret nobody is believed",
            "    if not secrets:",
            "    if False:",
            f"{INBOX}::test_odd_requests_are_refused_before_they_are_read",
        ),
        ("a weak secret is refused", "    if any(is_weak(esp, secret) for secret in secrets):", "    if False:"),
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
    ),
    *of(
        "notifications/api/auth.py",
        TOKENS,
        ("an expired token is refused", "        if caller.is_expired(timezone.now()):", "        if False:"),
        ("a token keeps its rate", "taken = rows.filter(full_at__lte=latest).update", "taken = rows.update"),
        (
            "a customer's token sees no orders",
            "        if caller.customer_id:",
            "        if False:",
            f"{REFUSALS}::test_a_customers_token_sees_no_orders",
        ),
        (
            "a token with channels sees no orders",
            "        if caller.channels:",
            "        if False:",
            "tests/notifications/api/test_messages.py::test_a_token_with_channels_sees_no_orders",
        ),
        (
            "a token without channels promises nothing",
            "        if not caller.channels:",
            "        if False:",
            "tests/notifications/api/test_messages.py::test_a_promise_becomes_a_message_that_waits_to_be_sent",
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
