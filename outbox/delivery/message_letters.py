"""Letters of messages: the message is pending again, or a new one is made of the letter, and its receipt proves it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

import msgspec
from django.conf import settings
from django.db import transaction
from django.db.models import F
from django.urls import reverse

from config.admin import humanize
from config.fields import uuid7, uuid7_after
from config.flows import order_in
from config.kafka.records import shown_headers
from config.letters import Effect, Judgement, Letters, PayloadForm, Refusal
from config.telemetry.logs import log_committed
from outbox.channels.handlers import handler_of, handlers, ids_of
from outbox.channels.models import ChannelState
from outbox.delivery.candidates import lower_bound
from outbox.letters.models import DeadLetter
from outbox.letters.redelivery import record_of, would_refuse
from outbox.messages.models import LOCKED, NAMED, READABLE, IdempotencyKey, OutboxMessage, tomorrow
from outbox.messages.notify import notify_relays
from outbox.messages.publish import SCOPE, content_hash, expiry_of

State = OutboxMessage.State
MOST_AHEAD = 10_000  # messages that are counted
MAILS = "email"  # the channel whose messages are called mails
IN_VAIN = ("refused", "suppressed")  # reasons of letters of whom a channel may know that another try is in vain
ENDED = (State.DEAD_LETTERED, State.EXPIRED)
AGAIN = "the message is pending again"
ANEW = "a new message was made of the letter: the day of the old one was dropped"
COPIED = "a new message was made of the edited copy"
SENT_MEANWHILE = "it was sent meanwhile: a copy would be a second message"
ON_ITS_WAY = "the message is on its way already"
CANCELLED = "the message was cancelled"


class Known(NamedTuple):
    """A message as its letters need it: the fields are its columns."""

    id: UUID
    state: str
    receipt: str
    aggregate: str
    event_type: str
    correlation_id: str
    traceparent: str


class MessageLetters(Letters[DeadLetter]):
    """The dead letters of messages."""

    readable = READABLE
    named = NAMED
    locked = LOCKED
    shares_queue = True

    def order_in(self, key: str, topic: str) -> str:
        return order_in(key)

    def judge(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Judgement]:
        """What `take_back` would do now; nothing is locked."""
        known, vain = _known(letters), in_vain(letters)
        judged = {letter.pk: _judged(letter, known.get(message_of(letter))) for letter in letters}
        return {pk: _warned(judgement, vain.get(pk, "")) for pk, judgement in judged.items()}

    def take_back(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
        """Make the messages pending again, in the caller's transaction, with all their tries and a new expiry.

        They may be sent after later ones of their aggregate, which did not wait for them. A message that retention took
        is made anew: it has another id, and so another key at the provider.
        """
        known = _known(letters, lock=True)
        effects: dict[UUID, Effect] = {}
        revived: set[UUID] = set()
        lost: list[DeadLetter] = []
        for letter in sorted(letters, key=lambda letter: (-letter.revision, letter.pk)):
            message = known.get(message_of(letter))
            if message is None or (letter.edit and message.state in ENDED):
                lost.append(letter)
            elif message.state in ENDED and message.id not in revived:
                revived.add(message.id)
                effects[letter.pk] = Effect("waiting", AGAIN)
            else:
                effects[letter.pk] = _not_again(message, letter)
        _revive(sorted(revived), now)
        if again := [message for message in known.values() if message.id in revived]:
            log_committed("messages_revived", messages=len(again), ids=ids_of(again))
        effects |= _made_anew(lost, now)
        if any(effect.state == "waiting" for effect in effects.values()):
            lower_bound.forget()
            transaction.on_commit(notify_relays, robust=True)
        return effects

    def effect(self, letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
        return effects_of_messages(letters)

    def requeue_in_words(self, letters: Sequence[DeadLetter]) -> tuple[str, str]:
        promise = "Each message is sent again."
        if channels_of(letters) == {MAILS}:
            what = "The mail is" if len(letters) == 1 else "Each mail is"
            promise = f"{what} sent again, to the same address and with the same text."
        rest = "It has all its tries again. What counts as sent already is not sent twice."
        rest = f"{rest} If it fails again, a new letter says why."
        vain = list(in_vain(letters).values())
        if not vain:
            return promise, rest
        of = "" if len(letters) == 1 else f"{len(vain):,} of {len(letters):,}: "
        return promise, f"{of}{vain[0]} {rest}"

    def awaited(self) -> bool:
        return True

    def backpressure(self, letters: Sequence[DeadLetter], now: datetime) -> str:
        return ChannelState.objects.why_closed(channels_of(letters), now)

    def required_workers(self, letters: Sequence[DeadLetter]) -> Mapping[str, Collection[str]]:
        return {"relay_outbox": channels_of(letters)}

    def queue_depth(self, letters: Sequence[DeadLetter], now: datetime) -> str:
        return queue_depth([message_of(letter) for letter in letters], now)

    def pace(self) -> float:
        return pace()

    def why_not_edited(self, letter: DeadLetter) -> str:
        return ""

    def faults(self, letter: DeadLetter) -> list[str]:
        """Why the payload is no message of its channel: what `publish` asks, too."""
        try:
            content = _content(letter)
            return handler_of(content["channel"]).faults(msgspec.json.decode(content["payload"]))
        except Refusal as refusal:
            return [str(refusal)]
        except (ValueError, RecursionError, msgspec.MsgspecError) as error:
            return [str(error)]

    def form(self, letter: DeadLetter) -> PayloadForm | None:
        """How people edit the message of a letter without its JSON, as its channel says."""
        handler = handlers().get(dict(shown_headers(letter.headers)).get("channel", ""))
        try:
            return handler.form(msgspec.json.decode(bytes(letter.payload or b""))) if handler else None
        except (ValueError, RecursionError, msgspec.MsgspecError):
            return None


def in_vain(letters: Sequence[DeadLetter]) -> dict[UUID, str]:
    """Why another try fails again, as their channels know it.

    Nothing of copies, which may have another address, and of letters whose errors nobody has read: a replay batch reads
    none.
    """
    asked = [
        row for row in letters if row.reason in IN_VAIN and not row.edit and "error" not in row.get_deferred_fields()
    ]
    lost = [row.pk for row in asked if {"payload", "headers"} & row.get_deferred_fields()]
    read = (
        {pk: rest for pk, *rest in DeadLetter.objects.filter(pk__in=lost).values_list("pk", "payload", "headers")}
        if lost
        else {}
    )
    by_channel: dict[str, list[tuple[UUID, str, bytes]]] = {}
    for row in asked:
        payload, headers = read.get(row.pk) or (row.payload, row.headers)
        channel = dict(shown_headers(headers)).get("channel", "")
        by_channel.setdefault(channel, []).append((row.pk, row.error, bytes(payload or b"")))
    known = [(handlers()[channel], failed) for channel, failed in by_channel.items() if channel in handlers()]
    return {
        pk: why
        for handler, failed in known
        for (pk, *_), why in zip(
            failed, handler.in_vain([(error, payload) for _pk, error, payload in failed]), strict=True
        )
        if why
    }


def _warned(judgement: Judgement, why: str) -> Judgement:
    """The same with what speaks against it, for a letter that can be taken back."""
    if not why or not judgement.eligible or judgement.tone == "idle":
        return judgement
    fact, _, unless = why.partition(". ")
    return Judgement(True, f"{fact}.", unless, "warn", in_vain=True)


def effects_of_messages(letters: Sequence[DeadLetter]) -> dict[UUID, Effect]:
    """What became of the messages: `sent` proves it, by the receipt; dead again is failed again."""
    known, later = _known(letters), _later(letters)
    return {letter.pk: _effect(letter, known.get(message_of(letter)), later.get(letter.pk)) for letter in letters}


def pace() -> float:
    """Messages a second that the slowest channel takes; 0 where none has a limit."""
    return min(filter(None, (handler.rate() for handler in handlers().values())), default=0.0)


def channels_of(letters: Sequence[DeadLetter]) -> set[str]:
    """The channels that these letters' messages go through; of a message that retention took the letter says it."""
    ids = {letter.pk: message_of(letter) for letter in letters}
    known = dict(OutboxMessage.objects.among(list(ids.values())).values_list("id", "channel"))
    lost = [pk for pk, message in ids.items() if message not in known]
    headers = DeadLetter.objects.filter(pk__in=lost).values_list("headers", flat=True) if lost else ()
    return {*known.values(), *(dict(shown_headers(pairs)).get("channel", "") for pairs in headers)}


