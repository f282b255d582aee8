"""Dead letters of the throttler: their records go to the input once more, through the outbox, for the same customer."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings

from config.database.clock import database_now
from config.flows import Forecast, Refusal
from config.gate import InvalidRecord
from config.kafka import Replayed
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import record_of
from outbox.messages.publish import publish
from throttler.customers.models import Customer
from throttler.live.sending import EXPIRED, INPUT
from throttler.live.storing import LOST
from throttler.messages import FORWARDED, REPLAY_OF, SECOND, SOURCE, Notification, created_us, expires_us, gate
from throttler.moments import microseconds

EVENT = "notification.replayed"
OURS = {FORWARDED, SOURCE, REPLAY_OF}  # headers that belong to the way a record took, not to its message
WHY_NO_REPLAY = "what was sent once would be sent again; requeue its dead letters instead"


def requeue(letter: DeadLetter, now: datetime) -> str:
    """Promise the letter's record to the input, in the caller's transaction; poison is not sent.

    A letter that is requeued twice is sent once. Raises Refusal for one that holds no record.
    """
    record = _record(letter)
    try:
        message = gate().decode(record.value)
    except InvalidRecord as refusal:
        return f"failed again: {refusal}"[:200]
    try:
        publish(
            EVENT,
            f"customer/{message.customer_id}"[:200],
            _payload(record, message),
            idempotency_key=f"throttler/{letter.pk}",
            channel="kafka",
            correlation_id=letter.correlation_id,
            now=now,
        )
    except ValueError as error:
        raise Refusal(f"the outbox does not take it: {error}") from error
    return f"on its way to {INPUT}"


def forecast(letter: DeadLetter) -> Forecast:
    """What `requeue` would do now; raises Refusal like it."""
    record = _record(letter)
    try:
        message = gate().decode(record.value)
    except InvalidRecord as refusal:
        return Forecast("warn", "Fails again.", str(refusal))
    if reason := _reason_to_expire(record, message):
        return Forecast("warn", f"It goes to {EXPIRED}.", reason)
    return Forecast("ok", "It is sent again.", f"It takes its turn among what {message.customer_id} sends.")


def _record(letter: DeadLetter) -> Replayed:
    if letter.step == LOST:
        raise Refusal("it stands for messages that neither the store nor the log has: nothing can be sent")
    return record_of(letter)


def _payload(record: Replayed, message: Notification) -> dict[str, object]:
    """For the channel `kafka`; the value byte for byte, which the gate has found to be UTF-8."""
    headers = {name: value.decode(errors="replace") for name, value in record.headers if name not in OURS}
    headers[REPLAY_OF] = f"{record.topic}/{record.partition}/{record.offset}"
    value = (record.value or b"").decode()
    return {"topic": INPUT, "key": message.customer_id, "value": value, "headers": headers}


def _reason_to_expire(record: Replayed, message: Notification) -> str:
    """Why the throttler would give it up, or an empty text."""
    customer = Customer.objects.filter(pk=message.customer_id).first()
    created, now = created_us(message, record.timestamp), microseconds(database_now())
    if customer and customer.purge_before and created < microseconds(customer.purge_before):
        return f"{message.customer_id} was purged after it was created."
    seconds = (customer and customer.ttl_seconds) or settings.THROTTLER_TTL_SECONDS
    end = expires_us(message, created) or created + seconds * SECOND
    return "Its life is over." if end <= now else ""
