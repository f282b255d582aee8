"""Admin page of failure groups: what needs work, who works on it, where it comes from; its levers, and its words."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.db.models.options import Options
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import urlencode

from config.admin import humanize
from config.admin.filters import ByTime
from config.admin.forms import fault_of
from config.admin.html import chip, moment
from config.admin.levers import Lever, LeverResult, Operator, one_by_one, operator_of, role_with
from config.admin.lists import by_ids
from config.admin.pages import KeysetChangeList, LeverState, ReadOnlyAdmin, age_column, finds, number_column
from config.database.clock import database_now
from config.flows import flows, name_of, source_in_words
from config.letters import Refusal
from outbox.admin.groups import figures as group_figures
from outbox.admin.groups.figures import Figures, figures, history_of, origins_of
from outbox.admin.groups.filters import (
    ByUrgency,
    FlowOfGroup,
    GroupCounts,
    OwnerOfGroup,
    StateOfGroup,
    batches_of,
    groups_in_work,
    numbers_by_state,
)
from outbox.groups import counts
from outbox.groups import levers as groups
from outbox.groups.levers import WORDS, mark_of, write_words
from outbox.groups.models import FailureGroup
from outbox.groups.reasons import advice_on
from outbox.letters import redelivery
from outbox.letters.filters import STARTS, VERBS, Filter
from outbox.letters.levers import resolve_groups
from outbox.letters.models import DeadLetter

# -- The levers on groups, as their page and the list of letters offer them ----------------------------------
TAKE, MANAGE = "take_failuregroup", "manage_failuregroup"
PAIRED = frozenset({"take", "release", "watch"})
PICTURES = {"requeue": "redo", "edit": "edit", "discard": "ban", "resolve": "tick", "restore": "undo"}
RIGHTS = {
    "bulk_replay": "bulk requeue", "requeue_deadletter": "requeue dead letters",
    "edit_deadletter": "edit and requeue dead letters", "view_payload": "see payloads",
}  # fmt: skip
EDITING = ("bulk_replay", "edit_deadletter", "view_payload")
MOST_OWNERS = 500
RIGHTS_FROM = "django.contrib.auth.backends.ModelBackend"  # the other backend counts failed logins
UNTIL = [
    ("day", "For a day"), ("hour", "For an hour"), ("week", "For 7 days"), ("month", "For 30 days"),
    (groups.DOUBLES, "Until its open letters have doubled"),
]  # fmt: skip


def owners() -> list[tuple[str, str]]:
    """(key, name) of everybody who may take groups, by name."""
    holders = get_user_model().objects.with_perm(f"outbox.{TAKE}", backend=RIGHTS_FROM)
    staff = holders.filter(is_staff=True)[:MOST_OWNERS]
    named = {str(user.pk): (operator_of(user).name, user.get_username()) for user in staff}
    words = {key: name if name == login else f"{name} ({login})" for key, (name, login) in named.items()}
    return sorted(words.items(), key=lambda pair: pair[1].casefold())


def _assign(keys: list[int], operator: Operator, reason: str, owner: str) -> LeverResult:
    # One of `owners`: the confirmation has looked.
    user = get_user_model().objects.get(pk=owner)
    return LeverResult(groups.assign(keys, operator, reason, operator_of(user)))


def _why_not_taken(group: FailureGroup) -> str:
    if group.owner_name:
        return f"{group.owner_name} has it."
    return "It has no letter to work on."


def _lever(name: str, verb: str, past: str, icon: str, act: Callable[..., int], **more: Any) -> Lever:
    return Lever(
        name=name, verb=verb, past=past, icon=icon, nouns=("group", "groups"), act=one_by_one(act), **more,
    )  # fmt: skip


def ignored(rows: QuerySet) -> QuerySet:
    return rows.filter(state=FailureGroup.State.IGNORED)


def _shown(name: str, verb: str, icon: str, right: str, harm: bool = False) -> Lever:
    """A lever that has a page of its own: here it is only offered."""
    return Lever(name, verb, icon, right, ("letter", "letters"), harm=harm)


def of_letters(request: HttpRequest, group: FailureGroup, opts: Options) -> list[LeverState]:
    """What can be done to all its open letters, by a batch, and to the newest one of them alone."""
    if not group.open_count:
        return []
    draft, number = reverse("admin:outbox_replaybatch_draft"), f"{group.open_count:,}"
    newest = DeadLetter.objects.of_group(group.pk).open().newest_first().values_list("pk", flat=True).first()
    one = reverse("admin:outbox_deadletter_lever", args=["requeue"])
    offered = [
        (_shown("requeue-all", f"Requeue all {number}", "redo", "bulk_replay"), f"{draft}?verb=requeue&group={group.pk}"),
        (_shown("edit-all", f"Edit all {number}", "edit", _needed(request, "edit")), f"{draft}?verb=edit&group={group.pk}"),
        (_shown("try-one", "Try one", "play", "requeue_deadletter"), f"{one}?id={newest}"),
        (_shown("discard-all", f"Discard all {number}", "ban", "bulk_replay", harm=True), f"{draft}?verb=discard&group={group.pk}"),
    ]  # fmt: skip
    at_once = (f"{draft}?verb=requeue", f"{draft}?verb=discard")  # an edit asks first what it is to change
    return [_offer(request, lever, url, opts, posts=url.startswith(at_once)) for lever, url in offered]


def _needed(request: HttpRequest, verb: str) -> str:
    """The right for a batch of this verb; of several the first that this person lacks."""
    rights = EDITING if verb == "edit" else EDITING[:1]
    return next((right for right in rights if not request.user.has_perm(f"outbox.{right}")), rights[0])


def of_filter(request: HttpRequest, chosen: Filter, state: str, opts: Options) -> list[LeverState]:
    """What a replay batch can do to all letters of a list that shows one state; nothing in a state that no verb starts from."""
    draft = reverse("admin:outbox_replaybatch_draft")
    offered = [
        (
            _shown(
                f"{verb}-all",
                f"{verb.capitalize()} all of these",
                PICTURES[verb],
                _needed(request, verb),
                harm=verb == "discard",
            ),
            f"{draft}?{urlencode([('verb', verb), *chosen.fields()])}",
        )
        for verb in VERBS
        if STARTS[verb] == state
    ]
    offers = [_offer(request, lever, url, opts, posts=lever.name != "edit-all") for lever, url in offered]
    return sorted(offers, key=lambda offer: offer.lever.harm)


def _offer(request: HttpRequest, lever: Lever, url: str, opts: Options, *, posts: bool) -> LeverState:
    lacks = {} if lever.allowed(request.user, opts) else {"right": RIGHTS[lever.right], "role": lever.role(opts)}
    return LeverState(lever, url, posts=posts, **lacks)


LEVERS = (
    _lever(
        "take", "Take it", "Took", "person", groups.take, right=TAKE, least=0, keep="Not now", question="Take",
        promise="You are its owner.", detail="The others see that somebody works on it.",
        ready=lambda rows: rows.takeable(), why_not=_why_not_taken,
    ),
    Lever(
        name="assign", verb="Assign", past="Assigned", icon="person", nouns=("group", "groups"), act=_assign,
        right=MANAGE, least=0, keep="Not now", promise="Somebody else is its owner.",
        detail="Whoever has it now is not asked. Note, ticket and hint stay.", choices=owners, choices_label="Owner",
        ready=lambda rows: rows.workable(), why_not=lambda group: "It has no letter to work on, or that owner already.",
    ),
    _lever(
        "release", "Release", "Released", "undo", groups.release, right=TAKE, least=0, keep="Not now",
        promise="It has no owner then.", detail="Note, ticket and hint stay.",
        ready=lambda rows: rows.owned(), why_not=lambda group: "It has no owner.",
    ),
    _lever(
        "resolve", "Resolve", "Resolved", "tick", resolve_groups, right=MANAGE, keep="Leave open",
        promise="Its open letters are resolved. Nothing is sent.",
        detail="They were dealt with elsewhere. A new letter with this cause opens the group again, as regressed.",
        ready=lambda rows: rows.with_open_letters(), why_not=lambda group: "None of its letters is open.",
    ),
    _lever(
        "ignore", "Ignore until", "Ignored", "clock", groups.ignore, right=MANAGE, keep="Not now", question="Ignore",
        promise="It leaves the list of what needs work.",
        detail="Its letters stay open. It comes back at the time, or when its count has doubled.",
        choices=UNTIL, choices_label="Until",
        ready=lambda rows: rows.with_open_letters(), why_not=lambda group: "None of its letters is open.",
    ),
    _lever(
        "watch", "Stop ignoring", "Watching", "eye", groups.watch, right=MANAGE, least=0, keep="Not now",
        promise="It is shown with what needs work again.", detail="Owner and words stay.",
        ready=ignored, why_not=lambda group: "It is not ignored.",
    ),
)  # fmt: skip


# -- The form of a group's words -----------------------------------------------------------------------------
# The note of whoever works on it, its ticket, and what to do about its cause.
NEEDS = {"note": TAKE, "ticket": TAKE, "hint": MANAGE}
SCHEMES = ("https://", "http://")


def may_write(request: HttpRequest) -> set[str]:
    """The words that this user may change."""
    return {name for name, right in NEEDS.items() if request.user.has_perm(f"outbox.{right}")}


def ticket_url(ticket: str) -> str:
    """Where a ticket leads; empty for one that is only a number."""
    return ticket if ticket.startswith(SCHEMES) and not set(ticket) & set(" \t\n\"'<>") else ""


class WordsField(forms.CharField):
    """A text of a group; its lines end as they are stored, whatever a browser sends."""

    def __init__(self, longest: int, help_text: str, **options: Any) -> None:
        too_long = f"At most {longest:,} characters; it has %(show_value)d."
        super().__init__(
            required=False, max_length=longest, help_text=help_text, error_messages={"max_length": too_long}, **options
        )
        self.widget.attrs.pop("maxlength", None)  # too long a text is kept and said to be, not cut

    def to_python(self, value: Any) -> str:
        return str(super().to_python(value)).replace("\r\n", "\n")


class WordsForm(forms.Form):
    """What is kept about a cause; what this person may not change is shown, and stays as it is."""

    note = WordsField(2000, "What was done, who was asked.", widget=forms.Textarea)
    ticket = WordsField(300, "An address, or its number.")
    hint = WordsField(2000, "For whoever meets this cause next.", widget=forms.Textarea, label="What to do")

    def __init__(self, group: FailureGroup, allowed: set[str], data: QueryDict | None) -> None:
        super().__init__(data, initial={name: getattr(group, name) for name in WORDS})
        self.group, self.allowed = group, allowed
        for name in NEEDS.keys() - allowed:
            self.fields[name].disabled = True
            self.fields[name].help_text = f"Changing it needs the right “{NEEDS[name].split('_')[0]} groups”."

    def write(self, operator: Operator) -> bool:
        """Whether it is written; where somebody else was faster the form says so, and shows their words beside these."""
        texts = {name: self.cleaned_data[name] for name in self.allowed}
        try:
            write_words(self.group.pk, texts, self.data.get("seen", ""), operator)
        except Refusal as refusal:
            self.add_error(None, fault_of(refusal))
            for name, text in texts.items():
                if (theirs := getattr(self.group, name)) != text:
                    self[name].help_text += f" Theirs: {theirs}"
            return False
        return True


# -- The pages ----------------------------------------------------------------------------------------------
NEWEST = 10
TABS = [
    ("Groups", "admin:outbox_failuregroup_changelist"),
    ("Letters", "admin:outbox_deadletter_changelist"),
    ("Replay batches", "admin:outbox_replaybatch_changelist"),
]
LETTERS = "admin:outbox_deadletter_changelist"
CHARTS = {group_figures.TWO_DAYS: "48 hours", group_figures.WEEK: "7 days"}


class GroupChangeList(KeysetChangeList):
    """Asks once what is in work, for the numbers of all states, and for the hours of all groups of a page."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        titles = {source: name_of(flow) for flow in flows() for source in flow.sources()}
        hours = counts.arrived_by_hour([row.pk for row in self.result_list], self.now, group_figures.DAY)
        for row in self.result_list:
            row.shown = row.shown_state(self.now, self.in_work)
            row.flow = titles.get(row.source, row.source)
            row.trend = group_figures.trend_of(hours[row.pk], row.shown == FailureGroup.State.REGRESSED)

    @cached_property
    def now(self) -> datetime:
        return database_now()

    @cached_property
    def in_work(self) -> frozenset[int]:
        return groups_in_work()

    @cached_property
    def by_state(self) -> dict[str, GroupCounts]:
        return numbers_by_state(self.now, self.in_work)

    @property
    def figures(self) -> Figures:
        return figures(self.now, self.by_state.values())

    @property
    def empty(self) -> tuple[str, str] | None:
        """That nothing needs work is good news; that a filter finds nothing is none."""
        if self.has_active_filters:
            return None
        last = FailureGroup.objects.filter(state=FailureGroup.State.RESOLVED).order_by("-state_since").first()
        said = f"The last group was resolved {humanize.ago(last.state_since, database_now())}: {last}. " if last else ""
        return "No dead letters need work", f"{said}A letter appears here when a message failed for good."