def queue_depth(ids: Sequence[UUID], now: datetime) -> str:
    """`867 mails of the channel`: what is due before the last of these messages that wait; empty where nothing is."""
    rows = OutboxMessage.objects.among(ids).pending()
    waiting: dict[str, list[datetime]] = {}
    for channel, due in rows.values_list("channel", "available_at"):
        waiting.setdefault(channel, []).append(due)
    said = []
    for channel, times in sorted(waiting.items()):
        before = OutboxMessage.objects.due(channel, min(now, max(times)))
        number = before[: MOST_AHEAD + len(times) + 1].values("pk").count() - len(times)
        one, many = ("mail", "mails") if channel == MAILS else ("message", "messages")
        more = f"more than {MOST_AHEAD:,} {many}" if number > MOST_AHEAD else humanize.plural(number, one, many)
        said += [f"{more} of the channel {channel}"] if number > 0 else []
    return ", ".join(said)


def message_of(letter: DeadLetter) -> UUID:
    """The message that carries the letter's effect: its own, or the one that was made of it."""
    if letter.carrier:
        return letter.carrier
    try:
        return UUID(letter.topic_id)
    except ValueError:  # written by somebody else: as if retention had taken its message
        return UUID(int=0)


def _known(letters: Sequence[DeadLetter], *, lock: bool = False) -> dict[UUID, Known]:
    rows = OutboxMessage.objects.among([message_of(letter) for letter in letters]).order_by("id")
    columns = (rows.select_for_update() if lock else rows).values_list(*Known._fields)
    return {row.id: row for row in map(Known._make, columns)}


