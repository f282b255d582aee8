"""Counting: pins what a batch is about in one statement, then asks whether it may act on each, chunk by chunk."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import starmap, takewhile
from typing import NamedTuple

from django.conf import settings
from django.db import connection, connections, transaction
from django.db.models import QuerySet, Value
from django.db.models.functions import Coalesce, Length

from config.database.clock import database_now
from config.telemetry.logs import log
from outbox.replay_batches.items import ItemOutcome, PreviewItem, first_portion, with_reasons, write
from outbox.replay_batches.models import LEASE, ReplayBatch, ReplayItem
from outbox.replay_batches.subjects import Rows, subject_of

COUNTING = ReplayBatch.State.COUNTING
JUDGED = ("eligible", "skipped")  # states of items whose turn has not come
CHUNKS = 20  # of a step: a worker looks around in between
IN_MEMORY = 2  # portions: one is judged, one is read


class JudgedTo(NamedTuple):
    """How far a preview has come."""

    batch_id: int
    verb: str
    letter: uuid.UUID | None  # the last one; None at the beginning

    @classmethod
    def of(cls, batch: ReplayBatch) -> JudgedTo:
        return cls(batch.pk, batch.verb, batch.judged_to)


class Portion(NamedTuple):
    """Items, oldest first, and their letters or messages as far as they are still there."""

    items: Sequence[PreviewItem]
    rows: Rows


def pin(batch_id: int, token: uuid.UUID) -> int:
    """Write an item for each letter or message that the filter finds up to the cut-off, once; returns how many.

    One statement: whatever arrives or is closed meanwhile, the set is the one of that moment.
    """
    with transaction.atomic():
        batch = ReplayBatch.objects.held(batch_id, token, COUNTING)
        if batch is None or batch.pinned_at:
            return 0
        pinned = _insert_items(batch, subject_of(batch.verb).rows(batch).filter(pk__lte=batch.cut_off))
        now = database_now()
        kinds = [
            [source, step, subject_of(batch.verb).awaited(batch.verb, source, step)]
            for source, step in _kinds_of(batch)
        ]
        changes = {"pinned": pinned, "eligible": pinned, "pinned_at": now, "lease_until": now + LEASE}
        batch.change(kinds=kinds, **changes, **_pace_for(batch, kinds))
    log.info("replay_pinned", batch=batch_id, letters=pinned)
    return pinned


def _insert_items(batch: ReplayBatch, rows: QuerySet) -> int:
    written = {
        "batch_id": Value(batch.pk), **subject_of(batch.verb).copied, "state": Value("eligible"), "note": Value(""),
        "canary": Value(False), "size": Coalesce(Length("payload"), 0),
    }  # fmt: skip
    computed = {f"as_{column}": value for column, value in written.items()}
    select, params = rows.annotate(**computed).order_by("pk").values_list(*computed).query.sql_with_params()
    quote = connection.ops.quote_name
    columns = ", ".join(map(quote, written))
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {quote(ReplayItem._meta.db_table)} ({columns}) {select}", params)
        return int(cursor.rowcount)


def _pace_for(batch: ReplayBatch, kinds: Sequence[Sequence[object]]) -> dict[str, object]:
    """The rate of a batch where nobody has chosen one: the channel's own or 50/s where an effect is awaited."""
    slow = [kind for kind in kinds if kind[2]]
    return {} if batch.rate is not None or not slow else {"rate": subject_of(batch.verb).pace(slow)}


def _kinds_of(batch: ReplayBatch) -> QuerySet:
    """(source, step) of its letters; of messages, their channel."""
    return ReplayItem.objects.of(batch).order_by().values_list("source", "step").distinct()


def judge_chunks(batch_id: int, token: uuid.UUID) -> int:
    """Ask about the next chunks of a pinned batch; returns how many letters were judged, 0 at the end."""
    with reading_ahead(portion_behind) as portions:
        return sum(takewhile(bool, (judge(batch_id, token, portions) for _ in range(CHUNKS))))


