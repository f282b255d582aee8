"""Conservation of the outbox: what was promised is somewhere, what was sent was tried, batches add up."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from itertools import islice
from uuid import UUID

from django.conf import settings
from django.db.models import Count, DateTimeField, Exists, F, Max, OuterRef, Q, QuerySet, RowRange, Window

from config.database.clock import database_now
from config.database.isolation import consistent_snapshot
from config.database.queries import by_key
from config.fields import smallest_uuid7
from config.flows import Check
from config.kafka import topic_name
from config.letters import Refusal
from config.payload import digest
from outbox.audit_log.flow import swept
from outbox.audit_log.models import OperatorAction
from outbox.bookkeeping import counters
from outbox.bookkeeping.counters import dropped_rows
from outbox.bookkeeping.verify import OFFENDERS, no_partition_is_stopped, positions_fit_the_log
from outbox.letters.edits import bytes_of
from outbox.letters.field_changes import FieldChange
from outbox.letters.models import BurialKey, DeadLetter, PayloadRevision
from outbox.letters.verify import (
    copies_are_as_they_were_sent,
    every_edit_has_its_copy,
    every_letter_has_its_group,
    every_letter_was_counted,
    letters_are_as_they_came,
    letters_are_in_order,
    letters_counted,
    what_failed_again_is_linked,
)
from outbox.messages.models import FLOW, NOT_SENT, RESENT, DeliveryAttempt, IdempotencyKey, OutboxMessage, Resend
from outbox.messages.publish import KEYLESS, SCOPE, content_hash
from outbox.messages.retention import KEYS_SWEPT, RESENDS_SWEPT, attempts_kept_since, kept_since
from outbox.partitioned import MESSAGES
from outbox.replay_batches.models import OF_MESSAGES, OUTCOMES, ReplayBatch, ReplayItem
from outbox.replay_batches.subjects import ACTED
from outbox.topic_replay.models import TopicReplay
from outbox.workers.change_capture import CDC_GROUP

# -- What must hold of replay batches: every pinned letter has one state, and the batch has counted it -------
SWEEPS = timedelta(days=2)  # a sweep that was killed is over when the daily round has come again
ENDED = (ReplayBatch.State.DONE, ReplayBatch.State.CANCELLED)


def batches_are_counted() -> Iterator[Check]:
    """Of batches whose items are still there: items and skipped are the pinned set, and counters a recount."""
    now = database_now()
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    counted = ReplayItem.objects.order_by().values_list("batch_id", "state").annotate(number=Count("id"))
    for batch_id, state, number in counted:
        counts[batch_id][state] = number
    lost, wrong, unfit = [], [], []
    for batch in ReplayBatch.objects.order_by("pk"):
        items = counts.pop(batch.pk, Counter())
        if why := _misfit(batch, items.total(), now):
            unfit.append({"batch": batch.pk, "state": batch.state, "why": why})
        if batch.items_gone_at is not None:
            continue
        if items.total() != batch.pinned:
            lost.append({"batch": batch.pk, "pinned": batch.pinned, "items": items.total()})
        kept = {name: getattr(batch, name) for name in OUTCOMES}
        if any(kept[name] != items[name] for name in OUTCOMES):
            wrong.append({"batch": batch.pk, "counted": kept, "items": dict(items)})
    # Nobody is asked what it pinned: there is no such batch.
    lost += [{"batch": pk, "pinned": 0, "items": counts[pk].total()} for pk in sorted(counts)]
    yield Check("every replay batch has an item for each letter it pinned", rows=lost[:OFFENDERS])
    yield Check("counters of replay batches = a recount of their items", rows=wrong[:OFFENDERS])
    yield Check("the state of every replay batch fits its times", rows=unfit[:OFFENDERS])


def _misfit(batch: ReplayBatch, items: int, now: datetime) -> str:
    """What contradicts the state of a batch; empty for nothing."""
    if (batch.finished_at is not None) is not (batch.state in ENDED):
        return "it has ended and not, by its state and its time"
    if batch.items_gone_at is None:
        return ""
    if batch.finished_at is None or batch.items_gone_at < batch.finished_at:
        return "its letters are called gone before its end"
    if items and batch.finished_at > now - timedelta(days=settings.DEAD_LETTER_RETENTION_DAYS):
        return "its letters are called gone, are there, and are not old enough"
    return "its letters are called gone and are there" if items and batch.items_gone_at < now - SWEEPS else ""


# -- And of their edited copies: each is what the change makes of its letter, and none is gone -----------------
COPIES_AT_ONCE = 25  # a letter has up to four megabytes


def copies_are_what_the_change_makes() -> Check:
    """Of batches whose letters are listed: with the items go the values of the change."""
    rows: list[object] = []
    for batch in ReplayBatch.objects.filter(verb="edit", items_gone_at=None).order_by("pk"):
        change = FieldChange.of(batch.edit) if batch.edit else None
        items = ReplayItem.objects.of(batch).filter(state__in=ACTED)
        for chunk in by_key(items.values_list("pk", "letter"), COPIES_AT_ONCE):
            wrong = _without_their_copy(change, [letter for _, letter in chunk])
            rows += [{"batch": batch.pk, "letter": str(letter)} for letter in wrong]
    return Check("every copy that a batch has taken back is what its change makes of the letter", rows=rows[:OFFENDERS])


def _without_their_copy(change: FieldChange | None, ids: Sequence[UUID]) -> Iterator[UUID]:
    copies = set(PayloadRevision.objects.filter(letter__in=ids).values_list("letter", "digest_after"))
    for pk, payload in DeadLetter.objects.filter(pk__in=ids).order_by("pk").values_list("pk", "payload"):
        if change is None or (pk, _made_of(bytes(payload or b""), change)) not in copies:
            yield pk


def _made_of(payload: bytes, change: FieldChange) -> str:
    """The digest of the copy; empty where the letter, or the change, is not what it was."""
    try:
        return digest(bytes_of(change.apply(payload.decode())))
    except (Refusal, UnicodeDecodeError):
        return ""


# -- Conservation of the outbox ------------------------------------------------------------------------------
# What was promised is somewhere, what was sent was tried, and order was kept.
State = OutboxMessage.State
CHUNK = 500
BURIED = ("topic_id", "revision", "step")
STEPS = {State.DEAD_LETTERED: "deliver", State.EXPIRED: "expire"}  # the letter that a failed message has
SLACK = timedelta(hours=1)


def checks() -> Iterator[Check]:
    """All invariants of the outbox, in one snapshot."""
    with consistent_snapshot():
        # The messages are read first: a day that is being dropped is then waited for. PostgreSQL would
        # otherwise show an older snapshot the counters from before the drop and an empty day.
        states = dict(OutboxMessage.objects.values_list("state").annotate(number=Count("pk")).order_by())
        now = database_now()
        yield _published_is_somewhere(states)
        yield _every_key_has_its_message(now)
        yield from _resent_is_somewhere(now)
        yield _states_fit()
        yield _sent_was_tried(now)
        yield _no_try_is_left_open()
        yield _order_was_kept()
        yield _sent_was_counted(states, now)
        yield _cancelled_was_counted(states)
        yield _nothing_waits_for_ever(now)
        yield from _letters_fit_the_states()
        yield no_partition_is_stopped("change capture", topic_name(CDC_GROUP))
        yield letters_counted([FLOW])
        yield every_letter_has_its_group()
        yield every_letter_was_counted()
        yield from batches_are_counted()
        yield _replays_fit()
        yield what_failed_again_is_linked()
        yield letters_are_in_order()


def payload_checks() -> Iterator[Check]:
    """Each payload against the digest that was stored when it came; no snapshot is needed for that."""
    yield _every_message_is_as_promised()
    yield from letters_are_as_they_came()
    yield copies_are_as_they_were_sent()
    yield every_edit_has_its_copy()
    yield copies_are_what_the_change_makes()


def kafka_checks() -> Iterator[Check]:
    """The listener's positions; where nothing is captured there are none."""
    yield positions_fit_the_log("change capture", topic_name(CDC_GROUP), [topic_name(settings.OUTBOX_CDC_TOPIC)])


