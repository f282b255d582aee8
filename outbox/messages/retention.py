"""What is counted and written before a day of messages or an idempotency key is deleted."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Count, Exists, OuterRef, QuerySet
from django.db.models.functions import Greatest

from config.database.queries import in_chunks
from config.flows import flows
from config.letters import Letters
from config.partitions import Keep, Partition, PartitionSpec
from config.partitions.spec import day_of
from config.telemetry.logs import log
from outbox.bookkeeping import counters
from outbox.bookkeeping.models import FlowCounter
from outbox.letters.models import LISTED, BurialKey, DeadLetter
from outbox.messages.models import FLOW, IdempotencyKey, OutboxMessage, Resend
from outbox.messages.publish import SCOPE
from outbox.partitioned import MESSAGES

# -- Counts the messages of a day before its partition is dropped, and writes them to a file if asked --------
CHUNK = 2000
PRIVATE = 0o600  # the rows hold addresses


def before_drop(using: str, spec: PartitionSpec, partition: Partition) -> None:
    """Count the rows by state and, where OUTBOX_ARCHIVE names a directory, write them down there first.

    Raises Keep when the file cannot be written. Nothing is unfinished, as the guard of the drop has just checked.
    """
    rows = spec.rows(using, partition)
    states = dict(rows.values_list("state").annotate(number=Count("pk")).order_by())
    if settings.OUTBOX_ARCHIVE not in ("drop", "detach") and states:
        _write(spec, partition, rows)
    counters.record_dropped(using, partition, {(FLOW, state): number for state, number in states.items()})


def kept_since(now: datetime) -> UUID:
    """The smallest id from which on no message was dropped: retention may have been shorter once."""
    kept = MESSAGES.kept_from(now)
    dropped = day_of("date", counters.newest_dropped(FLOW, MESSAGES))
    return cast(UUID, max(kept, MESSAGES.value(dropped + timedelta(days=1))) if dropped else kept)


ATTEMPTS_GONE = "outbox attempts gone"


def note_attempts(using: str, _spec: PartitionSpec, partition: Partition) -> None:
    """Write down up to which day attempts are dropped: their retention may be longer one day."""
    upto = partition.upper.toordinal() if partition.upper else 0
    noted = FlowCounter.objects.using(using).filter(flow=ATTEMPTS_GONE)
    if not noted.update(value=Greatest("value", upto)):
        FlowCounter.objects.using(using).create(flow=ATTEMPTS_GONE, name="upto", value=upto)


def attempts_kept_since() -> date:
    """The first day of whose attempts none was dropped; of some before, only messages that were finished lost theirs."""
    upto = FlowCounter.objects.filter(flow=ATTEMPTS_GONE).values_list("value", flat=True).first()
    return date.fromordinal(upto or 1)


def _write(spec: PartitionSpec, partition: Partition, rows: object) -> None:
    """Write gzipped JSON lines, renamed when complete: after a crash the same file is written again."""
    directory = Path(settings.OUTBOX_ARCHIVE)
    target = directory / f"{spec.resolve()._meta.db_table}.{partition.key}.jsonl.gz"
    part = target.with_suffix(".part")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        written = _write_lines(part, rows)
        os.replace(part, target)
    except OSError as error:
        raise Keep(f"OUTBOX_ARCHIVE={directory}: {error.strerror}") from error
    log.info("partition_archived", file=str(target), rows=written)


def _write_lines(part: Path, rows: object) -> int:
    written = 0
    with part.open("wb") as raw:
        os.fchmod(raw.fileno(), PRIVATE)
        with gzip.open(raw, "wt", encoding="utf-8") as lines:
            for row in _in_chunks(rows):
                lines.write(json.dumps(row, default=str) + "\n")
                written += 1
        raw.flush()
        os.fsync(raw.fileno())  # the rows go for good right after
    return written


def _in_chunks(rows: Any) -> Iterator[dict[str, object]]:
    # By key, because mysqlclient holds a whole result in memory, and a day may be large.
    chunk = list(rows.order_by("pk").values()[:CHUNK])
    while chunk:
        yield from chunk
        chunk = list(rows.filter(pk__gt=chunk[-1]["id"]).order_by("pk").values()[:CHUNK])


# -- Deletes old idempotency keys daily, and counts what was deleted -----------------------------------------
# But for those of what may still be sent, or may come back.
KEYS_SWEPT = "keys_swept"
Keys = QuerySet[IdempotencyKey]


def sweep_keys(now: datetime) -> int:
    """Delete keys older than OUTBOX_IDEMPOTENCY_DAYS, but for those that are needed yet; returns how many.

    Keys of messages are the witnesses of what was published: `verify` needs to know how many are gone.
    """
    oldest = now - timedelta(days=settings.OUTBOX_IDEMPOTENCY_DAYS)
    expired = IdempotencyKey.objects.filter(created_at__lt=oldest).order_by("created_at")
    named = _named_by_letters(expired.filter(scope=SCOPE))
    return sum(_sweep_chunk(keys, named, oldest, now) for keys in in_chunks(expired))


def _sweep_chunk(keys: Keys, named: frozenset[int], oldest: datetime, now: datetime) -> int:
    with transaction.atomic():
        kept = _needed(keys) | named.intersection(keys.values_list("pk", flat=True))
        # As if it were written a day later: the next daily round asks again.
        keys.filter(pk__in=kept).update(created_at=oldest + timedelta(days=1))
        return _delete_counted(keys, now)


def _named_by_letters(keys: Keys) -> frozenset[int]:
    """Those of these keys that unresolved letters name: without them what comes back of a letter would be new."""
    found: set[int] = set()
    for theirs in (letters for flow in flows() for letters in flow.letters()):
        for names in _names_of(theirs):
            found.update(keys.filter(key__any=names).values_list("pk", flat=True))
    return frozenset(found)


def _names_of(theirs: Letters[DeadLetter]) -> Iterator[frozenset[str]]:
    if not theirs.keyed:
        return
    rows = DeadLetter.objects.of_source(theirs.source).unresolved().defer("traceback", "error").order_by("pk")
    page = list(rows[:LISTED])
    while page:
        if names := frozenset(name for letter in page for name in theirs.keys(letter)):
            yield names
        page = list(rows.filter(pk__gt=page[-1].pk)[:LISTED])


def _needed(keys: Keys) -> set[int]:
    """Those of a chunk of keys whose message is not finished, or has a letter of which it may be sent yet.

    And of what a person has sent again: which family it is of, nothing else can prove.
    """
    messages = {pk: message for pk, message in keys.values_list("pk", "message_id") if message}
    waiting = OutboxMessage.objects.among(messages.values()).unfinished()
    to_come = {str(pk) for pk in waiting.values_list("pk", flat=True)}
    to_come |= {str(pk) for pk in Resend.objects.filter(pk__in=set(messages.values())).values_list("pk", flat=True)}
    buried = BurialKey.objects.filter(group=FLOW, topic_id__in=[str(pk) for pk in messages.values()])
    if names := set(buried.values_list("topic_id", flat=True)):  # letters have no index of their messages
        rows = DeadLetter.objects.of_source(FLOW).unresolved().filter(topic_id__in=names)
        to_come.update(rows.values_list("topic_id", flat=True))
    return {pk for pk, message_id in messages.items() if str(message_id) in to_come}


RESENDS_SWEPT = "resends_swept"


def sweep_resends(now: datetime) -> int:
    """Delete what was resent when its message is gone as well, OUTBOX_RETENTION_DAYS later; returns how many."""
    oldest = now - timedelta(days=settings.OUTBOX_RETENTION_DAYS + 1)
    # One that is unfinished is kept longer, and as long nobody may send its first again.
    there = Exists(OutboxMessage.objects.filter(pk=OuterRef("message_id")))
    gone = Resend.objects.filter(~there, created_at__lt=oldest).order_by("created_at")
    return sum(_delete_resends(rows, now) for rows in in_chunks(gone))


def _delete_resends(rows: QuerySet, now: datetime) -> int:
    with transaction.atomic():
        deleted = rows.delete()[0]
        counters.add({(FLOW, "", RESENDS_SWEPT): deleted}, now)
    return deleted


def _delete_counted(keys: QuerySet, now: datetime) -> int:
    with transaction.atomic():
        of_messages = keys.filter(scope=SCOPE).delete()[0]
        of_requests = keys.delete()[0]
        counters.add({(FLOW, "", KEYS_SWEPT): of_messages}, now)
    return of_messages + of_requests
