"""Dead letters of the throttler: their records go to the input once more, through the outbox, for the same customer."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.conf import settings

from config.formats import entry_of, shown
from config.gate import InvalidRecord
from config.kafka import Replayed, topic_name
from config.kafka.records import Header, RecordReceipt, exact_text
from config.letters import Effect, Judgement, Letters, Refusal
from config.telemetry.redaction import masked_error
from outbox.bookkeeping.models import Watermark
from outbox.letters.burial import Letter, bury
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import failed_again, record_of, would_refuse
from outbox.messages.models import OutboxMessage
from outbox.messages.publish import publish, published_together
from outbox.models import ChannelState
from throttler.customers.models import Customer
from throttler.engine.decisions import SOURCE as SOURCE_NAME
from throttler.engine.output_transaction import EXPIRED, INPUT
from throttler.engine.row_writer import GROUP, LOST
from throttler.lanes.models import Lane
from throttler.messages import (
    FORWARDED,
    LOCKED,
    NAMED,
    READABLE,
    REPLAY_OF,
    SECOND,
    SOURCE,
    Notification,
    created_us,
    expires_us,
    gate,
    microseconds,
)

EVENT = "notification.replayed"
ON_ITS_WAY = f"on its way to {INPUT}"
CHANNEL = "kafka"  # in which a notification goes back to its input
CUSTOMER = "customer/"  # before its id in the aggregate of a message
RECREATED = "topic_recreated"  # the reason of a letter whose record went to a topic that is no more
NOTICED = timedelta(minutes=5)  # in which a throttler that reads has learned that its input was created again


class Carrier(NamedTuple):
    """The message of a letter: the fields are its columns."""

    id: UUID
    state: str
    receipt: str
    aggregate: str
    sent_at: datetime | None


ADDED = {"message_id", "event_type", "correlation_id", "traceparent"}  # by the outbox
OURS = {FORWARDED, SOURCE, REPLAY_OF}  # headers that belong to the way a record took, not to its message
WHY_NO_REPLAY = "what was sent once would be sent again; requeue its dead letters instead"


class NotificationLetters(Letters[DeadLetter]):
    """The dead letters of notifications."""

    readable = READABLE
    named = NAMED
    locked = LOCKED

    def __init__(self, source: str) -> None:
        super().__init__(source)
        self.patience = max(Letters.patience, timedelta(seconds=settings.THROTTLER_TTL_SECONDS))

    def opened(self, letter: DeadLetter) -> tuple[bytes, str]:
        return shown(gate().json, entry_of(INPUT), bytes(letter.payload or b""))

    def judge(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Judgement]:
        """What `take_back` would do now."""
        judgements: dict[UUID, Judgement] = {}
        decoded: list[tuple[DeadLetter, Replayed, Notification]] = []
        for letter in letters:
            try:
                record = _record(letter)
                decoded.append((letter, record, gate().decode(record.value)))
            except InvalidRecord as refusal:
                judgements[letter.pk] = Judgement(False, "Fails again.", masked_error(str(refusal)), "warn")
            except Refusal as refusal:
                judgements[letter.pk] = would_refuse(str(refusal))
        customers = Customer.objects.in_bulk([message.customer_id for _, _, message in decoded])
        for letter, record, message in decoded:
            judgements[letter.pk] = _judged(record, message, customers.get(message.customer_id), microseconds(now))
        return judgements

    def take_back(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
        """Promise the letters' records to the input, in the caller's transaction; poison is a letter once more.

        Each becomes one message, however often this is run.
        """
        effects: dict[UUID, Effect] = {}
        failed: list[Letter] = []
        before = _messages(letters)
        with published_together():
            for letter in letters:
                try:
                    record = _record(letter)
                    message = gate().decode(record.value)
                    promised = _promise(letter, record, message, before.get(letter.carrier), now)
                    effects[letter.pk] = Effect("waiting", ON_ITS_WAY, carrier=promised)
                except InvalidRecord as refusal:
                    place = (record, letter.topic_id, letter.revision + 1)
                    failed.append(Letter(SOURCE_NAME, "decode", refusal.reason, str(refusal), *place))
                except Refusal as refusal:
                    effects[letter.pk] = Effect("refused", str(refusal))
        bury(failed, topic_name(GROUP), now)
        return effects | failed_again(failed)

    def effect(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
        """Proven when the throttler has passed the position of the record, and its lane has drained it.

        In the topic it was sent to: of one that was created again since, a letter says that nobody knows.
        """
        messages = _messages(letters)
        places = {letter.pk: place for letter in letters if (place := _place(messages.get(letter.carrier)))}
        marks = _marks({place.partition for place in places.values()})
        buried = _buried(places.values())
        lanes = _lanes(letters, places)
        effects: dict[UUID, Effect] = {}
        failed: list[Letter] = []
        for letter in letters:
            message = messages.get(letter.carrier)
            if message is None or (place := places.get(letter.pk)) is None:
                effects[letter.pk] = _unsent(message)
            elif (after := buried.get((place.partition, place.offset))) and _came_of(letter, after, place):
                effects[letter.pk] = Effect("failed_again", after.error, successor=after.pk)
            elif (mark := marks.get(place.partition)) and _is_gone(message, place, mark):
                failed.append(_gone(letter, place))
            else:
                effects[letter.pk] = _decided(place, mark, lanes.get(letter.pk))
        bury(failed, topic_name(GROUP), now)
        return effects | failed_again(failed)

    def faults(self, letter: DeadLetter) -> list[str]:
        """What the gate of the input says against its record."""
        try:
            gate().decode(record_of(letter).value)
        except (InvalidRecord, Refusal) as refusal:
            return [str(refusal)]
        return []

    def why_not_edited(self, letter: DeadLetter) -> str:
        return "It stands for messages that are lost: there is nothing to edit." if letter.step == LOST else ""

    def awaited(self) -> bool:
        return True

    def backpressure(self, letters: Sequence[DeadLetter], now: datetime) -> str:
        return ChannelState.objects.why_closed([CHANNEL], now)

    def blocked_reason(self, letters: Sequence[DeadLetter], now: datetime) -> str:
        """The channel of those that are not in the input yet, a partition of those that are, a customer of either."""
        messages = list(_messages(letters).values())
        places = [place for message in messages if (place := _place(message))]
        closed = self.backpressure(letters, now) if len(places) < len(messages) else ""
        marks = Watermark.objects.of_group(GROUP).of_topic(INPUT)
        marks = marks.filter(partition__in={place.partition for place in places})
        return closed or marks.why_stopped("run_throttler") or _why_held(messages)

    def required_workers(self, letters: Sequence[DeadLetter]) -> Mapping[str, Collection[str]]:
        return {"relay_outbox": [CHANNEL], "run_throttler": []}


def _judged(record: Replayed, message: Notification, customer: Customer | None, now: int) -> Judgement:
    if reason := _reason_to_expire(record, message, customer, now):
        return Judgement(True, f"It goes to {EXPIRED}.", reason, "warn")
    why = f"It takes its turn among what {message.customer_id} sends."
    return Judgement(True, "It is sent again.", why, "ok")


def _promise(
    letter: DeadLetter, record: Replayed, message: Notification, before: Carrier | None, now: datetime
) -> UUID:
    # A letter that was restored after its message was cancelled gets another one.
    again = f"/{before.id.hex}" if before and before.state == OutboxMessage.State.CANCELLED else ""
    again += f"/edit-{letter.edit}" if letter.edit else ""
    try:
        return publish(
            EVENT,
            f"{CUSTOMER}{message.customer_id}"[:200],
            _payload(record, message),
            idempotency_key=f"throttler/{letter.pk}{again}",
            channel=CHANNEL,
            correlation_id=letter.correlation_id,
            now=now,
        )
    except ValueError as error:
        raise Refusal(f"the outbox does not take it: {error}") from error


def _messages(letters: Sequence[DeadLetter]) -> dict[UUID | None, Carrier]:
    rows = OutboxMessage.objects.among([letter.carrier for letter in letters if letter.carrier])
    return {row.id: row for row in map(Carrier._make, rows.values_list(*Carrier._fields))}


def _place(message: Carrier | None) -> RecordReceipt | None:
    """Where in the input the record of a message lies that was sent."""
    return RecordReceipt.of(message.receipt) if message and message.state == OutboxMessage.State.SENT else None


def _differ(one: str, other: str) -> bool:
    """Whether these are ids of two topics; of old brokers, and of receipts of an older version, nothing is known."""
    return bool(one and other and one != other)


def _is_gone(message: Carrier, place: RecordReceipt, mark: Watermark) -> bool:
    """Whether the throttler reads another topic of this name, and has learned of that one later than of this record."""
    if not (message.sent_at and mark.caught_up_at and _differ(place.topic_id, mark.topic_id)):
        return False
    return mark.caught_up_at > message.sent_at + NOTICED


def _gone(letter: DeadLetter, place: RecordReceipt) -> Letter:
    at = f"{INPUT}/{place.partition}/{place.offset}"
    text = f"{INPUT} was created again before it was known that the throttler has passed {at}"
    again = (record_of(letter), letter.topic_id, letter.revision + 1)
    return Letter(SOURCE_NAME, letter.step, RECREATED, text, *again, business_key=letter.business_key)


def _why_held(messages: Collection[Carrier]) -> str:
    """The first customer of these messages from whom nothing leaves, and what helps; empty where there is none."""
    names = {message.aggregate.removeprefix(CUSTOMER) for message in messages}
    customer = Customer.objects.held().filter(pk__in=names).order_by("pk").first()
    if customer is None:
        return ""
    held, lever = ("on hold", "resume") if customer.held else ("held by its rate 0/s", "set-rate")
    return f"customer {customer} is {held}: `customers {lever}`, or its page, lets go what waits"


def _unsent(message: Carrier | None) -> Effect:
    if message is None:
        return Effect("waiting", "its message is not kept any more")
    if message.state == OutboxMessage.State.CANCELLED:
        return Effect("discarded", "its message was cancelled")
    return Effect("waiting", f"its message is {message.state.replace('_', ' ')}")


def _marks(partitions: set[int]) -> dict[int, Watermark]:
    marks = Watermark.objects.of_group(GROUP).of_topic(INPUT).filter(partition__in=partitions)
    return {mark.partition: mark for mark in marks}


def _buried(places: Collection[RecordReceipt]) -> dict[tuple[int | None, int | None], DeadLetter]:
    """The newest letters of records at these positions."""
    partitions, offsets = {place.partition for place in places}, {place.offset for place in places}
    rows = DeadLetter.objects.filter(topic=topic_name(INPUT), partition__in=partitions, offset__in=offsets)
    letters = rows.only("pk", "topic_id", "partition", "offset", "error", "created_at").order_by("pk")
    return {(row.partition, row.offset): row for row in letters}


def _came_of(letter: DeadLetter, after: DeadLetter, place: RecordReceipt) -> bool:
    """Not what lay there before or after its record did: a topic that was deleted and recreated counts from 0 again."""
    if _differ(place.topic_id, after.topic_id):
        return False
    return after.pk != letter.pk and after.created_at >= (letter.requeued_at or letter.created_at)


def _lanes(letters: Sequence[DeadLetter], places: Mapping[UUID, RecordReceipt]) -> dict[UUID, Lane]:
    """The lane that each of these letters' records is in, where it has a backlog."""
    customers = {}
    for letter in letters:
        if letter.pk in places:
            with suppress(InvalidRecord):
                customers[letter.pk] = gate().decode(record_of(letter).value).customer_id
    rows = Lane.objects.filter(customer_id__in=set(customers.values()), backlog__gt=0)
    lanes = {(row.customer_id, row.partition): row for row in rows}
    waiting = {pk: lanes.get((customer, places[pk].partition)) for pk, customer in customers.items()}
    return {pk: lane for pk, lane in waiting.items() if lane}