def _published_is_somewhere(states: dict[str, int]) -> Check:
    """Every message was written with its idempotency key, or counted: tables that must agree."""
    totals = counters.totals(FLOW)
    keys = IdempotencyKey.objects.filter(scope=SCOPE).count() + totals.get(KEYS_SWEPT, 0) + totals.get(KEYLESS, 0)
    names = " + ".join(state.value for state in State)
    return Check(
        f"outbox: published = {names} + dropped by retention", keys, sum(states.values()) + dropped_rows(FLOW, MESSAGES)
    )


def _every_key_has_its_message(now: datetime) -> Check:
    lost = IdempotencyKey.objects.filter(scope=SCOPE, message_id__gte=kept_since(now)).exclude(
        Exists(OutboxMessage.objects.filter(pk=OuterRef("message_id")))
    )
    return Check("outbox: every idempotency key has its message", rows=_shown(lost.values_list("key", "message_id")))


def _resent_is_somewhere(now: datetime) -> Iterator[Check]:
    """What a person had sent again: counted in its transaction, and a message that says the same."""
    totals = counters.totals(FLOW)
    kept = totals.get("resent", 0) - totals.get(RESENDS_SWEPT, 0)
    yield Check("outbox: messages that were resent = those counted", kept, Resend.objects.count())
    first = kept_since(now)
    there = OutboxMessage.objects.filter(pk=OuterRef("message_id"))
    lost = Resend.objects.filter(message_id__gte=first).exclude(Exists(there))
    strange = Resend.objects.filter(message_id__lte=F("resent_from"))
    rows = [row for offenders in (lost, strange) for row in _shown(offenders.values_list("message_id", "resent_from"))]
    yield Check("outbox: every resent message is there, and newer than the first", rows=rows)
    yield _resent_in_its_family()
    yield _resent_by_batches(first)


