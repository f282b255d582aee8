"""The inbox of webhook events: each is stored once, unchanged, then applied to its delivery."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import models, transaction

from config.database.dialects.base import Row
from config.database.queries import delete_in_chunks
from config.database.retry import Remedy, remedy_for
from config.database.upsert import Upsert, timestamp_text, uuid_text
from config.environment.mailbox import check
from config.fields import IdentifierField, in_ascii, storable, uuid7
from config.telemetry import metrics
from config.telemetry.logs import RowIds, log, log_committed
from notifications.mail import deliveries, suppression
from notifications.mail.deliveries import Accepted, Delivery, News, Standing
from notifications.webhooks.providers import OTHER, Event
from outbox.messages.publish import confirm
from outbox.models import OutboxMessage

# -- Storing -----------------------------------------------------------------------------------------------
KINDS = [*((status, status) for status in deliveries.STATUSES), (OTHER, "something else")]


class WebhookEventQuerySet(models.QuerySet["WebhookEvent"]):
    """Queries of events."""

    def open(self) -> WebhookEventQuerySet:
        """Stored, and not yet applied: after a crash, or while the message is unknown."""
        return self.filter(applied_at__isnull=True)

    def applied(self) -> WebhookEventQuerySet:
        return self.filter(applied_at__isnull=False)

    def received_before(self, moment: datetime) -> WebhookEventQuerySet:
        return self.filter(received_at__lt=moment)

    def locked(self) -> WebhookEventQuerySet:
        """In order, locked for this transaction; events that another process is applying are skipped."""
        return self.order_by("id").select_for_update(skip_locked=True)


class WebhookEvent(models.Model):
    """One event whose signature was verified. The unique key drops repeats."""

    class Verdict(models.TextChoices):
        NEW = "new", "not applied yet"
        APPLIED = "applied"
        NO_NEWS = "no_news", "said nothing new"
        IGNORED = "ignored", "of no interest"
        PARKED = "parked", "waits for its message"
        UNKNOWN_MESSAGE = "unknown_message", "message never seen"
        OTHER_RECIPIENT = "other_recipient", "about another recipient"

    id = models.UUIDField(primary_key=True, default=uuid7, editable=False)
    provider = IdentifierField(max_length=50)
    dedup_id = IdentifierField(help_text="The provider's id of the event, or a hash of what makes it one.")
    kind = IdentifierField(max_length=15, choices=KINDS)
    body = models.TextField(help_text="Exactly as it came; of a list, this event's part.")
    headers = models.JSONField(default=dict, help_text="What was signed with it; never a password.")
    message_id = models.UUIDField(null=True)
    provider_message_id = IdentifierField(default="", blank=True)
    recipient = models.CharField(max_length=254, default="", blank=True)
    detail = models.CharField(max_length=300, default="", blank=True)
    occurred_at = models.DateTimeField()
    received_at = models.DateTimeField()
    verdict = IdentifierField(max_length=15, choices=Verdict, default=Verdict.NEW)
    applied_at = models.DateTimeField(null=True)
    token = models.BigIntegerField(default=0, editable=False)

    objects = WebhookEventQuerySet.as_manager()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["provider", "dedup_id"], name="webhookevent_once")]
        indexes = [
            models.Index(fields=["applied_at", "id"], name="webhookevent_open"),
            models.Index(fields=["received_at"], name="webhookevent_age"),
            models.Index(fields=["message_id"], name="webhookevent_message"),
            models.Index(fields=["verdict", "-id"], name="webhookevent_verdict"),
        ]

    def __str__(self) -> str:
        return f"{self.provider}: {self.kind}"


STORE = Upsert(
    WebhookEvent,
    columns="id dedup_id kind body message_id provider_message_id recipient detail occurred_at",
    constants="provider headers received_at verdict",
    key="provider dedup_id",
    update={},
    token="token",  # noqa: S106 (a column)
    returning="id",
)


def store(events: Sequence[Event], provider: str, headers: Mapping[str, str], now: datetime) -> list[UUID]:
    """Store the events that are new; returns their ids. Committed before anything is applied."""
    rows = {event.dedup_id: event for event in events}
    written = [_row(rows[key], now) for key in sorted(rows)]
    return _store(
        written, {"provider": provider, "headers": json.dumps(dict(headers)), "received_at": now, "verdict": "new"}
    )


def _store(rows: Sequence[Row], constants: Mapping[str, object]) -> list[UUID]:
    """One that the database refuses is found by halves, and stored in ASCII: a provider repeats all of a request."""
    try:
        with transaction.atomic():
            stored = [UUID(str(row[0])) for row in STORE.run(rows, constants)]
            if stored:
                ids = RowIds(stored, event_id=None)
                log_committed("webhooks_stored", provider=constants["provider"], events=len(stored), ids=ids)
            return stored
    except Exception as error:
        if remedy_for(error) is not Remedy.DATA or (len(rows) == 1 and (plain := in_ascii(rows[0])) == list(rows[0])):
            raise
    if len(rows) == 1:
        return _store([_cut(plain)], constants)
    middle = len(rows) // 2
    return [*_store(rows[:middle], constants), *_store(rows[middle:], constants)]


def _cut(row: Row) -> Row:
    """The columns that have a length; escaped they are longer."""
    name, dedup_id, kind, body, message_id, provider_id, recipient, detail, occurred = row
    return name, dedup_id[:200], kind, body, message_id, provider_id[:200], recipient[:254], detail[:300], occurred


def _row(event: Event, now: datetime) -> Row:
    message_id = uuid_text(event.message_id) if event.message_id else None
    # The status with the latest time holds: a provider's clock that runs ahead must not win for ever.
    occurred = min(event.occurred_at or now, now + timedelta(seconds=60))
    return (
        uuid_text(uuid7()), storable(event.dedup_id), event.kind, event.raw.replace("\x00", "\ufffd"), message_id,
        storable(event.provider_message_id), storable(event.recipient, 254),
        storable(event.detail, 300), timestamp_text(occurred),
    )  # fmt: skip


def sweep_old(now: datetime) -> int:
    """Delete what was applied and is older than WEBHOOK_RETENTION_DAYS; returns how many."""
    before = now - timedelta(days=settings.WEBHOOK_RETENTION_DAYS)
    if swept := delete_in_chunks(WebhookEvent.objects.applied().received_before(before).order_by("received_at")):
        log_committed("webhooks_swept", events=swept)
    return swept


# -- Applying ----------------------------------------------------------------------------------------------
CHUNK = 500
# How long an event waits for its message: settling takes seconds, a repair up to an hour.
PATIENCE = timedelta(hours=1)
Verdict = WebhookEvent.Verdict
Mail = Delivery | Accepted


def apply(ids: Iterable[UUID], now: datetime) -> Counter[str]:
    """Apply these events unless another process does or did; returns how many got which verdict.

    One on which this breaks is found by halves; it stays open, and the others are applied.
    """
    wanted = list(ids)
    try:
        return _apply(wanted, now)
    except Exception as error:
        if remedy_for(error) in (Remedy.RERUN, Remedy.WAIT):
            raise
        if len(wanted) == 1:
            log.exception("webhook_breaks", event_id=str(wanted[0]))
            return Counter()
    middle = len(wanted) // 2
    return apply(wanted[:middle], now) + apply(wanted[middle:], now)


def apply_open(now: datetime) -> Counter[str]:
    """Everything not applied yet, oldest first: what a crash left, and what waits for its message."""
    verdicts: Counter[str] = Counter()
    waiting, last = WebhookEvent.objects.open().order_by("id"), UUID(int=0)
    while ids := list(waiting.filter(id__gt=last).values_list("pk", flat=True)[:CHUNK]):
        verdicts += apply(ids, now)
        last = ids[-1]
    return verdicts


def _apply(ids: Sequence[UUID], now: datetime) -> Counter[str]:
    with transaction.atomic():
        events = list(WebhookEvent.objects.open().filter(pk__in=ids).locked())
        mails = _mails_of(events, now)
        verdicts = _classify(events, mails, now)
        _write(events, verdicts, mails, now)
    for event in events:
        metrics.WEBHOOKS.labels(event.provider, verdicts[event.pk]).inc()
    return Counter(verdicts.values())


def _classify(events: Sequence[WebhookEvent], mails: Mapping[UUID, Mail], now: datetime) -> dict[UUID, str]:
    verdicts: dict[UUID, str] = {}
    reports: dict[UUID, list[WebhookEvent]] = {}
    for event in events:
        mail = mails.get(event.pk)
        if event.kind == OTHER:
            verdicts[event.pk] = Verdict.IGNORED
        elif mail is None:
            old = event.received_at <= now - PATIENCE
            verdicts[event.pk] = Verdict.UNKNOWN_MESSAGE if old else Verdict.PARKED
        elif not same_address(event.recipient, mail.recipient):
            verdicts[event.pk] = Verdict.OTHER_RECIPIENT
        else:
            reports.setdefault(mail.message_id, []).append(event)
    return verdicts | _move(reports, mails, now)


def _messages_of(events: Sequence[WebhookEvent]) -> dict[UUID, UUID]:
    """`{event: message}`, by the id we sent along, else by the provider's own."""
    messages = {event.pk: event.message_id for event in events if event.message_id}
    others: dict[str, list[WebhookEvent]] = {}
    for event in events:
        if not event.message_id and event.provider_message_id:
            others.setdefault(event.provider, []).append(event)
    for provider, theirs in others.items():
        rows = Delivery.objects.known_as(provider, {event.provider_message_id for event in theirs})
        known = dict(rows.values_list("provider_message_id", "message_id"))
        messages |= {e.pk: known[e.provider_message_id] for e in theirs if e.provider_message_id in known}
    return messages


