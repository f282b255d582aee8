"""Admin pages of replay batches: the list, the items, the forms of a draft and its levers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django import forms
from django.contrib import admin, messages
from django.contrib.auth.models import AbstractUser, AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db import models, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import mark_safe
from django.utils.text import capfirst

from config.admin import humanize
from config.admin.filters import ByNumber, ByUuid, Segments
from config.admin.forms import CheckedField, ReasonField, fault_of
from config.admin.html import chip, in_words
from config.admin.levers import ROLES, Operator, operator_of
from config.admin.lists import Keyset
from config.admin.pages import ReadOnlyAdmin, age_column, number_column
from config.letters import Refusal
from outbox.admin import replay_batch_page as batch_page
from outbox.admin.edit_form import RIGHTS as EDIT_RIGHTS
from outbox.admin.groups.pages import TABS
from outbox.audit_log.reveal import Revealing
from outbox.channels.handlers import handlers
from outbox.letters.edits import typed
from outbox.letters.field_changes import LONGEST_PATH, FieldChange, change_of
from outbox.letters.field_changes import VERBS as CHANGES
from outbox.letters.filters import VERBS, Filter
from outbox.letters.transitions import CODES
from outbox.messages.filters import MessageFilter
from outbox.replay_batches import lifecycle, requests
from outbox.replay_batches.models import OF_MESSAGES, ReplayBatch, ReplayItem
from outbox.replay_batches.subjects import words_of

Number = TypeVar("Number", int, float)


# -- The form of an edit -------------------------------------------------------------------------------------
MEANT_AS = {
    "text": mark_safe("as text: <code>12</code> is the text “12”"),
    "json": mark_safe(
        'as JSON: <code>12</code> is a number, <code>"12"</code> a text; also <code>true</code>, <code>null</code>, '
        "lists and objects"
    ),
}


class ValueField(forms.CharField):
    """Kept as it is typed, with its blanks."""

    def __init__(self, label: str) -> None:
        widget = forms.Textarea({"rows": 2, "spellcheck": "false"})
        super().__init__(label=label, required=False, strip=False, widget=widget)

    def to_python(self, value: Any) -> str:
        return typed(value or "")


class ChangeForm(forms.Form):
    """The change of one field; `made` is it, where nothing is wrong. How values are usually meant is chosen at first."""

    change = forms.CharField(
        label="One field", initial="set", empty_value="set", required=False, widget=forms.RadioSelect(choices=[*CHANGES.items()]),
    )  # fmt: skip
    path = forms.CharField(
        label="Its path", required=False,
        widget=forms.TextInput({
            "class": "sw-mono", "list": "sw-paths", "maxlength": LONGEST_PATH, "required": True, "autofocus": True,
            "autocomplete": "off", "spellcheck": "false", "placeholder": "$.items[0].sku",
        }),
        help_text=mark_safe(
            "A JSON path to one value, as <code>$.to</code> or <code>$.items[0].sku</code>; <code>[-1]</code> is the "
            "last of a list."
        ),
    )  # fmt: skip
    old, new = ValueField("Old value"), ValueField("New value")
    other_type = forms.BooleanField(label="Also where its value has another type now", required=False)
    add = forms.BooleanField(label="Also where the field is missing", required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made: FieldChange | None = None
        self.fields["as"] = forms.CharField(
            label="It is typed", initial="text", empty_value="text", required=False,
            widget=forms.RadioSelect(choices=[*MEANT_AS.items()]),
        )  # fmt: skip

    def clean(self) -> None:
        self.made, faults = change_of({**self.cleaned_data, "verb": self.cleaned_data["change"]})
        if faults:
            self.add_error(None, f"{humanize.plural(len(faults), 'thing is', 'things are')} wrong.")
        for name, fault in faults.items():
            self.add_error("change" if name == "verb" else name, fault)


def _form_again(batch: ReplayBatch) -> dict[str, object]:
    """The form of an edit that fits no letter, with what was typed."""
    change, chosen = FieldChange.of(batch.edit), Filter.of(batch.filter)
    form = ChangeForm(change.typed())
    form.add_error(None, f"Nothing matches: none of {humanize.plural(batch.pinned, *batch.nouns)} can be edited so.")
    return {"form": form, "given": [*chosen.fields()], **batch_page.shown_in_form(chosen)}


# -- The form of a previewed batch ---------------------------------------------------------------------------
def rate_of(text: str) -> float | None:
    """A rate as it was typed; None for nothing. Raises Refusal."""
    rate = _number("rate", text, float)
    requests.check_pace(rate, None)
    return rate


def _canary_of(text: str) -> int | None:
    canary = _number("canary", text, int)
    requests.check_pace(None, canary)
    return canary


def _number(name: str, text: str, kind: Callable[[str], Number]) -> Number | None:
    try:
        return kind(text.replace(",", "")) if text else None
    except (ValueError, OverflowError):
        raise Refusal(f"{name} {text[:50]!r} is no number") from None


def _short(mode: str) -> forms.TextInput:
    return forms.TextInput({"class": "sw-short", "inputmode": mode, "autocomplete": "off"})


class ConfirmForm(forms.Form):
    """How a previewed batch runs, and why; without the fields that its verb or its size do not need."""

    rate = CheckedField(rate_of, required=False, widget=_short("decimal"))
    canary = CheckedField(_canary_of, required=False, widget=_short("numeric"))
    code = forms.CharField(required=False, max_length=30, widget=forms.Select(choices=[*CODES.items()]))
    typed = forms.CharField(label="Type the count", required=False, widget=_short("numeric"))

    def __init__(self, batch: ReplayBatch, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data)
        self.batch, fields, many = batch, self.fields, batch.nouns[1].capitalize()
        rate = "" if batch.rate is None else f"{batch.rate:g}"
        self.initial = {"rate": rate, "canary": batch.canary_size, "reason": batch.reason}
        pace = "It climbs from 1 within 30 s" if batch.rate else "Empty is as fast as it goes"
        fields["rate"].help_text = f"{many} a second. {pace}, and can be changed while it runs."
        fields["canary"].help_text = f"{many} that go first. The rest waits until all are good. One failure stops it."
        fields["reason"] = ReasonField(requests.LEAST[batch.verb], "Kept with the batch and in the operator actions.")
        more = batch.eligible > requests.TYPED_ABOVE
        fields["typed"].help_text = f"To confirm more than {requests.TYPED_ABOVE:,}."
        for name, asked in (("canary", batch.sends), ("code", batch.verb == "discard"), ("typed", more)):
            if not asked:
                del fields[name]
        self.order_fields(["rate", "canary", "code", "reason", "typed"])

    def confirm(self, operator: Operator) -> str:
        """Start the hold; what was done. Raises Refusal: a wrong count, an old preview, somebody faster."""
        batch = requests.confirm(self.batch.pk, operator, **{"reason": "", **self.cleaned_data})
        one, many = batch.nouns
        return f"{humanize.plural(batch.eligible, f'{one} waits', f'{many} wait')} for the end of the hold. Nothing has left yet."


# -- What the forms send -------------------------------------------------------------------------------------
RIGHT = "bulk requeue"
# What it takes, and what that is called: the right to do it to many, and that to do it to a single one.
RIGHTS = {verb: {"outbox.bulk_replay": RIGHT, f"outbox.{verb}_deadletter": f"{verb} dead letters"} for verb in VERBS}
RIGHTS["edit"] |= EDIT_RIGHTS
RIGHTS["resend"] = {"outbox.bulk_replay": RIGHT, "outbox.resend_outboxmessage": "resend messages"}
Given = Mapping[str, object]


def may(user: AbstractUser | AnonymousUser, verb: str) -> bool:
    """Whether this person may do it to one letter, and to many."""
    return bool(user.has_perms(RIGHTS[verb]))


def lacking(user: AbstractUser | AnonymousUser, verb: str) -> str:
    """The first right that this person lacks for it, in words; empty where none is."""
    return next((words for right, words in RIGHTS[verb].items() if not user.has_perm(right)), "")


def role_for(verb: str) -> str:
    """The least role that may do it to many letters."""
    return next((role for role, rights in ROLES.items() if set(RIGHTS[verb]) <= set(rights)), "")


def posted_filter(verb: str, given: QueryDict) -> Filter | MessageFilter:
    """The filter of a draft. Raises Refusal for a group or a batch that is no number."""
    if verb in OF_MESSAGES:
        named = {name: _text(given, name) for name in ("state", "channel", "event_type", "since", "before")}
        return MessageFilter(ids=tuple(given.getlist("ids")), **named)
    group, batch = (
        _whole(given, name, words) for name, words in (("group", "failure group"), ("batch", "replay batch"))
    )
    texts = {name: _text(given, name) for name in ("source", "status", "since", "before")}
    return Filter(ids=tuple(given.getlist("ids")), group=group, batch=batch, all=given.get("all") == "1", **texts)


def _whole(given: QueryDict, name: str, words: str) -> int | None:
    """The number of a group or a batch. Raises Refusal for what is none."""
    text = _text(given, name)
    if text and not (text.isdecimal() and len(text) < 19):
        raise Refusal(f"{text[:50]}: not the number of a {words}")
    return int(text) if text else None


def _rate(number: int, operator: Operator, given: Given) -> str:
    batch = requests.set_rate(number, operator, rate_of(_text(given, "rate")))
    return f"The rate is {batch.rate:g} {batch.nouns[1]} a second." if batch.rate else "The rate is unlimited."


def _plain(act: Callable[..., object], words: str) -> Callable[[int, Operator, Given], str]:
    def pull(number: int, operator: Operator, given: Given) -> str:
        act(number, operator, _text(given, "reason"))
        return words

    return pull


def _text(given: Given, name: str) -> str:
    """What was typed, without what no database keeps in a text."""
    return str(given.get(name, "")).strip()


DEEDS: Mapping[str, Callable[[int, Operator, Given], str]] = {
    "rate": _rate,
    "undo": _plain(requests.undo, "Undone. Nothing was touched, and the preview is kept."),
    "start": _plain(requests.start_now, "The hold is over."),
    "pause": _plain(requests.pause, "Paused. The chunk in hand was finished."),
    "resume": _plain(requests.resume, "It goes on."),
    "cancel": _plain(requests.cancel, "Cancelled. What was not acted on stays as it is."),
}


# -- The letters of a batch ----------------------------------------------------------------------------------
CHIPS = {"eligible": "pending", "verified": "resolved", "left": "withdrawn", "refused": "rejected"}


class StateOfItem(Segments):
    """Always one state: that is what the index begins with."""

    title = "state"
    parameter_name = "state"
    field = "state"
    choices_in_words = in_words("failed_again refused skipped eligible requeued verified left")


@admin.register(ReplayItem)
class ReplayItemAdmin(ReadOnlyAdmin[ReplayItem]):
    keyset = Keyset("letter")
    links = ["batch__id__exact"]
    list_filter = [StateOfItem]
    happened = ByUuid("arrived", "letter")
    list_display = ["of_letter", "result", "said", "changed"]
    list_display_links = None
    changed = age_column("changed_at", "When")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return False  # only a batch leads here

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        rows = super().get_queryset(request).select_related("batch")
        return rows if request.GET.get("batch__id__exact") else rows.none()

    def narrowed_to(self, lookup: str, value: object) -> str:
        batch = ReplayBatch.objects.filter(pk=int(str(value))).first()
        return f"{batch.nouns[1] if batch else 'letters'} of replay batch {value}"

    def way_back(self, request: HttpRequest) -> tuple[str, str]:
        """There is no list of all: it is a part of its batch."""
        batch = request.GET.get("batch__id__exact", "")
        return "Back to the batch", reverse(
            "admin:outbox_replaybatch_change", args=[batch]
        ) if batch.isdecimal() else "?"

    @admin.display(description="About")
    def of_letter(self, row: ReplayItem) -> str:
        model = "outboxmessage" if row.batch.verb in OF_MESSAGES else "deadletter"
        url = reverse(f"admin:outbox_{model}_change", args=[row.letter])
        return format_html('<a href="{}">{}</a>', url, row)

    @admin.display(description="Result")
    def result(self, row: ReplayItem) -> str:
        return chip(CHIPS.get(row.state, row.state), row.get_state_display().capitalize())

    @admin.display(description="Why")
    def said(self, row: ReplayItem) -> str:
        return humanize.quoted(row.note)


# -- Batches -------------------------------------------------------------------------------------------------
@admin.register(ReplayBatch)
class ReplayBatchAdmin(Revealing, ReadOnlyAdmin[ReplayBatch]):
    place = 30
    tabs = TABS
    happened = ByNumber("asked for", "created_at")
    list_display = ["batch", "in_state", "count_pinned", "count_done", "count_failed", "who", "asked"]
    empty = (
        "No replay batch yet",
        "A batch requeues, edits, discards, resolves or restores many letters at once, or sends many messages again.",
    )
    count_pinned = number_column("pinned", "In it")
    count_failed = number_column("failed_again", "Failed again")
    asked = age_column("created_at", "Asked for")

    @admin.display(description="Batch")
    def batch(self, row: ReplayBatch) -> str:
        line = '{} {}<span class="sw-second">{}</span>'
        return format_html(line, capfirst(row.verb), words_of(row), row.reason or "no reason yet")

    @admin.display(description="State")
    def in_state(self, row: ReplayBatch) -> str:
        return chip(batch_page.CHIPS.get(row.state, row.state), batch_page.state_word(row))

    @admin.display(description="Done")
    def count_done(self, row: ReplayBatch) -> str:
        return format_html('<span class="sw-number">{}</span>', f"{row.requeued + row.verified:,}")

    @admin.display(description="By")
    def who(self, row: ReplayBatch) -> str:
        return row.requested_by

    # -- One batch ------------------------------------------------------------------------------
    def detail(self, request: HttpRequest, row: ReplayBatch) -> dict[str, object]:
        allowed = may(request.user, row.verb)
        mine = allowed and batch_page.is_author(request.user, row)
        return {
            **batch_page.context(row, self.sight(request, row), mine),
            "allowed": allowed,
            "right": RIGHT,
            "single": [*RIGHTS[row.verb].values()][1],
            "role": role_for(row.verb),
            "form": ConfirmForm(row) if row.state == "previewed" else None,
            "again": _form_again(row) if mine and row.state == "previewed" and not row.eligible else None,
        }

    # -- Asking for one, and its levers ---------------------------------------------------------
    def get_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        mine = [
            path("draft/", wrap(self.draft_view), name="outbox_replaybatch_draft"),
            path("<int:object_id>/deed/<slug:name>/", wrap(self.action_view), name="outbox_replaybatch_deed"),
        ]
        return [*mine, *super().get_urls()]

    def draft_view(self, request: HttpRequest) -> HttpResponse:
        """POST pins whatever matches the filter, and leads to the preview; GET asks first.

        A lever of another page carries its filter in the address.
        """
        given = request.POST if "verb" in request.POST else request.GET
        verb = given.get("verb", "requeue")
        if verb not in RIGHTS:
            raise Http404
        if not self.has_view_permission(request) or not may(request.user, verb):
            raise PermissionDenied(lacking(request.user, verb))
        chosen, problem = None, ""
        form = ChangeForm(given if request.method == "POST" else None, initial=given.dict()) if verb == "edit" else None
        try:
            chosen = posted_filter(verb, given)
            chosen.check()
            if request.method == "POST" and (form is None or form.is_valid()):
                with transaction.atomic():
                    batch = requests.draft(verb, chosen, operator_of(request.user), change=form.made if form else None)
                    if form:
                        lifecycle.record_batch(
                            batch, operator_of(request.user), batch_page.DRAFT, "", "nothing is changed yet"
                        )
                return self._to(batch.pk)
        except Refusal as refusal:
            chosen, problem = None, f"{capfirst(str(refusal))}."
        words = chosen.words() if chosen else ""
        page = {**self.admin_site.each_context(request), "title": f"{capfirst(verb)} {words}?", "opts": self.opts}
        context = {
            **page,
            "verb": verb,
            "words": words,
            "problem": problem,
            "given": [*chosen.fields()] if chosen else [],
            "many": "messages" if verb in OF_MESSAGES else "letters",
            "channels": sorted(handlers()) if verb in OF_MESSAGES and chosen and not chosen.ids else [],
        }
        if isinstance(chosen, Filter) and form:
            context |= {"form": form, **batch_page.shown_in_form(chosen)}
        status = 400 if request.method == "POST" else 200
        return TemplateResponse(request, "admin/outbox/replaybatch/ask.html", context, status=status)

    def action_view(self, request: HttpRequest, object_id: int, name: str) -> HttpResponse:
        """Pull a lever of a batch; whoever was slower is told who was faster."""
        batch = ReplayBatch.objects.filter(pk=object_id).first() if object_id < 2**63 else None
        if batch is None or name not in (*DEEDS, "confirm"):
            raise Http404
        if not self.has_view_permission(request, batch) or not may(request.user, batch.verb):
            raise PermissionDenied(lacking(request.user, batch.verb))
        if request.method != "POST":
            return self._to(object_id)
        if name == "confirm":
            return self._confirm(request, batch)
        try:
            messages.success(request, DEEDS[name](object_id, operator_of(request.user), request.POST))
        except Refusal as refusal:
            messages.warning(request, f"{fault_of(refusal).message} Nothing was changed.")
        return self._to(object_id)

    def _confirm(self, request: HttpRequest, batch: ReplayBatch) -> HttpResponse:
        """Start the hold, or show the preview once more, with what was typed and what is wrong with it."""
        form = ConfirmForm(batch, request.POST)
        try:
            if form.is_valid() or batch.state != "previewed":
                messages.success(request, form.confirm(operator_of(request.user)))
                return self._to(batch.pk)
        except Refusal as refusal:
            form.add_error(None, fault_of(refusal))
            if not ReplayBatch.objects.filter(pk=batch.pk, state="previewed").exists():
                messages.warning(request, f"{fault_of(refusal).message} Nothing was changed.")
                return self._to(batch.pk)
        response: Any = self.change_view(request, str(batch.pk))
        response.context_data.update(form=form)
        response.status_code = 400
        return response

    def _to(self, number: int) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:outbox_replaybatch_change", args=[number]))
