"""Admin pages of topic replays: what was asked for, how far it is, and the form that asks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html

from config.admin import humanize, svg
from config.admin.filters import ByNumber
from config.admin.forms import CheckedField, ReasonField, fault_of
from config.admin.html import chip, clock_and_age
from config.admin.levers import Lever, Operator, operator_of
from config.admin.pages import ReadOnlyAdmin, age_column, number_column
from config.database.clock import database_now
from config.letters import Refusal
from outbox.topic_replay import requests
from outbox.topic_replay.models import TopicReplay
from outbox.topic_replay.run import replayable

# -- Levers, form, progress ----------------------------------------------------------------------------------
FIELD_TIME = "%Y-%m-%dT%H:%M:%S"


def _why_over(row: TopicReplay) -> str:
    return f"It is {row.state} already."


def _why_not_previewed(row: TopicReplay) -> str:
    return "It was a real run." if not row.dry_run else f"It is {row.state}: only a finished count can be applied."


replay_lever = partial(Lever, nouns=("replay", "replays"), right="replay_topic")
APPLY = replay_lever(
    name="apply", verb="Apply what is missing", past="Started", icon="play", keep="Not now",
    promise="The same timeframe is read again, and what is missing is applied.",
    detail="What is there already is left alone, and nothing newer is overwritten. It can be cancelled.",
    act=requests.apply_missing, ready=lambda rows: rows.previewed(), why_not=_why_not_previewed, least=requests.LEAST_REASON,
    question="Apply what is missing in",
)  # fmt: skip
CANCEL = replay_lever(
    name="cancel", verb="Cancel", past="Cancelled", icon="ban", keep="Let it run",
    promise="It stops with the batch in hand.", detail="What it has applied stays applied.",
    act=requests.cancel, ready=lambda rows: rows.unfinished(), why_not=_why_over, harm=True,
)  # fmt: skip


def _moment(text: str) -> datetime:
    return requests.moment(text, timezone.get_current_timezone())[0]


class TopicReplayForm(forms.Form):
    """Which topic, from when to when; of the last hour on the viewer's clock, unless a link says otherwise."""

    topic = CheckedField(requests.contract_name)
    since = CheckedField(_moment, widget=forms.TextInput({"type": "datetime-local", "step": 1}))
    until = CheckedField(_moment, widget=forms.TextInput({"type": "datetime-local", "step": 1}))
    slack = CheckedField(
        requests.span, initial="1h", widget=forms.TextInput({"class": "sw-short", "size": 6}),
        help_text="How far records may be out of order by time: 90s, 30m, 1h, 2d.",
    )  # fmt: skip
    reason = ReasonField(requests.LEAST_REASON, help_text="Kept with your name and the time.")

    def __init__(self, data: Mapping[str, Any] | None, now: datetime, given: Mapping[str, str]) -> None:
        hour = timezone.localtime(now).replace(minute=0, second=0, microsecond=0)
        frame = {"since": f"{hour - timedelta(hours=1):{FIELD_TIME}}", "until": f"{hour:{FIELD_TIME}}"}
        super().__init__(data, initial=frame | {name: given[name] for name in ("topic", *frame) if given.get(name)})
        self.fields["topic"].widget = forms.Select(choices=[(name, name) for name in sorted(replayable())])
        zone = timezone.get_current_timezone_name()
        self.fields["since"].label, self.fields["until"].label = f"From, {zone}", f"To, {zone}"
        clock = f"{timezone.localtime(now):%Y-%m-%d %H:%M:%S} {zone}"
        self.fields["until"].help_text = f"Not included. Times are those of the records, now it is {clock}."

    def clean(self) -> None:
        since, until = self.cleaned_data.get("since"), self.cleaned_data.get("until")
        if since and until and since >= until:
            self.add_error("until", "The end must be after the start.")

    def request(self, operator: Operator, *, dry_run: bool) -> TopicReplay | None:
        """Ask for the replay; None, and why in the form, when it is refused."""
        try:
            return requests.request(**self.cleaned_data, operator=operator, dry_run=dry_run)
        except Refusal as refusal:
            self.add_error("slack", fault_of(refusal))
            return None


def parts_of(row: TopicReplay) -> list[svg.BarPart]:
    """Outcomes of the records read, as parts of what was looked at; the rest of the bar is still to be read."""
    named = [
        ("ok", "would be applied" if row.dry_run else "applied", row.applied),
        ("bad", "would be parked" if row.dry_run else "parked", row.parked),
        ("idle", "already there", row.already),
        ("warn", "older than retention", row.outside),
    ]
    return svg.parts(named, row.percent, row.read)


