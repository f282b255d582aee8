"""Orders as the rest of Spillway sees them: sample shoppers, and what must hold of every order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db.models import Count, F, Max, Sum, Value
from django.db.models.functions import Coalesce, Concat
from django.utils.module_loading import import_string

from config.database.clock import database_now
from config.database.isolation import consistent_snapshot
from config.database.queries import by_key
from config.fields import is_uuid
from config.flows import Check, Flow, Reading, SampleAction
from config.telemetry import metrics
from notifications.email_handler import EmailHandler
from notifications.mail.content import short
from notifications.mail.deliveries import Delivery
from notifications.orders import changes
from notifications.orders.changes import Action, Impossible
from notifications.orders.models import Order, OrderEvent
from notifications.webhooks.inbox import WebhookEvent
from outbox.messages.models import DeliveryAttempt, OutboxMessage
from outbox.messages.retention import kept_since

MOST_COUNTED = 100_000


class Orders(Flow):
    """Orders change, and each change writes a mail into the outbox, which sends it."""

    name = "notifications"

    def gauges(self, now: datetime) -> Iterator[Reading]:
        waiting = WebhookEvent.objects.open()[: MOST_COUNTED + 1].count()
        yield Reading(metrics.WEBHOOKS_OPEN, min(waiting, MOST_COUNTED))

    def verify(self) -> Iterator[Check]:
        return checks()

    def samples(self, seed: int) -> Iterator[SampleAction]:
        rng = random.Random(seed)  # noqa: S311 (sample data)
        while True:
            yield SampleAction(lambda: next_order_event(rng))

    def letters_about(self, key: str) -> Sequence[str]:
        return Order.objects.aggregates_of(key)

    def called(self, key: str) -> str:
        """An order by the number in its mails: the last digits of its id."""
        kind, _, order = key.partition(":")
        return f"order {short(order)}" if kind == "order" and is_uuid(order) else ""

    def events(self) -> Mapping[str, str]:
        return {event_type: f"Mail: {words}" for event_type, words in OrderEvent.Kind.choices}

    def arrived(self) -> int:
        return _created() + _changes()

    def summary(self) -> Sequence[tuple[str, int]]:
        return [("orders created", _created()), ("changes of orders", _changes())]


def _created() -> int:
    return Order.objects.count()


def _changes() -> int:
    return int(Order.objects.aggregate(total=Sum("version"))["total"] or 0)


# -- Sample shoppers, through the same code as the API -------------------------------------------------------
NAMES = ["ada", "alan", "barbara", "edsger", "grace", "ken", "leslie", "margaret", "niklaus", "tony"]
CURRENCIES = ["EUR", "EUR", "EUR", "USD", "GBP", "JPY", "KWD"]
CREATED = "order.created"
RECENT = 40  # orders among which a shopper looks for one of his own
DOMAINS = ["example.com", "example.net", "example.org"]
BAD_DOMAINS = ["nobody.example", "full.example"]  # the demo's channel refuses them (notifications/channels/local.py)
BAD = 0.02


def next_order_event(rng: random.Random) -> str:
    """One thing that happens to one order, committed when this returns. Returns what it was.

    Of ten orders seven are paid and one is cancelled; of four paid ones one is refunded, half of those in parts.
    """
    draw = rng.random()
    action: Action
    if draw < 0.45:
        return _create(rng)
    if draw < 0.88:
        action, statuses = ("pay" if draw < 0.82 else "cancel"), [Order.Status.PENDING]
    else:
        action, statuses = "refund", [Order.Status.PAID, Order.Status.PART_REFUNDED]
    orders = list(Order.objects.filter(status__in=statuses).newest_first()[:RECENT])
    if not orders:
        return _create(rng)
    order = rng.choice(orders)
    left = order.total_amount - order.refunded_amount
    amount = rng.choice([left, max(1, left // 3)]) if action == "refund" else 0
    try:
        after = changes.change(order.pk, action, amount)
    except Impossible:  # another process was faster
        return _create(rng)
    return f"order.{after.status}"


def _create(rng: random.Random) -> str:
    domain = rng.choice(BAD_DOMAINS if rng.random() < BAD else DOMAINS)
    address = f"{rng.choice(NAMES)}.{rng.randint(1, 9999)}@{domain}"
    changes.create(address, rng.randint(100, 50_000), rng.choice(CURRENCIES), database_now())
    return CREATED


# -- What must hold: each change has its event, each event its message, and refunds add up -------------------
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
    events = OrderEvent.objects.filter(message_id__gte=kept_since(database_now()))
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
    kept = kept_since(database_now())
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