def _resent_in_its_family() -> Check:
    """Its key names the first that said it, and is kept as long as the message is."""
    rows: list[object] = []
    keys = IdempotencyKey.objects.filter(scope=SCOPE, key__startswith=RESENT)
    for chunk in by_key(keys.values_list("pk", "message_id", "key"), CHUNK):
        firsts = dict(Resend.objects.filter(pk__in=[pk for _, pk, _ in chunk]).values_list("pk", "resent_from"))
        named = {pk: key.removeprefix(RESENT).partition("/")[0] for _, pk, key in chunk}
        rows += [(pk, first) for pk, first in firsts.items() if str(first) != named[pk]]
    return Check("outbox: every resent message is of the family that its key names", rows=rows[:OFFENDERS])


def _resent_by_batches(first: UUID) -> Check:
    """As long as the items of a batch are listed, each of its copies is one's successor, and none lacks its copy."""
    swept = ReplayBatch.objects.filter(items_gone_at__isnull=False).values("pk")
    made = Resend.objects.exclude(batch=None).exclude(batch__in=swept).filter(message_id__gte=first).order_by()
    copies = Counter(dict(made.values_list("batch").annotate(number=Count("pk"))))
    acted = Q(state__in=("requeued", "verified", "failed_again")) | Q(successor__isnull=False)
    items = ReplayItem.objects.filter(acted, batch__verb__in=OF_MESSAGES).exclude(successor__lt=first)
    rows: list[object] = []
    for some in by_key(items.values_list("pk", "letter", "batch_id", "successor"), CHUNK):
        successors = [successor for *_, successor in some if successor]
        batch_of = dict(Resend.objects.filter(pk__in=successors).values_list("pk", "batch"))
        rows += [(letter, batch) for _, letter, batch, successor in some if batch_of.get(successor) != batch]
        copies.subtract(batch for *_, batch, successor in some if batch_of.get(successor) == batch)
    rows += [{"batch": batch, "in no item": number} for batch, number in copies.items() if number > 0]
    return Check("outbox: every message that a batch sent again is in its items", rows=rows[:OFFENDERS])


def _states_fit() -> Check:
    """A lease exactly while somebody sends; a time of sending exactly when it was sent."""
    held = OutboxMessage.objects.filter(state=State.PROCESSING, lease_until=None)
    loose = OutboxMessage.objects.unfinished().exclude(state=State.PROCESSING).exclude(lease_until=None)
    undated = OutboxMessage.objects.filter(state=State.SENT, sent_at=None)
    dated = OutboxMessage.objects.unfinished().exclude(sent_at=None)
    rows = [row for offenders in (held, loose, undated, dated) for row in _shown(offenders.values_list("pk", "state"))]
    return Check("outbox: leases and times fit the states", rows=rows)


def _sent_was_tried(now: datetime) -> Check:
    """As far back as attempts are kept."""
    untried = OutboxMessage.objects.filter(state=State.SENT, pk__gte=_attempts_kept(now)).exclude(
        Exists(DeliveryAttempt.objects.filter(message_id=OuterRef("pk")))
    )
    return Check("outbox: no sent message without its attempt", rows=_shown(untried.values_list("pk", flat=True)))


