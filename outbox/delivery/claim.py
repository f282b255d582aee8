"""The claim: leases due messages to this worker, in one short transaction."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.conf import settings
from django.db import connection, transaction
from django.db.models import Count, F, QuerySet

from config.database.clock import database_now
from config.database.isolation import commit_lazily
from config.database.queries import compiled
from config.database.upsert import Rewrite, timestamp_text, uuid_text
from config.telemetry import metrics
from config.telemetry.logs import RowIds, log_committed
from outbox.channels import permits
from outbox.channels.handlers import Message, MessageHandler, ids_of
from outbox.channels.models import ChannelState
from outbox.delivery import overdue, refusals
from outbox.delivery.candidates import Obstacle, choose, find_due, in_waves, lock_among, lock_due, lower_bound
from outbox.messages.models import MessageQuerySet, OutboxMessage

PROBE_CANDIDATES = 20  # of which one is claimed: the first may be blocked by another

CLAIM = Rewrite(
    OutboxMessage,
    key="id",
    changes="attempts",
    constants="state lease_token lease_until",
    guard="old.state = 'pending'",
    span="id",
)
PUT_OFF = Rewrite(OutboxMessage, key="id", changes="available_at", span="id")  # they are locked


@dataclass
class Claim:
    """The messages that one transaction has leased to us."""

    channel: str
    path: str
    now: datetime
    token: uuid.UUID = field(default_factory=uuid.uuid4)
    taken_at: float = field(default_factory=time.monotonic)
    messages: list[Message] = field(default_factory=list)
    limited: bool = False  # tokens of a rate were paid
    looked_at: int = 0
    look_again: datetime | None = None
    recorded: Mapping[uuid.UUID, float] = field(default_factory=dict)  # Unix times of their records in Kafka
    attempts: dict[uuid.UUID, str] = field(default_factory=dict)  # the name of each message's attempt, once it is made

    @cached_property
    def ids(self) -> RowIds:
        """Of the messages, for the lines about them."""
        return ids_of(self.messages)

    @property
    def lease_left(self) -> float:
        """Seconds; counted from before the claim, so never more than the lease in the database."""
        return float(self.taken_at + settings.OUTBOX_LEASE_SECONDS - time.monotonic())

    def clock(self) -> datetime:
        """The database's time, without asking it."""
        return self.now + timedelta(seconds=time.monotonic() - self.taken_at)


class Unheard(threading.local):
    """Claims of this thread whose COMMIT has no answer yet.

    If the answer is lost, the rows may be leased under a token that nobody else knows. Nobody has tried them: the same
    thread makes them pending again as soon as it claims the next time, not when their lease is over.
    """

    def __init__(self) -> None:
        self.claims: list[Claim] = []

    def give_back(self) -> None:
        """In the caller's transaction, if there is one: they are forgotten when that is committed."""
        if not self.claims:
            return
        given = list(self.claims)
        for claimed in given:
            with transaction.atomic():
                rows = OutboxMessage.objects.among([message.id for message in claimed.messages])
                # A COMMIT that is still under way holds them: it is waited for.
                list(rows.select_for_update().values_list("id", flat=True))
                ours = rows.held_by(claimed.token).filter(state="processing")
                released = ours.update(state="pending", attempts=F("attempts") - 1, lease_until=None)
                if claimed.limited:
                    ChannelState.objects.give_back(claimed.channel, released)
                if released:
                    about = {"channel": claimed.channel, "messages": released, "lost": 0}
                    log_committed("messages_released", **about, why="the answer to a commit was lost", ids=claimed.ids)
        transaction.on_commit(lambda: self._forget(given))

    def _forget(self, given: Sequence[Claim]) -> None:
        self.claims = [claimed for claimed in self.claims if claimed not in given]


unheard = Unheard()