def _mails_of(events: Sequence[WebhookEvent], now: datetime) -> dict[UUID, Mail]:
    """The mail of each event that reports on one, where it has a delivery.

    An event about a message that is still pending proves that it was sent: it is settled here.
    """
    reports = [event for event in events if event.kind != OTHER]
    messages = _messages_of(reports)
    rows = Delivery.objects.of_messages(messages.values()).only("message_id", "order_id", "recipient")
    mails: dict[UUID, Mail] = {row.message_id: row for row in rows}
    first = {messages[event.pk]: event for event in reversed(reports) if event.pk in messages}
    # A message that was never tried cannot have been delivered, whatever an event says.
    tried = OutboxMessage.objects.among(first.keys() - mails.keys()).filter(channel="email", attempts__gt=0)
    proven: dict[str, list[Accepted]] = {}
    for message in tried.only("payload", "event_type", "correlation_id"):
        event = first[message.id]
        mail = mails[message.id] = deliveries.accepted(message, event.provider_message_id)
        proven.setdefault(event.provider, []).append(mail)
    if proven:
        confirm({mail.message_id: mail.provider_id for settled in proven.values() for mail in settled}, now)
    for provider, settled in sorted(proven.items()):
        deliveries.write(settled, provider, now)
    return {pk: mails[message_id] for pk, message_id in messages.items() if message_id in mails}