def _judged(letter: DeadLetter, message: Known | None) -> Judgement:
    if letter.edit and message is not None:
        if message.state not in ENDED:
            return would_refuse(_not_again(message, letter).evidence)
        return Judgement(True, "A new message is made of the copy.", "It has a key of its own.", "ok")
    if message is None:
        try:
            _content(letter)
        except Refusal as refusal:
            return would_refuse(str(refusal))
        return Judgement(True, "A new message is made of it.", "The day of the old one was dropped.", "warn")
    if message.state in ENDED:
        return Judgement(True, "The message is sent again.", "It has all its tries, and a new expiry.", "ok")
    if message.state == State.SENT:
        return Judgement(True, "It was sent meanwhile.", f"Receipt {message.receipt}.", "idle")
    return would_refuse(CANCELLED if message.state == State.CANCELLED else ON_ITS_WAY)


def _not_again(message: Known, letter: DeadLetter) -> Effect:
    if message.state == State.SENT:
        return Effect("refused", SENT_MEANWHILE) if letter.edit else _sent(message)
    return Effect("refused", CANCELLED if message.state == State.CANCELLED else ON_ITS_WAY)


def _sent(message: Known) -> Effect:
    url = reverse("admin:outbox_outboxmessage_change", args=[message.id])
    return Effect("resolved", f"sent, receipt {message.receipt or 'none'}", url)


def _revive(ids: Sequence[UUID], now: datetime) -> None:
    if not ids:
        return
    ended = OutboxMessage.objects.among(ids).filter(state__in=ENDED)
    new = {"attempts": 0, "error_class": "", "error": "", "lease_token": None, "lease_until": None}
    times = {"available_at": now, "expires_at": expiry_of(now), "times_revived": F("times_revived") + 1}
    changed = ended.update(state=State.PENDING, **new, **times)
    if changed != len(ids):
        # Locked rows cannot change under us; if they did, nothing of this transaction may stay.
        raise RuntimeError(f"revived {changed} of {len(ids)} locked messages")


def _made_anew(letters: Sequence[DeadLetter], now: datetime) -> dict[UUID, Effect]:
    effects: dict[UUID, Effect] = {}
    contents: list[tuple[DeadLetter, dict[str, str]]] = []
    for letter in sorted(letters, key=message_of):  # as they were promised: one may be buried behind its successors
        try:
            contents.append((letter, _content(letter)))
        except Refusal as refusal:
            effects[letter.pk] = Effect("refused", str(refusal))
    messages, keys = [], []
    aggregates = {content["aggregate"] for _, content in contents}
    newest = OutboxMessage.objects.newest_of(aggregates, uuid7()) if aggregates else {}
    for letter, content in contents:
        aggregate = content["aggregate"]
        message_id = newest[aggregate] = uuid7_after(_followed(letter, newest.get(aggregate)))
        key = f"letter/{letter.pk}/{message_id.hex}"
        content["payload"] = _renewed(content, key, now)
        times = {"created_at": now, "available_at": now, "expires_at": expiry_of(now)}
        # Its next letter is of the next revision: that is how many times it came back.
        named = {"id": message_id, "times_revived": letter.revision + 1, **_traced(letter)}
        messages.append(OutboxMessage(**content, **times, **named))
        keys.append(_key(key, message_id, content, now))
        effects[letter.pk] = Effect("waiting", COPIED if letter.edit else ANEW, carrier=message_id)
    IdempotencyKey.objects.bulk_create(keys)
    OutboxMessage.objects.bulk_create(messages)
    if messages:
        log_committed("messages_published", messages=len(messages), ids=ids_of(messages))
    return effects


