"""What must hold of dead letters: each has its group, its key and its bytes, and groups count them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from django.db.models import Count, Exists, F, OuterRef, Subquery, Sum, Window
from django.db.models.functions import Lag

from config.database.queries import by_key
from config.flows import Check
from config.payload import digest
from outbox.audit_log.models import OperatorAction
from outbox.bookkeeping.verify import OFFENDERS
from outbox.groups.models import FailureGroup
from outbox.letters.edits import LETTER, VERB
from outbox.letters.models import BurialKey, DeadLetter, DeadLetterQuerySet, PayloadRevision

CHUNK = 25  # a letter has up to four megabytes
SUSPECTS = 500
LONG = ("payload", "headers", "traceback", "error")


def every_letter_has_its_group() -> Check:
    """Groups are kept for ever."""
    lost = DeadLetter.objects.exclude(Exists(FailureGroup.objects.filter(pk=OuterRef("group_id")))).order_by("pk")
    rows = [{"letter": str(pk), "group": group} for pk, group in lost.values_list("pk", "group_id")[:OFFENDERS]]
    return Check("every dead letter has its failure group", rows=rows)


def every_letter_was_counted() -> Check:
    """Burial keys and groups are kept for ever, so that this holds after the letters are gone, too."""
    total = FailureGroup.objects.aggregate(total=Sum("total_count"))["total"]
    return Check("burial keys = letters that failure groups have counted", int(total or 0), BurialKey.objects.count())


def letters_are_as_they_came() -> Iterator[Check]:
    """Each has its burial key, and the bytes that the key has the digest of."""
    keyless: list[str] = []
    changed: list[str] = []
    for pk, known, payload in _letters_with_keys():
        if known is None:
            keyless.append(str(pk))
        elif known != digest(_bytes(payload)):
            changed.append(str(pk))
    yield Check("every dead letter has its burial key", rows=keyless[:OFFENDERS])
    yield Check("every dead letter has the bytes that were received", rows=changed[:OFFENDERS])


def copies_are_as_they_were_sent() -> Check:
    """An edited copy has the bytes of its digest."""
    changed: list[str] = []
    for chunk in by_key(PayloadRevision.objects.values_list("pk", "letter", "digest_after", "payload"), CHUNK):
        changed += [str(letter) for _, letter, known, payload in chunk if known != digest(_bytes(payload))]
    return Check("every edited copy has the bytes that were taken back", rows=changed[:OFFENDERS])


def every_edit_has_its_copy() -> Check:
    """A copy has the digest that its operator action names, as far back as letters and operator actions are kept."""
    lost: list[str] = []
    edits = OperatorAction.objects.filter(subject_type=LETTER, verb=VERB)
    for chunk in by_key(edits.values_list("pk", "subject_id", "detail__edit", "after__payload"), CHUNK):
        named = {(letter, number): known for _, letter, number, known in chunk}
        there = DeadLetter.objects.filter(pk__in=[letter for letter, _ in named]).values_list("pk", flat=True)
        letters = set(map(str, there))
        copies = PayloadRevision.objects.filter(letter__in=there).values_list("letter", "number", "digest_after")
        kept = {(str(letter), number): known for letter, number, known in copies}
        lost += [
            letter
            for (letter, number), known in named.items()
            if letter in letters and kept.get((letter, number)) != known
        ]
    return Check("every edit of a letter has the copy that its operator action names", rows=lost[:OFFENDERS])


def _letters_with_keys() -> Iterator[tuple[Any, ...]]:
    """(id, digest of the key, payload), one step after the other: where the database has a collation of its own,
    MariaDB does not compare the steps of the two tables."""
    place = {name: OuterRef(name) for name in ("topic_id", "topic", "partition", "offset", "revision")}
    for step in DeadLetter.objects.order_by().values_list("step", flat=True).distinct():
        keys = BurialKey.objects.filter(group=OuterRef("consumer_group"), step=step, **place).values("payload_hash")
        letters = DeadLetter.objects.filter(step=step).annotate(known=Subquery(keys[:1]))
        for chunk in by_key(letters.values_list("pk", "known", "payload"), CHUNK):
            yield from chunk


def _bytes(payload: bytes | memoryview | None) -> bytes | None:
    return None if payload is None else bytes(payload)


def letters_counted(sources: Sequence[str]) -> Check:
    """The stored counts of each group, which many workers change, are the numbers of its open and requeued letters.

    A group is resolved only when it has none of either.
    """
    letters = DeadLetter.objects.filter(source__in=sources, status__in=["open", "requeued"]).order_by()
    counted: dict[int, dict[str, int]] = {}
    for group, status, number in letters.values_list("group_id", "status").annotate(number=Count("id")):
        counted.setdefault(group, {})[status] = number
    offenders = [
        {"group": group.pk, "title": group.title, "state": group.state, "counted": stored, "letters": there}
        for group in FailureGroup.objects.filter(source__in=sources)
        for stored in [{"open": group.open_count, "requeued": group.requeued_count}]
        for there in [{"open": 0, "requeued": 0, **counted.get(group.pk, {})}]
        if stored != there or (group.state == FailureGroup.State.RESOLVED and any(there.values()))
    ]
    return Check(
        f"failure groups of {', '.join(sources)} count their open and requeued letters", rows=offenders[:OFFENDERS]
    )


def what_failed_again_is_linked() -> Check:
    """A letter that failed again and the letter of the next revision name each other."""
    back = DeadLetter.objects.filter(pk=OuterRef("successor"), predecessor=OuterRef("pk"))
    lost = DeadLetter.objects.filter(status="failed_again").exclude(Exists(back)).order_by("pk")
    return Check(
        "every letter that failed again has its successor",
        rows=[str(pk) for pk in lost.values_list("pk", flat=True)[:OFFENDERS]],
    )


def letters_are_in_order() -> Check:
    """No letter that may come back has a higher id than one of its key that was buried after it: replays go by the ids.

    Which one was buried first the database's clock says, never the id.
    """
    back = DeadLetter.objects.filter(status__in=["open", "requeued"]).exclude(business_key="")
    before = Window(Lag("created_at"), partition_by=[F("source"), F("business_key")], order_by=F("id").asc())
    late = back.annotate(before=before).filter(before__gt=F("created_at")).order_by()
    suspects = DeadLetter.objects.filter(pk__in=list(late.values_list("pk", flat=True)[:SUSPECTS])).defer(*LONG)
    found = (letter for letter in suspects if _is_misplaced(letter, back))
    rows = [(letter.business_key, letter.pk) for letter in islice(found, OFFENDERS)]
    return Check("open and requeued letters of one key have ids in the order of their burial", rows=rows)


def _is_misplaced(letter: DeadLetter, letters: DeadLetterQuerySet) -> bool:
    """Whether one of its key has a lower id and was buried later. Times are read before anything is written, so that of two
    transactions at once the later may seem the earlier: the database's number of the burial key has to say the same."""
    same = letters.filter(source=letter.source, business_key=letter.business_key)
    number = _number_of(letter)
    later = same.filter(pk__lt=letter.pk, created_at__gt=letter.created_at).defer(*LONG)
    return any(_number_of(sibling) > number for sibling in later)


def _number_of(letter: DeadLetter) -> int:
    place = {name: getattr(letter, name) for name in ("topic_id", "topic", "partition", "offset", "step", "revision")}
    return BurialKey.objects.filter(group=letter.consumer_group, **place).values_list("pk", flat=True).first() or 0