def same_address(reported: str, recipient: str) -> bool:
    """Whether two addresses are equal but for case; true if the provider reports none."""
    try:
        return not reported or check(reported).casefold() == recipient.casefold()
    except ValueError:
        return False


def _move(reports: Mapping[UUID, Sequence[WebhookEvent]], mails: Mapping[UUID, Mail], now: datetime) -> dict[UUID, str]:
    news = {
        message_id: [News(Standing(event.kind, event.occurred_at), event.detail) for event in events]
        for message_id, events in reports.items()
    }
    effects = deliveries.move(news, now)
    verdicts: dict[UUID, str] = {}
    reasons: dict[str, tuple[str, str]] = {}
    for message_id, events in reports.items():
        address = mails[events[0].pk].recipient
        for event, effect in zip(events, effects[message_id], strict=True):
            verdicts[event.pk] = Verdict.APPLIED if effect.changed else Verdict.NO_NEWS
            # A bounce that is older than a delivery suppresses nobody; a complaint always does, and stays the reason.
            final = event.kind == deliveries.COMPLAINED or (event.kind == deliveries.BOUNCED and all(effect))
            if final and reasons.get(address, ("", ""))[0] != "complaint":
                note = f"{event.provider}: {event.detail}"[:300]
                reasons[address] = (deliveries.SUPPRESSING[event.kind], note)
    suppression.suppress(reasons, now)
    return verdicts


def _write(
    events: Sequence[WebhookEvent], verdicts: Mapping[UUID, str], mails: Mapping[UUID, Mail], now: datetime
) -> None:
    by_verdict: dict[str, list[UUID]] = {}
    for event in events:
        if verdicts[event.pk] != event.verdict:
            by_verdict.setdefault(verdicts[event.pk], []).append(event.pk)
    for verdict, ids in sorted(by_verdict.items()):
        at = None if verdict == Verdict.PARKED else now
        WebhookEvent.objects.open().filter(pk__in=ids).update(verdict=verdict, applied_at=at)
    if judged := [event for event in events if verdicts[event.pk] != event.verdict]:
        known = ((event, mails.get(event.pk)) for event in judged)
        names = ((mail.message_id, mail.order_id) if mail else (event.message_id, "") for event, mail in known)
        about = RowIds(names, len(judged), message_id=0, order_id=1) | RowIds(judged, event_id="pk", kind="kind")
        became = RowIds([verdicts[event.pk] for event in judged], verdict=None)
        log_committed("webhooks_judged", events=len(judged), ids=about | became)
    if unknown := by_verdict.get(Verdict.UNKNOWN_MESSAGE):
        log_committed("webhook_without_message", "warning", events=len(unknown), first=str(unknown[0]))
