"""Idempotency keys that outlive OUTBOX_IDEMPOTENCY_DAYS: what they stand for may still be sent, or may come back."""

from __future__ import annotations

from collections.abc import Iterator

from django.db.models import QuerySet

from config.flows import flows
from config.redelivery import Letters
from outbox.letters.models import LISTED, BurialKey, DeadLetter
from outbox.messages.models import FLOW, IdempotencyKey, OutboxMessage, Resend

Keys = QuerySet[IdempotencyKey]


def named_by_letters(keys: Keys) -> frozenset[int]:
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


def needed(keys: Keys) -> set[int]:
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
