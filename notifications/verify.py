"""What must hold of orders: each change has its event, each event its message, and refunds add up."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

from django.conf import settings
from django.db.models import Count, F, Max, Sum, Value
from django.db.models.functions import Coalesce, Concat
from django.utils.module_loading import import_string

from config.database.chunks import by_key
from config.database.clock import database_now
from config.database.transactions import consistent_snapshot
from config.flows import Check
from config.uuid7 import smallest_uuid7
from notifications.handler import EmailHandler
from notifications.mail.deliveries import Delivery
from notifications.orders.models import Order, OrderEvent
from outbox.messages.models import DeliveryAttempt, OutboxMessage

OFFENDERS = 20
CHUNK = 2000


def checks() -> Iterator[Check]:
    """All invariants of orders, in one snapshot."""
    with consistent_snapshot():
        yield _every_change_has_its_event()
        yield _refunds_add_up()
        yield _status_is_the_last_event()
        yield _every_event_has_its_message()
        yield _every_sent_mail_has_its_delivery()


def _every_change_has_its_event() -> Check:
    events = Order.objects.annotate(number=Count("events"), last=Coalesce(Max("events__number"), 0))
    orders = events.exclude(version=F("number"), last=F("number"))
    return Check(
        "orders: as many events as changes",
        Order.objects.aggregate(total=Sum("version"))["total"] or 0,
        OrderEvent.objects.count(),
        [{"order": order.pk, "changes": order.version, "events": order.number} for order in orders[:OFFENDERS]],
    )


def _refunds_add_up() -> Check:
    orders = Order.objects.annotate(refunds=Coalesce(Sum("events__amount"), 0)).exclude(refunded_amount=F("refunds"))
    return Check(
        "orders: refunded = sum of refunds",
        Order.objects.aggregate(total=Sum("refunded_amount"))["total"] or 0,
        OrderEvent.objects.aggregate(total=Sum("amount"))["total"] or 0,
        [
            {"order": order.pk, "refunded": order.refunded_amount, "refunds": order.refunds}
            for order in orders[:OFFENDERS]
        ],
    )


def _status_is_the_last_event() -> Check:
    last = OrderEvent.objects.filter(number=F("order__version"))
    wrong = last.exclude(event_type=Concat(Value("order."), F("order__status"))).values("order_id", "event_type")
    silent = Order.objects.filter(version=0).exclude(status=Order.Status.PENDING).values("id", "status")
    return Check("orders: the status is the last event's", rows=[*wrong[:OFFENDERS], *silent[:OFFENDERS]])


def _every_event_has_its_message() -> Check:
    """Of the events whose messages retention cannot have dropped yet."""
    kept = database_now() - timedelta(days=settings.OUTBOX_RETENTION_DAYS)
    events = OrderEvent.objects.filter(created_at__gte=kept)
    promised = 0
    missing: list[dict[str, object]] = []
    for chunk in by_key(events.values_list("message_id", "order_id", "event_type"), CHUNK):
        promised += len(chunk)
        # A list of ids prunes the partitions; a join would probe all of them for every event.
        messages = OutboxMessage.objects.filter(pk__in=[message_id for message_id, *_ in chunk])
        stored = set(messages.values_list("pk", "aggregate", "event_type"))
        missing += [
            {"order": order_id, "event": event_type, "message": message_id}
            for message_id, order_id, event_type in chunk
            if (message_id, f"order:{order_id}", event_type) not in stored
        ]
    return Check("orders: every event has its message", promised, promised - len(missing), missing[:OFFENDERS])


def _every_sent_mail_has_its_delivery() -> Check:
    """Of the mails that a worker sent, and that both retentions keep; one that a person marked as sent has none."""
    kept = smallest_uuid7(int((database_now() - timedelta(days=settings.OUTBOX_RETENTION_DAYS - 1)).timestamp() * 1000))
    # Not the handlers themselves: who runs `verify` need not have the credentials of the mail server.
    channels = [name for name, path in settings.HANDLERS.items() if issubclass(import_string(path), EmailHandler)]
    sent = OutboxMessage.objects.filter(state="sent", channel__in=channels, pk__gte=kept)
    lost: list[UUID] = []
    for chunk in by_key(sent.values_list("pk"), CHUNK):
        ids = {message_id for (message_id,) in chunk}
        ids -= set(Delivery.objects.of_messages(ids).values_list("pk", flat=True))
        if ids:
            lost += DeliveryAttempt.objects.of(ids).filter(outcome="sent").values_list("message_id", flat=True)
    return Check("orders: every mail that was sent has its delivery", rows=sorted(set(lost))[:OFFENDERS])