def claim(
    handler: MessageHandler,
    path: str,
    most: int,
    *,
    older_than: timedelta = timedelta(0),
    ids: Sequence[uuid.UUID] | None = None,
) -> Claim:
    """Lease up to `most` due messages of the handler's channel to this worker; with `ids`, only those.

    Never `UPDATE … WHERE id IN (SELECT … LIMIT … SKIP LOCKED)`: a nested loop runs the inner query again for
    each row and claims everything (measured on PostgreSQL).
    """
    unheard.give_back()
    if ids is None:  # the poller; the other path claims in a transaction of its own, with locks
        refusals.bring_back(handler)
    lowest = lower_bound.read()
    with transaction.atomic():
        if handler.lazy_claim:
            commit_lazily()
        now = database_now()
        claimed = Claim(handler.name, path, now)
        granted = permits.permit(handler.name, handler.rate(), most, now, probing=ids is None)
        claimed.look_again = granted.look_again
        if not granted.most:
            return claimed
        limit = PROBE_CANDIDATES if granted.probe else granted.most
        if ids is None and older_than:
            ids = _older(handler.name, now, now - older_than, lowest, limit)
        if ids is None:
            candidates = lock_due(handler.name, now, lowest, limit)
        else:
            candidates = lock_among(ids, handler.name, now, lowest, limit)
        claimed.looked_at = len(candidates)
        chosen = _choose(claimed, candidates, lowest)
        claimed.messages = in_waves(chosen)[0][:1] if granted.probe and chosen else chosen
        _lease(claimed)
        claimed.limited = granted.tokens is not None
        permits.spend_tokens(handler.name, granted, len(claimed.messages), now)
    unheard.claims.clear()
    metrics.OUTBOX_CLAIMS.labels(path).inc(len(claimed.messages))
    if claimed.messages:
        number = len(claimed.messages)
        log_committed("messages_claimed", channel=claimed.channel, path=path, messages=number, ids=claimed.ids)
    return claimed


def _older(channel: str, now: datetime, created_until: datetime, lowest: uuid.UUID, size: int) -> list[uuid.UUID]:
    """What CDC has left to the poller."""
    rows = OutboxMessage.objects.due(channel, now).older_than(created_until).from_id(lowest)
    return find_due(rows.values_list("id", flat=True)[:size])


def _choose(claim: Claim, candidates: list[Message], lowest: uuid.UUID) -> list[Message]:
    late = [message for message in candidates if message.expires_at <= claim.now]
    if late:
        overdue.expire(claim.channel, late, claim.now)
        candidates = [message for message in candidates if message.expires_at > claim.now]
    if not candidates:
        return []
    chosen, put_off = choose(candidates, _obstacles(claim, candidates, lowest), claim.now)
    if put_off:
        PUT_OFF.run([(message.id.hex, timestamp_text(at)) for message, at in put_off])
        ids = ids_of([message for message, _ in put_off])
        log_committed("messages_put_off", channel=claim.channel, messages=len(put_off), ids=ids)
    return chosen


def _obstacles(claim: Claim, candidates: list[Message], lowest: uuid.UUID) -> list[Obstacle]:
    """Unfinished messages of the candidates' aggregates, if there are any besides the candidates.

    That is rare, so they are counted first. The candidates themselves are counted, too, but for revived ones,
    which block nothing.
    """
    aggregates = frozenset(message.aggregate for message in candidates)
    about: Any = {
        "channel": claim.channel, "aggregates": aggregates, "now": claim.now, "lowest": lowest,
        "newest": max(message.id for message in candidates),
    }  # fmt: skip
    unfinished = sum(number for (number,) in _count_blocking(**about))
    if unfinished == sum(not message.times_revived for message in candidates):
        return []
    return [Obstacle._make(row) for row in _blocking(**about).values_list(*Obstacle._fields)]


def _blocking(
    channel: str, aggregates: frozenset[str], now: datetime, lowest: uuid.UUID, newest: uuid.UUID
) -> MessageQuerySet:
    return OutboxMessage.objects.blocking(channel, aggregates, now).filter(id__gte=lowest, id__lte=newest)


@compiled
def _count_blocking(**about: Any) -> QuerySet[OutboxMessage, tuple[int]]:
    return _blocking(**about).values("channel").annotate(number=Count("*")).values_list("number")


def _lease(claim: Claim) -> None:
    if not claim.messages:
        return
    unheard.claims.append(claim)
    until = claim.now + timedelta(seconds=settings.OUTBOX_LEASE_SECONDS)
    rows = [(message.id.hex, message.attempts) for message in claim.messages]
    taken = CLAIM.run(
        rows,
        {"state": OutboxMessage.State.PROCESSING.value, "lease_token": uuid_text(claim.token), "lease_until": until},
    )
    if taken != len(rows):
        # Locked rows cannot change under us: this would be a bug, and the transaction must not commit it.
        raise RuntimeError(f"claimed {taken} of {len(rows)} locked messages on {connection.vendor}")
