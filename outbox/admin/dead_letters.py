"""Admin page of dead letters with their neighbours, and the levers on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.admin.views.main import SEARCH_VAR
from django.db import models
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import urlencode

from config.admin import humanize
from config.admin.filters import EVERY, TIMES, ByUuid, Segments, TimeRange, WithinTime
from config.admin.html import chip, in_words
from config.admin.levers import Lever, LeverResult, Operator
from config.admin.lists import POSITION, Keyset
from config.admin.pages import LeverState, ReadOnlyAdmin, age_column
from config.database.tables import missing_apps
from config.fields import is_uuid
from config.flows import by_kind, flows, mask_of, source_in_words
from config.kafka.records import shown_headers
from config.telemetry.redaction import DOTS, masked_error
from config.telemetry.tracing import trace_id_in
from outbox.admin.edit_form import Editing, state_of
from outbox.admin.groups.filters import AT_WORK, FlowOfLetter
from outbox.admin.groups.pages import TABS, of_filter
from outbox.admin.letter_history import copies_of, history_of, items_of, message_of, who_was_faster
from outbox.audit_log.reveal import Revealing
from outbox.bookkeeping.progress import BEHIND
from outbox.groups.fingerprint import cause_in_words
from outbox.groups.models import FailureGroup
from outbox.groups.reasons import advice_on
from outbox.letters import levers
from outbox.letters.filters import Filter
from outbox.letters.levers import forecast
from outbox.letters.models import DeadLetter
from outbox.letters.transitions import CODES
from outbox.messages.models import OutboxMessage


# -- The letters of a group that came just before and just after one -----------------------------------------
# Whoever reads through a group goes from page to page.
def neighbours_of(row: DeadLetter) -> dict[str, str]:
    """The pages of the next newer and the next older letter of its group, in any state; empty where there is none."""
    if row.group_id is None:
        return {"newer": "", "older": ""}
    group = DeadLetter.objects.of_group(row.group_id)
    neighbours = {
        "newer": group.filter(pk__gt=row.pk).order_by("pk"),
        "older": group.filter(pk__lt=row.pk).newest_first(),
    }
    # Keys alone come from the index of the group; asked for a column more, MySQL walks all letters between the two.
    return {side: _page_of(rows.values_list("pk", flat=True)[:1]) for side, rows in neighbours.items()}


def _page_of(keys: Iterable[UUID]) -> str:
    return next((reverse("admin:outbox_deadletter_change", args=[key]) for key in keys), "")


# -- Admin page of dead letters, and the levers on them ------------------------------------------------------
def _pull(verb: str, keys: list[UUID], operator: Operator, reason: str, code: str = "") -> LeverResult:
    outcome = levers.pull(verb, keys, operator, reason, code)
    failed = [f"{letter}: {effect.evidence}." for letter, effect in outcome.failed]
    refused = [f"{letter}: {why}." for letter, why in outcome.refused]
    return LeverResult(outcome.acted + len(failed), refused, failed)


def _why_closed(letter: DeadLetter) -> str:
    age, state = humanize.ago(letter.updated_at, timezone.now()), letter.get_status_display().lower()
    # Of what ended after a requeue the note says how that began: only what was seen in the end is true still.
    begun = letter.status != DeadLetter.Status.REQUEUED and letter.requeued_at is not None
    words = letter.evidence or ("" if begun else letter.note)
    note = masked_error(words) if words != state else ""
    return f"Already {state} {age}: {note}." if note else f"Already {state} {age}."


def _why_not_restored(letter: DeadLetter) -> str:
    return f"It is {letter.get_status_display().lower()}: only a discard is undone."


letter_lever = partial(
    Lever, nouns=("letter", "letters"), ready=lambda rows: rows.open(), why_not=_why_closed, faster=who_was_faster
)


def _requeue_in_words(rows: Sequence[DeadLetter]) -> tuple[str, str]:
    """What the flow does with these; nothing more where several flows would."""
    kinds = list(by_kind(rows))
    return kinds[0][0].requeue_in_words(rows) if len(kinds) == 1 else ("", "")


REQUEUE = letter_lever(
    name="requeue",
    verb="Requeue",
    past="Requeued",
    icon="redo",
    right="requeue_deadletter",
    keep="Not now",
    promise="The flow processes each letter again.",
    detail="It is processed at its original position, so it cannot overwrite a later version. "
    "If it fails again, a new letter says why.",
    act=partial(_pull, "requeue"),
    promise_of=_requeue_in_words,
)
RESOLVE = letter_lever(
    name="resolve",
    verb="Resolve",
    past="Resolved",
    icon="tick",
    right="resolve_deadletter",
    keep="Leave open",
    promise="Nothing is sent.",
    detail="Resolved letters were dealt with elsewhere. They leave the open count and stay in search.",
    act=partial(_pull, "resolve"),
)
DISCARD = letter_lever(
    name="discard", verb="Discard", past="Discarded", icon="ban",
    right="discard_deadletter", keep="Leave open",
    promise="What they carry will never take effect.",
    detail="Discarded letters are marked, not deleted. They leave the open count and stay in search. "
    "A refused batch is discarded with its orders.",
    act=partial(_pull, "discard"), harm=True, least=levers.LEASTS["discard"],
    choices=tuple(CODES.items()), choices_label="Why",
)  # fmt: skip
RESTORE = Lever(
    name="restore",
    verb="Restore",
    past="Restored",
    icon="undo",
    right="restore_deadletter",
    keep="Leave discarded",
    promise="The letters are open again.",
    detail="Nothing is sent. A refused batch waits for a decision again, with its orders.",
    act=partial(_pull, "restore"),
    nouns=("letter", "letters"),
    ready=lambda rows: rows.filter(status=DeadLetter.Status.DISCARDED),
    why_not=_why_not_restored,
    faster=who_was_faster,
)
MOST_FOUND = 20
LARGE = ("payload", "traceback", "headers")
REFRESH_SECONDS = 2
WATCHED_SECONDS = 10 * 60  # what has no proof by then waits for more than a moment
HELD = ("eligible", "requeued")  # states of an item on which a live batch still works


class StateOfLetter(Segments):
    title = "state"
    parameter_name = "state"
    field = "status"
    choices_in_words = [*in_words("open requeued failed_again resolved discarded"), ("all", "All")]


@admin.register(DeadLetter)
class DeadLetterAdmin(Editing, Revealing, ReadOnlyAdmin[DeadLetter]):
    place = 20
    tabs = TABS
    levers = (REQUEUE, RESOLVE, DISCARD, RESTORE)
    list_display = ["letter", "state", "cause", "flow", "arrived"]
    keyset = Keyset(ids_first=True)
    list_filter = [StateOfLetter, FlowOfLetter]
    links = ["group__id__exact"]
    happened = ByUuid("arrived", "pk")
    begins = ["business_key", "pk"]
    search_fields = ["pk"]
    search_help_text = (
        "Paste an order id or number, batch id, letter id, correlation id or topic/partition/offset. "
        "Exact match, in every state."
    )
    empty = ("No letters here", "A letter appears when a message failed for good.")
    arrived = age_column("created_at", "Arrived")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        # A list never needs what can be large; a page reads it when it is shown.
        return super().get_queryset(request).defer(*LARGE)

    def changelist_view(self, request: HttpRequest, extra_context: Mapping[str, object] | None = None) -> HttpResponse:
        offered = self._of_list(request)
        return super().changelist_view(request, {"lever_states": offered, **(extra_context or {})})

    def _of_list(self, request: HttpRequest) -> list[LeverState]:
        """The levers on everything that the list shows; none on the hits of a search, and none when nothing is there."""
        asked = {name: request.GET.get(name, "") for name in (*self.links, "source", "state", SEARCH_VAR)}
        given = {name: request.GET.getlist(name) for name in TIMES if name in request.GET}
        within = WithinTime(request, given, self.model, self)
        try:
            frame = within.frame() if within.chosen() != EVERY else TimeRange()
        except ValueError:
            return []  # the list says what is wrong with its time
        group, source = asked["group__id__exact"], asked["source"]
        if asked[SEARCH_VAR].strip() or (group and not (group.isdecimal() and len(group) < 19)):
            return []
        source = "" if source == EVERY else source
        since, before = (end.isoformat() if end else "" for end in (frame.since, frame.until))
        nothing = not (group or source or since or before)
        chosen = Filter(group=int(group) if group else None, source=source, since=since, before=before, all=nothing)
        return of_filter(request, chosen, asked["state"] or DeadLetter.Status.OPEN, self.opts)

    def offered(self, request: HttpRequest, states: list[LeverState], row: DeadLetter) -> list[LeverState]:
        """Restore instead of the others, and only where it can be pulled; to edit a copy comes second."""
        if row.status == DeadLetter.Status.DISCARDED:
            return [state for state in states if state.lever is RESTORE]
        shown = [state for state in states if state.lever is not RESTORE]
        closed = _why_closed(row) if row.status != DeadLetter.Status.OPEN else ""
        return [*shown[:1], state_of(request, row, closed), *shown[1:]]

    def narrowed_to(self, lookup: str, value: object) -> str:
        group = FailureGroup.objects.filter(pk=str(value)).first() if lookup == "group__id__exact" else None
        return f"“{group}”" if group else str(value)

    def get_list_display(self, request: HttpRequest) -> Any:
        """The letters of one group have one cause, which stands above them."""
        of_group = bool(request.GET.get("group__id__exact"))
        return [name for name in self.list_display if name != "cause" or not of_group]

    @admin.display(description="Letter")
    def letter(self, row: DeadLetter) -> str:
        return row.about

    @admin.display(description="State")
    def state(self, row: DeadLetter) -> str:
        return chip(row.status)

    @admin.display(description="Flow")
    def flow(self, row: DeadLetter) -> str:
        return source_in_words(row.source)

    @admin.display(description="Cause")
    def cause(self, row: DeadLetter) -> str:
        line = '{}<span class="sw-second"><code>{}</code>, step “{}”</span>'
        return format_html(
            line, humanize.quoted(masked_error(row.error)[:200]), row.error_class or row.reason, row.step
        )

    def find(self, key: str) -> Iterable[DeadLetter]:
        rows = DeadLetter.objects.newest_first().defer(*LARGE)
        place = POSITION.fullmatch(key)
        if place:
            return list(rows.filter(**place.groupdict())[:MOST_FOUND])
        keys = {key, *(about for flow in flows() for about in flow.letters_about(key))}
        letters = list(rows.filter(business_key__in=sorted(keys))[:MOST_FOUND])
        letters = letters or list(rows.filter(correlation_id=key)[:MOST_FOUND])
        if not letters and (trace_id := trace_id_in(key)):
            letters = list(rows.filter(trace_id=trace_id)[:MOST_FOUND])
        return letters or (list(rows.filter(pk=key)) if is_uuid(key) else [])

    def shortcut(self, request: HttpRequest, row: DeadLetter) -> tuple[str, str]:
        """An open letter is requeued from the search, without its page."""
        if row.status != DeadLetter.Status.OPEN or not REQUEUE.allowed(request.user, self.opts):
            return "", ""
        return REQUEUE.verb, f"{self.lever_url(REQUEUE)}?{urlencode({'id': str(row.pk)})}"

    def detail(self, request: HttpRequest, row: DeadLetter) -> dict[str, object]:
        group = FailureGroup.objects.filter(pk=row.group_id).first()
        row.refresh_from_db(fields=LARGE)  # in one query, not each by itself
        sight, items = self.sight(request, row), items_of(row)
        return {
            "title": f"{cause_in_words(row.reason)}: {row.about}",
            "group": group,
            "flow": source_in_words(row.source),
            "missing": "" if list(by_kind([row])) else missing_apps(),
            "advice": advice_on(row),
            "error": sight.error(row.error),
            "payload": sight.payload(row.opened[0] or row.payload, *mask_of(row.source)),
            "written_in": row.opened[1],
            "size": len(row.payload) if row.payload is not None else None,
            "sight": sight,
            "key": sight.text(bytes(row.key).decode("utf-8", "backslashreplace")) if row.key else humanize.UNKNOWN,
            "headers": [
                (name if sight.shown else DOTS, sight.text(value)) for name, value in shown_headers(row.headers)
            ],
            "refresh_seconds": _refresh_seconds(row, timezone.now()),
            "forecast": forecast(row) if row.status == DeadLetter.Status.OPEN else None,
            "again": _came_again(row),
            "history": history_of(row, sight, items),
            "copies": copies_of(row, sight),
            "batches": [item.batch for item in items if item.batch.state in AT_WORK and item.state in HELD],
            "about_url": _about(row),
            "message_url": _message(row),
            "carrier_url": _carrier(row),
            **neighbours_of(row),
        }


def _refresh_seconds(row: DeadLetter, now: datetime) -> int:
    """A letter that was just requeued is watched until its effect is proven, or it failed again; 0: no refresh."""
    since = row.requeued_at if row.status == DeadLetter.Status.REQUEUED else None
    return REFRESH_SECONDS if since and (now - since).total_seconds() < WATCHED_SECONDS else 0


def _came_again(row: DeadLetter) -> datetime | None:
    """When the newest other letter with this cause came, if that was after this one and not long ago."""
    # Keys alone come from their index; asked for a column more, MySQL walks back through all newer letters.
    newest = DeadLetter.objects.of_group(row.group_id).newest_first().values_list("pk", flat=True)[:3]
    other = next((pk for pk in newest if pk not in (row.pk, row.successor)), None)
    came = DeadLetter.objects.filter(pk=other).values_list("created_at", flat=True).first() if other else None
    return came if came and max(row.created_at, timezone.now() - 60 * BEHIND) < came else None


def _carrier(row: DeadLetter) -> str:
    """The page of the message that was made of it, or of its edited copy."""
    if not row.carrier or not OutboxMessage.objects.filter(pk=row.carrier).exists():
        return ""
    return reverse("admin:outbox_outboxmessage_change", args=[row.carrier])


def _about(row: DeadLetter) -> str:
    """Where its key leads: to the order, batch or stock that has it."""
    return f"{reverse('admin:find')}?{urlencode({'q': row.business_key, 'beside': str(row.pk)})}"


def _message(row: DeadLetter) -> str:
    """The page of the message that became this letter; empty for a letter of a record."""
    message = message_of(row)
    return reverse("admin:outbox_outboxmessage_change", args=[message]) if message else ""
