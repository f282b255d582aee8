"""Which letters a command or a replay batch is about: a filter that can be stored, said in words, and asked."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from django.apps import apps
from django.db import models

from config.admin import humanize
from config.fields import smallest_uuid7
from config.flows import flows
from config.letters import Refusal
from outbox.groups.models import FailureGroup
from outbox.letters.models import DeadLetter, DeadLetterQuerySet

MOST_IDS = 10_000
# The state that a verb starts from.
STARTS = {"requeue": "open", "edit": "open", "discard": "open", "resolve": "open", "restore": "discarded"}
VERBS = tuple(STARTS)


@dataclass(frozen=True)
class StoredFilter:
    """Base of the filters that a replay batch keeps as JSON, and a form sends as fields."""

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Self:
        """From the JSON of a batch."""
        return cls(**stored)

    def stored(self) -> dict[str, Any]:
        """As JSON, without what is not asked for."""
        return {name: value for name, value in asdict(self).items() if value not in ("", None, False, (), [])}

    def fields(self) -> Iterator[tuple[str, str]]:
        """(name, value) as a form sends them."""
        for name, value in self.stored().items():
            yield from (
                ((name, str(one)) for one in value) if name == "ids" else [(name, "1" if value is True else str(value))]
            )


@dataclass(frozen=True)
class Filter(StoredFilter):
    """Letters by id, or all that match group, source, status and time of arrival; `all` where nothing narrows them."""

    ids: Sequence[str] = field(default=())
    group: int | None = None
    source: str = ""
    status: str = ""
    since: str = ""  # ISO; an arrival at this very time belongs to it
    before: str = ""  # ISO; one at this very time does not
    all: bool = False
    batch: int | None = None  # what this replay batch has discarded

    @property
    def names_nothing(self) -> bool:
        """Neither letters nor a filter: a slip must not take thousands."""
        named = self.ids or self.group is not None or self.batch is not None
        return not (named or self.source or self.status or self.since or self.before or self.all)

    def check(self) -> None:
        """Raise Refusal for a letter, a group, a source, a status or a time that does not exist."""
        if self.names_nothing:
            raise Refusal("nothing says which letters")
        if len(self.ids) > MOST_IDS:
            raise Refusal(f"{len(self.ids):,} letters by id: at most {MOST_IDS:,}; use a filter")
        self._check_ids()
        if self.group is not None and not FailureGroup.objects.filter(pk=self.group).exists():
            raise Refusal(f"--group {self.group}: no such failure group")
        if self.batch is not None and not _batches().filter(pk=self.batch, verb="discard").exists():
            raise Refusal(f"{self.batch}: no replay batch that has discarded letters")
        sources = sorted(source for flow in flows() for source in flow.sources())
        if self.source and self.source not in sources and not DeadLetter.objects.of_source(self.source).exists():
            raise Refusal(f"--source {self.source}: no such source (known: {', '.join(sources)})")
        if self.status and self.status not in DeadLetter.Status.values:
            known = ", ".join(DeadLetter.Status.values)
            raise Refusal(f"--status {self.status}: no such status (known: {known})")
        start, end = self.ends()
        if start and end and start >= end:
            raise Refusal(f"--since {self.since}: it must be earlier than --before {self.before}")

    def letters(self, verb: str) -> DeadLetterQuerySet:
        """The letters that `verb` is about; those named one by one in every state, so that each gets its verdict."""
        rows = DeadLetter.objects.all()
        status = self.status or ("" if self.ids else STARTS.get(verb, ""))
        if self.ids:
            rows = rows.filter(pk__in=[uuid_of(text) for text in self.ids])
        if status:
            rows = rows.filter(status=status)
        if self.group is not None:
            rows = rows.of_group(self.group)
        if self.batch is not None:
            items = apps.get_model("outbox", "ReplayItem")._default_manager.acted_on(self.batch)
            rows = rows.filter(pk__in=items.values("letter"))
        if self.source:
            rows = rows.of_source(self.source)
        start, end = self.id_range()
        rows = rows.filter(pk__gte=start) if start else rows
        return rows.filter(pk__lt=end) if end else rows

    def words(self) -> str:
        """`12 chosen letters`, `letters of “cause”, that arrived before …`."""
        if self.ids:
            return humanize.plural(len(self.ids), "chosen letter", "chosen letters")
        parts = []
        if self.group is not None:
            parts.append(f"of “{FailureGroup.objects.filter(pk=self.group).first() or self.group}”")
        parts += [f"that replay batch {self.batch} has discarded"] if self.batch is not None else []
        parts += [f"of {self.source}"] if self.source else []
        parts += [f"that are {self.status.replace('_', ' ')}"] if self.status else []
        times = [f"since {self.since}"] if self.since else []
        times += [f"before {self.before}"] if self.before else []
        parts += [f"that arrived {' and '.join(times)}"] if times else []
        return f"letters {', '.join(parts)}" if parts else "all letters"

    def _check_ids(self) -> None:
        wanted = [uuid_of(text) for text in self.ids]
        known = set(DeadLetter.objects.filter(pk__in=wanted).values_list("pk", flat=True))
        for letter_id in wanted:
            if letter_id not in known:
                raise Refusal(f"{letter_id}: no such dead letter")

    def ends(self) -> tuple[datetime | None, datetime | None]:
        """The times of `since` and `before`. Raises Refusal for what is none."""
        return moment_of(self.since), moment_of(self.before)

    def id_range(self) -> tuple[uuid.UUID | None, uuid.UUID | None]:
        """The first id of this time, and the first one behind it: ids rise with the time of arrival, as the list narrows, too."""
        start, end = self.ends()
        return _first_id(start), _first_id(end)


def _first_id(when: datetime | None) -> uuid.UUID | None:
    return smallest_uuid7(max(0, int(when.timestamp() * 1000))) if when else None


def moment_of(text: str) -> datetime | None:
    """Raises Refusal for what is neither empty nor an ISO time; without a zone it is UTC."""
    if not text:
        return None
    try:
        when = datetime.fromisoformat(text)
        return when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise Refusal(f"{text!r} is no ISO time (2026-02-12T10:00:00Z)") from None


def _batches() -> models.Manager[models.Model]:
    """By name: a batch is made of a filter, so its models know this module."""
    return apps.get_model("outbox", "ReplayBatch")._default_manager


def uuid_of(text: str) -> uuid.UUID:
    """Raises Refusal for something that is no letter's id."""
    try:
        return uuid.UUID(text)
    except ValueError:
        raise Refusal(f"{text}: not the id of a dead letter") from None
