"""Guards of `outbox`."""

from __future__ import annotations

from tests.proof.guard import of

GUARDS = [
    *of(
        "outbox/messages/publish.py",
        "tests/outbox/scenarios tests/outbox/delivery/test_races.py",
        ("a message that was never tried is not confirmed", "state__in=PROVABLE, attempts__gt=0", "state__in=PROVABLE"),
        (
            "a final state is not confirmed",
            "if provable.filter(pk=message.id).update(",
            "if OutboxMessage.objects.filter(pk=message.id).update(",
        ),
    ),
    *of(
        "outbox/bookkeeping/watermarks.py",
        "tests/outbox/bookkeeping/test_watermarks.py",
        ("a zombie moves no mark back", "old.next_offset > new.next_offset", "old.next_offset < 0"),
        (
            "a zombie moves no mark into a topic that is no more",
            "old.topic_id NOT IN ('', new.topic_id)",
            "old.topic_id = 'x'",
        ),
    ),
    *of(
        "outbox/bookkeeping/leases.py",
        "tests/outbox/bookkeeping/test_leases.py",
        (
            "nobody gives back the lease of another",
            "filter(job=job, token=token).update(token=None",
            "filter(job=job).update(token=None",
        ),
    ),
]