def judge(batch_id: int, token: uuid.UUID, portions: ReadAhead) -> int:
    """Ask about the next chunk, in a transaction of its own."""
    with transaction.atomic():
        batch = ReplayBatch.objects.held(batch_id, token, COUNTING)
        if batch is None:
            return 0
        items, letters = portions.take(JudgedTo.of(batch))
        now = database_now()
        if not items:
            _finish(batch)
            return 0
        portions.begin(JudgedTo(batch.pk, batch.verb, items[-1].letter))
        subject = subject_of(batch.verb)
        why = dict.fromkeys((item.letter for item in items), subject.gone) | dict.fromkeys(letters, "")
        why |= subject.foresee(batch, letters, now)
        outcomes = [
            ItemOutcome(item, "skipped" if why[item.letter] else "eligible", why[item.letter]) for item in items
        ]
        changed = [
            outcome for outcome in outcomes if outcome.state != outcome.item.state or outcome.note != outcome.item.note
        ]
        write(changed, now)
        counts = Counter(outcome.state for outcome in outcomes) - Counter(item.state for item in items)
        fewer = Counter(item.state for item in items) - Counter(outcome.state for outcome in outcomes)
        counters = {name: getattr(batch, name) + counts[name] - fewer[name] for name in ("eligible", "skipped")}
        reasons = with_reasons(batch.skipped_why, (outcome.note for outcome in outcomes if outcome.state == "skipped"))
        batch.change(**counters, skipped_why=reasons, judged_to=items[-1].letter, lease_until=now + LEASE)
    return len(items)


def portion_behind(so_far: JudgedTo) -> Portion:
    """What is judged next, as much as may be in memory beside another portion; nothing is locked."""
    items = _items(so_far)
    return Portion(items, subject_of(so_far.verb).read(so_far.batch_id, items, JUDGED) if items else {})


def _items(so_far: JudgedTo) -> Sequence[PreviewItem]:
    """One query a state, because the index begins with it."""
    most = 2 * settings.REPLAY_CHUNK  # asking writes little, and locks nothing that traffic waits for
    listed: list[PreviewItem] = []
    for state in JUDGED:
        rows = ReplayItem.objects.filter(batch_id=so_far.batch_id, state=state).oldest_first()
        rows = rows.filter(letter__gt=so_far.letter) if so_far.letter else rows
        listed += starmap(PreviewItem, rows.values_list(*PreviewItem._fields)[:most])
    items = sorted(listed, key=lambda item: item.letter)[:most]
    return first_portion(items, IN_MEMORY)


def _finish(batch: ReplayBatch) -> None:
    """The preview stands; what a terminal asked for waits for nobody."""
    now = database_now()
    ready: dict[str, object] = {"state": ReplayBatch.State.PREVIEWED, "previewed_at": now}
    if batch.automatic:
        ready |= {"state": ReplayBatch.State.HOLDING, "hold_until": now}
    batch.change(**ready)


# What makes a worker judge a pinned batch anew.
AGAIN: dict[str, object] = {"state": COUNTING, "judged_to": None, "skipped_why": {}, "previewed_at": None}


# -- Reading ahead, on a thread and connection of its own, while the caller works ----------------------------
class ReadAhead:
    """Calls `read(so_far)`, on its thread already at `begin`. What `read` raises, `take` raises."""

    def __init__(self, read: Callable[[JudgedTo], Portion], thread: ThreadPoolExecutor | None = None) -> None:
        self._read = read
        self._thread = thread
        self._coming: tuple[JudgedTo, Future[Portion]] | None = None

    def begin(self, so_far: JudgedTo) -> None:
        """This is wanted next."""
        if self._thread:
            self._coming = so_far, self._thread.submit(self._read, so_far)

    def take(self, so_far: JudgedTo) -> Portion:
        """What comes next: what `begin` has asked for, or read now."""
        coming, self._coming = self._coming, None
        if coming is None:
            return self._read(so_far)
        begun, portion = coming[0], coming[1].result()
        return portion if begun == so_far else self._read(so_far)


@contextmanager
def reading_ahead(read: Callable[[JudgedTo], Portion]) -> Iterator[ReadAhead]:
    """An `ReadAhead` that has a thread until the block ends.

    It has none in a transaction of the caller, of which another connection sees nothing, and none on SQLite, which has
    no server that could read meanwhile.
    """
    if connection.in_atomic_block or connection.vendor == "sqlite":
        yield ReadAhead(read)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as thread:
        try:
            yield ReadAhead(read, thread)
        finally:
            thread.submit(connections.close_all)  # of that thread
