"""The form that edits a copy of a letter: opens, checks without writing, requeues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.contrib.auth.models import AbstractUser, AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from config.admin import humanize
from config.admin.levers import Lever, fault_of_reason, operator_of, role_with
from config.admin.pages import LeverState, ReadOnlyAdmin
from config.database.clock import database_now
from config.letters import Effect, FormField, Refusal
from config.telemetry.redaction import masked_error
from outbox.audit_log import reveal
from outbox.groups.models import FailureGroup
from outbox.letters.edit_checks import Fault, count_changes
from outbox.letters.edits import (
    FASTER,
    LEAST_REASON,
    SAME,
    Examined,
    examine,
    field_of,
    form_of,
    mark_of,
    requeue_copy,
    text_of,
    typed,
    what_is_locked,
    who_was_faster,
    why_not,
    with_fields,
)
from outbox.letters.models import DeadLetter, PayloadRevision

# -- The lever "Edit and requeue" ----------------------------------------------------------------------------
EDIT = Lever(
    name="edit", verb="Edit and requeue", past="Requeued", icon="edit", right="edit_deadletter",
    nouns=("letter", "letters"), keep="Back without changes", ready=lambda rows: rows.open(), least=LEAST_REASON,
)  # fmt: skip
RIGHTS = {"outbox.edit_deadletter": "edit and requeue dead letters", reveal.RIGHT: "see payloads"}


def lacking(user: AbstractUser | AnonymousUser) -> tuple[str, str]:
    """The first right that this person lacks to edit, in words, and the least role that has it; empty with all."""
    for right, words in RIGHTS.items():
        if not user.has_perm(right):
            return words, role_with(right)
    return "", ""


def page_of(row: DeadLetter) -> str:
    return reverse("admin:outbox_deadletter_edit", args=[row.pk])


def state_of(request: HttpRequest, row: DeadLetter, closed: str) -> LeverState:
    """The lever as the letter's page draws it; `closed` says why none of its levers can be pulled now."""
    right, role = lacking(request.user)
    return LeverState(EDIT, page_of(row), "" if right else closed or why_not(row), right, role=role)


# -- The form that edits a copy ------------------------------------------------------------------------------
# Shows the revealed payload, checks without writing, requeues what was checked.
TEMPLATE = "admin/outbox/deadletter/edit.html"
CHANGED = "The text was changed after it was checked. This is what it would do now."
DONE = {
    "waiting": "The copy is on its way: {}. The letter is closed when its effect is proven.",
    "resolved": "The copy had its effect: {}.",
    "failed_again": "The copy failed again: {}.",
    "discarded": "Nothing follows from the copy: {}.",
}


class EditForm:
    """What the form sent: the text, the reason, and what its page knew."""

    def __init__(self, request: HttpRequest) -> None:
        given = request.POST
        self.action = given.get("deed", "")
        self.has_text = "text" in given
        self.text = typed(given.get("text", ""))
        self.fields = {name.removeprefix("field:"): typed(given[name]) for name in given if name.startswith("field:")}
        self.shown = {name.removeprefix("shown:"): given[name] for name in given if name.startswith("shown:")}
        self.make = given.get("make", "1") == "1"
        self.faults: list[Fault] = []  # where JSON and fields contradict each other
        self.reason = given.get("why", "").strip()
        seen = given.get("seen", "")
        self.seen = int(seen) if seen.isdecimal() and len(seen) < 9 else -1
        self.checked = given.get("checked", "")

    def read(self, row: DeadLetter) -> None:
        """Write what the fields say into the text; at first it is that of the letter."""
        if not self.has_text:
            self.text = text_of(row)
        elif (form := form_of(row)) and self.action != "reveal":
            self.text, self.faults = with_fields(self.text, row, form, self.fields, self.shown, self.make)

    @property
    def was_checked(self) -> bool:
        return self.checked == mark_of(self.text)