def _no_try_is_left_open() -> Check:
    """An attempt is open only while its message is in processing: whoever ends one ends the other.

    One beside a message that was sent is a second call, which nobody has marked.
    """
    there = OutboxMessage.objects.filter(pk=OuterRef("message_id")).exclude(state=State.PROCESSING)
    open_ = DeliveryAttempt.objects.open().filter(Exists(there))
    return Check(
        "outbox: no attempt is open of a message that nobody sends", rows=_shown(open_.values_list("message_id", "pk"))
    )


def _order_was_kept() -> Check:
    """No message of an aggregate was sent before an older one of the same channel.

    Which one is older the database's clock says, never the id, which is made of a host's clock and decides who goes
    first. Those that were uncertain, or came back from a final state, may be late: their successors did not wait.
    """
    regular = OutboxMessage.objects.filter(state=State.SENT, times_uncertain=0, times_revived=0)
    older = Window(
        Max("sent_at"),
        partition_by=[F("channel"), F("aggregate")],
        order_by=[F("created_at").asc(), F("id").asc()],
        frame=RowRange(start=None, end=-1),
        output_field=DateTimeField(),
    )
    late = regular.annotate(older_sent_at=older).filter(older_sent_at__gt=F("sent_at")).order_by()
    found = (message for message in late.defer("payload")[:CHUNK] if _overtook(message, regular))
    rows = [(message.aggregate, message.pk) for message in islice(found, OFFENDERS)]
    return Check("outbox: no aggregate out of order", rows=rows)


def _overtook(message: OutboxMessage, regular: QuerySet[OutboxMessage]) -> bool:
    """Whether an older one was sent later. Times may be read before the aggregate is locked, so that who waited for the lock
    seems older: as long as there are keys, the database's number of the key decides."""
    siblings = regular.filter(channel=message.channel, aggregate=message.aggregate, sent_at__gt=message.sent_at)
    same = siblings.filter(created_at=message.created_at, pk__lt=message.pk)  # of one transaction, so of one host
    before = set(siblings.filter(created_at__lt=message.created_at).values_list("pk", flat=True))
    numbered = IdempotencyKey.objects.filter(scope=SCOPE, message_id__in=[message.pk, *before])
    numbers = dict(numbered.values_list("message_id", "pk"))
    mine = numbers.get(message.pk)
    return same.exists() or any(mine is None or numbers.get(pk, 0) < mine for pk in before)


def _sent_was_counted(states: dict[str, int], now: datetime) -> Check:
    """Who sends, or is told that it was sent, counts it in the same transaction."""
    totals = counters.totals(FLOW)
    counted = totals.get("sent", 0) + totals.get("confirmed", 0)
    there = states.get(State.SENT, 0) + dropped_rows(FLOW, MESSAGES, State.SENT)
    rows = [] if there == counted else _misfits(now, too_many=there > counted)
    return Check("outbox: sent by workers + confirmed = sent + dropped", counted, there, rows)


def _misfits(now: datetime, *, too_many: bool) -> list[object]:
    """Candidates: sent without a try that was accepted (as confirmed ones are), or not sent in spite of one."""
    tried = Exists(DeliveryAttempt.objects.filter(message_id=OuterRef("pk"), outcome="sent"))
    wrong = Q(~tried, state=State.SENT) if too_many else Q(tried) & ~Q(state=State.SENT)
    rows = OutboxMessage.objects.filter(wrong, pk__gte=_attempts_kept(now))
    return _shown(rows.order_by("-pk").values_list("pk", flat=True))


def _cancelled_was_counted(states: dict[str, int]) -> Check:
    """Only people cancel: each cancelled message is counted, and named in the operators' trail."""
    counted = counters.totals(FLOW).get("cancelled", 0)
    there = states.get(State.CANCELLED, 0) + dropped_rows(FLOW, MESSAGES, State.CANCELLED)
    return Check("outbox: cancelled by operators = cancelled + dropped", counted, there, _cancelled_by_nobody())


def _cancelled_by_nobody() -> list[UUID]:
    """As far back as the trail is kept, unless an action was about more messages than it could name."""
    cancelled = OutboxMessage.objects.filter(state__oneof=NOT_SENT, state=State.CANCELLED).order_by("pk")
    if gone_before := swept().before:
        cancelled = cancelled.filter(pk__gte=_first_id(gone_before + SLACK))
    ids = set(cancelled.values_list("pk", flat=True))
    actions = OperatorAction.objects.filter(verb="cancel").values_list("detail", "rows") if ids else ()
    for detail, rows in actions:
        named = detail.get("ids", ())
        if rows > len(named):
            return []
        ids.difference_update(map(UUID, named))
    return sorted(ids)[:OFFENDERS]