def _followed(letter: DeadLetter, newest: UUID | None) -> UUID | None:
    """What stands before the message that is made anew: the lost one, and the `newest` of its aggregate.

    None that lies in partitions no claim reads yet.
    """
    return max((pk for pk in (message_of(letter), newest) if pk and pk < tomorrow()), default=None)


def _content(letter: DeadLetter) -> dict[str, str]:
    """The message as the letter keeps it; Refusal for one that cannot be sent as it is."""
    headers = dict(shown_headers(letter.headers))
    channel, event_type = headers.get("channel", ""), headers.get("event_type", "")
    if channel not in handlers():
        raise Refusal(f"its message is gone, and there is no channel {channel!r} to make another for")
    record = record_of(letter)
    if record.value is None or len(record.value) > settings.OUTBOX_MAX_BYTES or not event_type:
        raise Refusal("its message is gone, and the letter does not hold all of it")
    aggregate, payload = (record.key or b"").decode(), record.value.decode()
    return {"channel": channel, "event_type": event_type, "aggregate": aggregate, "payload": payload}


def _traced(letter: DeadLetter) -> dict[str, str]:
    headers = dict(shown_headers(letter.headers))
    return {"correlation_id": letter.correlation_id, "traceparent": headers.get("traceparent", "")}


def _renewed(content: Mapping[str, str], key: str, now: datetime) -> str:
    """The payload that a message made of a letter sends; one that cannot be read stays, and its handler refuses it."""
    try:
        payload = msgspec.json.decode(content["payload"])
    except (ValueError, RecursionError):
        return content["payload"]
    again = handler_of(content["channel"]).renewed(payload, key, now.timestamp())
    return content["payload"] if again is payload else msgspec.json.encode(again).decode()


def _key(key: str, message_id: UUID, content: Mapping[str, str], now: datetime) -> IdempotencyKey:
    """Every message has one. It names the message, too: a letter that was discarded and restored may come back twice."""
    named = {"key": key, "payload_hash": content_hash(**content)}
    return IdempotencyKey(scope=SCOPE, message_id=message_id, created_at=now, **named)


def _effect(letter: DeadLetter, message: Known | None, after: DeadLetter | None) -> Effect:
    if after:  # whatever became of the message then: somebody may have requeued the next letter, and it was sent
        return Effect("failed_again", after.error, successor=after.pk)
    if message is None:
        return Effect("waiting", "the message is not kept any more")
    if message.state == State.SENT:
        return _sent(message)
    if message.state == State.CANCELLED:
        return Effect("discarded", CANCELLED)
    return Effect(
        "waiting", "dead again" if message.state in ENDED else f"the message is {State(message.state).label.lower()}"
    )


def _later(letters: Sequence[DeadLetter]) -> dict[UUID, DeadLetter]:
    """The first letter that each one's message has left since it was taken back; found by the aggregates, which have an
    index. An earlier one of a later revision is that of a lever on the message itself."""
    rows = DeadLetter.objects.filter(
        business_key__in={letter.business_key for letter in letters},
        topic_id__in=[str(message_of(letter)) for letter in letters],
    )
    left: dict[str, list[DeadLetter]] = {}
    for row in rows.only("pk", "topic_id", "revision", "error", "created_at").order_by("revision"):
        left.setdefault(row.topic_id, []).append(row)
    later = {letter.pk: _first_since(letter, left.get(str(message_of(letter)), [])) for letter in letters}
    return {pk: row for pk, row in later.items() if row}


def _first_since(letter: DeadLetter, left: Sequence[DeadLetter]) -> DeadLetter | None:
    taken = letter.requeued_at or letter.created_at
    return next((row for row in left if row.revision > letter.revision and row.created_at >= taken), None)