def _is_its_turn(state: LeverState, row: FailureGroup) -> bool:
    """Also for whoever has no right to pull it: a locked "Stop ignoring" says nothing of a group that nobody ignores."""
    return finds(state.lever.ready, row) if state.right else not state.locked


@admin.register(FailureGroup)
class FailureGroupAdmin(ReadOnlyAdmin[FailureGroup]):
    place = 10
    tabs = TABS
    levers = LEVERS
    list_per_page = 25
    list_display = ["state_shown", "cause", "flow_shown", "count_open", "last_day", "first", "last", "owner"]
    list_display_links = ["cause"]
    list_filter = [StateOfGroup, FlowOfGroup, OwnerOfGroup]
    happened = ByTime("last seen", "last_seen")
    count_open = number_column("open_count", "Open", ("letter", "letters"))
    last = age_column("last_seen", "Last seen")

    # -- The list -------------------------------------------------------------------------------
    def get_changelist(self, request: HttpRequest, **kwargs: object) -> type[GroupChangeList]:
        return GroupChangeList

    def keyset_for(self, changelist: KeysetChangeList) -> ByUrgency:
        return ByUrgency(in_work=cast(GroupChangeList, changelist).in_work)

    @admin.display(description="State")
    def state_shown(self, row: Any) -> str:
        return chip(f"group_{row.shown}")

    @admin.display(description="Cause")
    def cause(self, row: FailureGroup) -> str:
        line = '{}<span class="sw-second"><code>{}</code>, step “{}”</span>'
        return format_html(line, row, row.reason, row.step)

    @admin.display(description="Flow")
    def flow_shown(self, row: Any) -> str:
        return row.flow

    @admin.display(description="Last 24 hours")
    def last_day(self, row: Any) -> str:
        return format_html('{}<span class="sw-second">{}</span>', *row.trend)

    @admin.display(description="First seen")
    def first(self, row: FailureGroup) -> str:
        when = timezone.localtime(row.first_seen)
        age = moment(when, humanize.ago(when, timezone.now()))
        return format_html('{}<span class="sw-second">{}</span>', age, f"{when.day} {when:%b %Y %H:%M}")

    @admin.display(description="Owner")
    def owner(self, row: FailureGroup) -> str:
        return row.owner_name or format_html('<b class="sw-toned sw-warn">{}</b>', "Nobody")

    # -- One group ------------------------------------------------------------------------------
    def detail(self, request: HttpRequest, row: FailureGroup) -> dict[str, object]:
        now = database_now()
        letters = DeadLetter.objects.of_group(row.pk).open().newest_first().defer("traceback")
        span = group_figures.WEEK if request.GET.get("hours") == str(group_figures.WEEK) else group_figures.TWO_DAYS
        newest = by_ids(letters, NEWEST)
        judged, batches = redelivery.foresee(newest, now), batches_of(row)
        return {
            "now": now,
            "title": f"{source_in_words(row.source)}: {row}",
            "shown": f"group_{row.shown_state(now, [row.pk] if batches else [])}",
            "batches": batches,
            "letters": newest,
            "advice": advice_on(row),
            "vain": next((one for one in judged.values() if one.in_vain), None),
            "judged": [(letter, judged.get(letter.pk)) for letter in newest],
            "letters_count": row.open_count,
            "letters_url": f"{reverse(LETTERS)}?group__id__exact={row.pk}",
            "chart": group_figures.chart_of(counts.arrived_by_hour([row.pk], now, span)[row.pk], now),
            "spans": [(hours_, words, hours_ == span) for hours_, words in CHARTS.items()],
            "origins": origins_of(row.pk),
            "may_write": may_write(request),
            "ticket_url": ticket_url(row.ticket),
            "history": history_of(row),
        }

    def offered(self, request: HttpRequest, states: list[LeverState], row: FailureGroup) -> list[LeverState]:
        """Those on its letters first; of two levers that undo each other only the one that can be pulled."""
        mine = [state for state in states if state.lever.name not in PAIRED or _is_its_turn(state, row)]
        return sorted([*of_letters(request, row, self.opts), *mine], key=lambda state: state.lever.harm)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.words_view)
        return [path("<int:pk>/words/", view, name="outbox_failuregroup_words"), *super().get_urls()]

    def words_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Note, ticket and hint of one group: GET asks, POST writes what may be written; 403 without any right."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        group = FailureGroup.objects.filter(pk=pk).first() if pk < 2**63 else None
        if group is None:
            raise Http404
        allowed = may_write(request)
        form = WordsForm(group, allowed, request.POST if request.method == "POST" else None)
        if allowed and form.is_valid() and form.write(operator_of(request.user)):
            messages.success(request, "Saved.")
            return HttpResponseRedirect(group.url)
        context = {
            **self.admin_site.each_context(request), "opts": self.opts, "title": f"Words about: {group}", "group": group,
            "form": form, "seen": mark_of(group), "right": "" if allowed else "take groups", "role": role_with(f"outbox.{TAKE}"),
        }  # fmt: skip
        status = 200 if allowed else 403
        return TemplateResponse(request, "admin/outbox/failuregroup/words.html", context, status=status)