def _nothing_waits_for_ever(now: datetime) -> Check:
    """A retry waits at most until its message expires, a decision at most as long as the settings say, a lease a day."""
    latest = now + timedelta(seconds=settings.OUTBOX_RECONCILE_SECONDS) + SLACK
    waiting = OutboxMessage.objects.filter(state__in=["pending", "uncertain"], available_at__gt=latest)
    never = waiting.filter(available_at__gt=F("expires_at"))
    longest = now + max(timedelta(days=1), timedelta(seconds=settings.OUTBOX_LEASE_SECONDS))
    held = OutboxMessage.objects.filter(state__oneof=NOT_SENT, state=State.PROCESSING, lease_until__gt=longest)
    rows = [
        row for offenders in (never, held) for row in _shown(offenders.values_list("pk", "available_at", "lease_until"))
    ]
    return Check("outbox: nothing waits for ever", rows=rows)


def _letters_fit_the_states() -> Iterator[Check]:
    """A message is a dead letter, or expired, exactly together with such a letter; burial keys are kept for ever."""
    failed = OutboxMessage.objects.filter(state__oneof=NOT_SENT, state__in=STEPS)
    wrong = [list(_unlike_its_letter(rows)) for rows in (failed, OutboxMessage.objects.unfinished())]
    yield Check("outbox: every message that failed has its letter", rows=wrong[0][:OFFENDERS])
    yield Check("outbox: no message waits that is a letter", rows=wrong[1][:OFFENDERS])


def _unlike_its_letter(messages: QuerySet[OutboxMessage]) -> Iterator[tuple[UUID, str]]:
    for chunk in by_key(messages.values_list("pk", "state", "times_revived"), CHUNK):
        keys = BurialKey.objects.filter(group=FLOW, topic_id__in=[str(pk) for pk, _, _ in chunk])
        steps = {(topic_id, revision): step for topic_id, revision, step in keys.values_list(*BURIED)}
        yield from ((pk, state) for pk, state, revision in chunk if steps.get((str(pk), revision)) != STEPS.get(state))


def _replays_fit() -> Check:
    """A replay of a topic has an end exactly when it has ended, and one that is done has begun."""
    unfinished = TopicReplay.objects.unfinished()
    wrong = unfinished.filter(finished_at__isnull=False) | unfinished.filter(state="pending", started_at__isnull=False)
    wrong |= TopicReplay.objects.filter(state__in=["done", "failed", "cancelled"], finished_at=None)
    wrong |= TopicReplay.objects.filter(state="done", started_at=None)
    rows = wrong.order_by("pk").values("pk", "state", "started_at", "finished_at")
    return Check("the state of every replay of a topic fits its times", rows=list(rows[:OFFENDERS]))


def _every_message_is_as_promised() -> Check:
    """As far back as keys are kept: a key has the digest of the message it was used for."""
    keys = IdempotencyKey.objects.filter(scope=SCOPE).exclude(message_id=None)
    changed: list[UUID] = []
    for chunk in by_key(keys.values_list("pk", "message_id", "payload_hash"), CHUNK):
        known = {message_id: payload_hash for _, message_id, payload_hash in chunk}
        messages = OutboxMessage.objects.among(known).values_list("pk", "channel", "event_type", "aggregate", "payload")
        changed += [pk for pk, *content in messages if content_hash(*content) != known[pk]]
    return Check("outbox: every message has the payload that was published", rows=changed[:OFFENDERS])


def _attempts_kept(now: datetime) -> UUID:
    """Messages from this id on have all their attempts; one may be made by a clock that is behind the message's."""
    gone = datetime.combine(attempts_kept_since(), time(), UTC)  # retention may have been shorter once
    kept = max(gone, now - timedelta(days=settings.ATTEMPT_RETENTION_DAYS))
    return max(kept_since(now), _first_id(kept + SLACK))


def _first_id(moment: datetime) -> UUID:
    return smallest_uuid7(int(moment.timestamp() * 1000))


def _shown(rows: QuerySet) -> list[object]:
    return list(rows[:OFFENDERS])