def _decided(place: RecordReceipt, mark: Watermark | None, lane: Lane | None) -> Effect:
    at = f"{INPUT}/{place.partition}/{place.offset}"
    if mark is None or _differ(place.topic_id, mark.topic_id) or mark.next_offset <= place.offset:
        return Effect("waiting", f"{at} is not read yet")
    if lane and lane.drained < place.offset <= lane.seen and not _differ(place.topic_id, lane.topic_id):
        return Effect("waiting", f"{at} waits for its customer's rate")
    return Effect("resolved", f"the throttler has passed {at}")


def _record(letter: DeadLetter) -> Replayed:
    if letter.step == LOST:
        raise Refusal("it stands for messages that neither the store nor the log has: nothing can be sent")
    return record_of(letter)


def _payload(record: Replayed, message: Notification) -> dict[str, object]:
    """For the channel `kafka`; the JSON byte for byte, which the gate has found to be UTF-8."""
    headers = [(name, _value(content)) for name, content in _of_sender(record.headers) if name not in OURS]
    place = (REPLAY_OF, f"{record.topic}/{record.partition}/{record.offset}")
    value = (gate().json.opened(record.value) or b"").decode()
    return {"topic": INPUT, "key": message.customer_id, "value": value, "headers": [*headers, place]}


def _of_sender(headers: Sequence[Header]) -> Sequence[Header]:
    """Without those that the outbox has put behind our mark when the record was sent again before."""
    names = [name for name, _content in headers]
    if REPLAY_OF not in names:
        return headers
    mark = len(names) - 1 - names[::-1].index(REPLAY_OF)
    return headers[:mark] if ADDED.issuperset(names[mark + 1 :]) else headers


def _value(content: bytes | None) -> object:
    """As the channel takes it."""
    if content is None:
        return None
    text = exact_text(content)
    return {"base64": b64encode(content).decode()} if text is None else text


def _reason_to_expire(record: Replayed, message: Notification, customer: Customer | None, now: int) -> str:
    """Why the throttler would give it up, or an empty text."""
    created = created_us(message, record.timestamp)
    if customer and customer.purge_before and created < microseconds(customer.purge_before):
        return f"{message.customer_id} was purged after it was created."
    seconds = (customer and customer.ttl_seconds) or settings.THROTTLER_TTL_SECONDS
    end = expires_us(message, created) or created + seconds * SECOND
    return "Its life is over." if end <= now else ""
