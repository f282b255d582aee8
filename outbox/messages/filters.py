"""Which messages a replay batch is about: a filter that can be stored, said in words, and asked."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from config.admin import humanize
from config.fields import smallest_uuid7
from config.letters import Refusal
from outbox.channels.handlers import handlers
from outbox.letters.filters import MOST_IDS, StoredFilter, moment_of
from outbox.messages.models import MessageQuerySet, OutboxMessage


@dataclass(frozen=True)
class MessageFilter(StoredFilter):
    """Messages by id, or all that were written from `since` on and fit the rest; their ids hold the time."""

    ids: Sequence[str] = field(default=())
    state: str = ""
    channel: str = ""
    event_type: str = ""
    since: str = ""  # ISO
    before: str = ""

    @property
    def names_nothing(self) -> bool:
        """Neither messages nor a start: a slip must not send years of mails again."""
        return not (self.ids or self.since)

    def check(self) -> None:
        """Raise Refusal for a message, a state, a channel or a time that does not exist."""
        if self.names_nothing:
            raise Refusal("nothing says which messages: give their ids, or a time from which on they were written")
        if len(self.ids) > MOST_IDS:
            raise Refusal(f"{len(self.ids):,} messages by id: at most {MOST_IDS:,}; use a time range")
        wanted = [_uuid_of(text) for text in self.ids]
        known = set(OutboxMessage.objects.among(wanted).values_list("pk", flat=True))
        if missing := next((pk for pk in wanted if pk not in known), None):
            raise Refusal(f"{missing}: no such message")
        if self.state and self.state not in OutboxMessage.State.values:
            raise Refusal(f"{self.state}: no such state (known: {', '.join(OutboxMessage.State.values)})")
        if self.channel and self.channel not in handlers():
            raise Refusal(f"{self.channel}: no such channel (known: {', '.join(sorted(handlers()))})")
        since, before = moment_of(self.since), moment_of(self.before)
        if since and before and since >= before:
            raise Refusal("the end must be after the start")

    def rows(self) -> MessageQuerySet:
        """The messages; those named one by one in every state, so that each gets its verdict."""
        rows: MessageQuerySet = OutboxMessage.objects.all()
        if self.ids:
            rows = rows.among(map(_uuid_of, self.ids))
        ends = {"pk__gte": moment_of(self.since), "pk__lt": moment_of(self.before)}
        rows = rows.filter(
            **{end: smallest_uuid7(max(0, int(at.timestamp() * 1000))) for end, at in ends.items() if at}
        )
        same = {"state": self.state, "channel": self.channel, "event_type": self.event_type}
        return rows.filter(**{name: value for name, value in same.items() if value})

    def words(self) -> str:
        """`12 chosen messages`, `sent messages of email, order.paid, written from … to …`."""
        if self.ids:
            return humanize.plural(len(self.ids), "chosen message", "chosen messages")
        what = ", ".join(filter(None, [self.channel, self.event_type]))
        which = f"{self.state.replace('_', ' ')} messages".strip() + (f" of {what}" if what else "")
        return f"{which} written from {_said(self.since)}" + (f" to {_said(self.before)}" if self.before else " on")


def _said(text: str) -> str:
    when = moment_of(text)
    return f"{when:%Y-%m-%d %H:%M} UTC" if when else ""


def _uuid_of(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise Refusal(f"{text[:50]}: not the id of a message") from None