class Editing(ReadOnlyAdmin[DeadLetter]):
    """For the pages of letters: the address that edits a copy of one."""

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.edit_view)
        return [path("<path:object_id>/edit/", view, name="outbox_deadletter_edit"), *super().get_urls()]

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        right, role = lacking(request.user)
        if right:
            return self._show(request, None, {"right": right, "role": role}, status=403)
        row = self.get_object(request, unquote(object_id))
        if not self.has_view_permission(request, row):
            raise PermissionDenied
        if row is None:
            raise Http404
        form = EditForm(request)
        if form.action == "reveal":
            answer = reveal.answer(
                request, self.opts.label_lower, row.pk, f"Dead letter {row.pk}, to edit a copy", page_of(row)
            )
            if not form.has_text:
                return answer
        sight = reveal.sight_of(request.user, self.opts.label_lower, row.pk, page_of(row))
        if problem := _why_locked(row, form):
            return self._show(request, row, {"gone": problem, "text": form.text})
        if not sight.shown:
            return self._show(request, row, {"hidden": True, "form": form, "sight": sight})
        form.read(row)
        return self._answer(request, row, form, sight)

    def _answer(self, request: HttpRequest, row: DeadLetter, form: EditForm, sight: reveal.Visibility) -> HttpResponse:
        problem = ""
        if request.method == "POST" and form.action != "reveal":
            problem = fault_of_reason(form.reason, LEAST_REASON)
            if form.action == "requeue" and not problem and not form.faults and form.was_checked:
                try:
                    effect = requeue_copy(row.pk, form.text, form.seen, operator_of(request.user), form.reason)
                    return _done(request, row, effect)
                except Refusal as refusal:
                    row = DeadLetter.objects.get(pk=row.pk)
                    if row.status != DeadLetter.Status.OPEN:
                        return self._show(request, row, {"gone": str(refusal), "text": form.text})
                    return self._ask(request, row, form, sight, refused=str(refusal))
        changed = CHANGED if form.action == "requeue" and not form.was_checked else ""
        return self._ask(request, row, form, sight, problem, changed)

    def _ask(
        self,
        request: HttpRequest,
        row: DeadLetter,
        form: EditForm,
        sight: reveal.Visibility,
        problem: str = "",
        refused: str = "",
    ) -> HttpResponse:
        """The form with what is known of its text; nothing is written."""
        examined = examine(row, form.text, database_now())
        examined = replace(examined, faults=[*form.faults, *examined.faults])
        checked = form.action in ("check", "requeue")
        seen = PayloadRevision.objects.last_number(row.pk)
        if form.has_text and form.seen != seen:  # told once: then the form knows
            refused = FASTER.format(who_was_faster(row))
        context = {
            "sight": sight, "text": form.text, "form": form, "reason_fault": problem, "refused": refused, "found": examined,
            **_fields(row, form, examined, changed=form.has_text and (checked or form.text != text_of(row))),
            "checked": checked, "ready": checked and examined.may_go and not problem and form.seen == seen,
            "problem": _problem(examined, "" if not problem else "the reason is too short" if form.reason else "the reason is missing") if checked else "", "lines": humanize.plural(count_changes(examined.difference), "line", "lines"),
            "digest": mark_of(form.text), "seen": seen,
            "locked": what_is_locked(row), "key": bytes(row.key).decode("utf-8", "backslashreplace") if row.key else humanize.UNKNOWN,
        }  # fmt: skip
        return self._show(request, row, context)

    def _show(
        self, request: HttpRequest, row: DeadLetter | None, context: Mapping[str, object], status: int = 200
    ) -> HttpResponse:
        group = FailureGroup.objects.filter(pk=row.group_id).first() if row else None
        page = {**self.admin_site.each_context(request), "opts": self.opts, "lever": EDIT, "now": database_now()}
        about = {"row": row, "group": group, "title": f"Edit and requeue {row.about}" if row else "Edit and requeue"}
        return TemplateResponse(request, TEMPLATE, {**page, **about, **context}, status=status)


class ShownField(NamedTuple):
    """A field as the page shows it: its name in the form, what it says, and what is wrong with it."""

    field: FormField
    text: str
    mark: str
    faults: Sequence[Fault]


def _fields(row: DeadLetter, form: EditForm, examined: Examined, *, changed: bool) -> dict[str, object]:
    """The fields of a payload that is edited without its JSON, and the faults: nothing is wrong before the first change."""
    faults = examined.faults if changed else ()
    fields = payload_form.fields if (payload_form := form_of(row)) else ()
    shown = [
        ShownField(
            field, text := field_of(form.text, field.path), mark_of(text),
            [fault for fault in faults if f"$.{fault.path}" == field.path],
        )
        for field in fields
    ]  # fmt: skip
    said = [fault for one in shown for fault in one.faults]
    return {
        "payload_form": payload_form, "fields": shown, "faults": [fault for fault in faults if fault not in said],
        "as_it_came": [] if changed else [fault for fault in examined.faults if fault.text != SAME],
    }  # fmt: skip


def _why_locked(row: DeadLetter, form: EditForm) -> str:
    if row.status != DeadLetter.Status.OPEN:
        return FASTER.format(who_was_faster(row)) if form.has_text else who_was_faster(row)
    return why_not(row)


def _problem(examined: Examined, reason_fault: str) -> str:
    """`The copy cannot be requeued yet: 1 thing is wrong and the reason is missing.`; empty without one."""
    number = len(examined.faults)
    wrong = f"{humanize.plural(number, 'thing is', 'things are')} wrong" if number else ""
    if not number and not examined.may_go:
        wrong = "its flow would not take it"
    said = " and ".join(part for part in (wrong, reason_fault) if part)
    return f"The copy cannot be requeued yet: {said}." if said else ""


def _done(request: HttpRequest, row: DeadLetter, effect: Effect) -> HttpResponse:
    """Back to the letter, which says what became of the copy."""
    failed = effect.state == "failed_again"
    level = messages.WARNING if failed else messages.SUCCESS
    said = DONE[effect.state].format(masked_error(effect.evidence) if failed else effect.evidence)
    messages.add_message(request, level, said)
    return HttpResponseRedirect(page_of(row).removesuffix("edit/") + "change/")