def headline(row: TopicReplay) -> str:
    """What it does or did, with the one number that matters."""
    missing = row.applied + row.parked
    if row.state == "running":
        return f"{'Counting what is missing' if row.dry_run else 'Replaying'}: {row.percent:.0f} % done"
    if row.state == "pending":
        return "Waits for a worker"
    if row.state != "done":
        return f"{row.state.capitalize()} at {row.percent:.0f} %"
    if not row.read:
        return "No record in this timeframe"
    if not missing:
        return "Nothing is missing" if row.dry_run else "Nothing was missing"
    verb = "is" if row.dry_run and missing == 1 else "are" if row.dry_run else "was" if missing == 1 else "were"
    return f"{humanize.plural(missing, 'record', 'records')} {verb} missing"


def left(row: TopicReplay, now: datetime) -> str:
    """`about 4 min left`, by the speed so far; empty while nothing can be said."""
    if row.state != "running" or not row.started_at or not row.looked_at:
        return ""
    seconds = (now - row.started_at).total_seconds() * (row.total - row.looked_at) / row.looked_at
    return f"about {humanize.length(seconds, coarse=True)} left"


# -- Pages ---------------------------------------------------------------------------------------------------
REFRESH_SECONDS = 2


@admin.register(TopicReplay)
class TopicReplayAdmin(ReadOnlyAdmin[TopicReplay]):
    place = 65
    levers = (APPLY, CANCEL)
    happened = ByNumber("asked for", "created_at")
    list_display = ["timeframe", "state", "does", "count_read", "count_applied", "who", "asked"]
    empty = (
        "Nothing was replayed yet",
        "A replay reads a past timeframe of a topic again and applies what is missing.",
    )
    count_read = number_column("read", "Read")
    count_applied = number_column("applied", "Missing")
    asked = age_column("created_at", "Asked for")

    @admin.display(description="Timeframe")
    def timeframe(self, row: TopicReplay) -> str:
        return format_html('{}<span class="sw-second">{} to {}</span>', row.topic, *_ends(row))

    @admin.display(description="State")
    def state(self, row: TopicReplay) -> str:
        return chip(row.state, f"Running, {row.percent:.0f} %" if row.state == "running" else "")

    @admin.display(description="Does")
    def does(self, row: TopicReplay) -> str:
        return "Counts only" if row.dry_run else "Applies"

    @admin.display(description="By")
    def who(self, row: TopicReplay) -> str:
        return row.requested_by

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("outbox.replay_topic"))

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: Mapping[str, object] | None = None
    ) -> HttpResponse:
        """Ask for a replay: counted first, unless somebody wants it at once."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = TopicReplayForm(request.POST or None, database_now(), request.GET.dict())
        if form.is_valid():
            replay = form.request(operator_of(request.user), dry_run="at_once" not in request.POST)
            if replay:
                return HttpResponseRedirect(reverse("admin:outbox_topicreplay_change", args=[replay.pk]))
        page = {**self.admin_site.each_context(request), "title": "Replay a topic", "opts": self.opts, "form": form}
        return TemplateResponse(request, "admin/outbox/topicreplay/ask.html", page)

    def detail(self, request: HttpRequest, row: TopicReplay) -> dict[str, object]:
        now, parts = database_now(), parts_of(row)
        unfinished = row.state in ("pending", "running")
        since, until = _ends(row)
        facts = [
            ("Topic", row.topic),
            ("From", humanize.stamp(row.since)),
            ("To", f"{humanize.stamp(row.until)}, not included"),
        ]
        facts += [("Slack", humanize.length(row.slack_seconds)), ("Offsets to look at", f"{row.total:,}")]
        facts += [("Asked for by", row.requested_by), ("Started", clock_and_age(row.started_at, now))]
        return {
            "now": now,
            "title": f"{row.topic}, {since} to {until}",
            "headline": headline(row),
            "left": left(row, now),
            "parts": parts,
            "bar": svg.progress(parts, f"{row.percent:.0f} % looked at"),
            "refresh_seconds": REFRESH_SECONDS if unfinished else 0,
            "facts": [*facts, ("Ended", clock_and_age(row.finished_at, now))],
        }


def _ends(row: TopicReplay) -> tuple[str, str]:
    return humanize.stamp(row.since).rpartition(" ")[0], humanize.stamp(row.until)
