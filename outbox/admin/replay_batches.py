"""Admin pages of replay batches: the list, one page from preview to proof, and its levers."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.text import capfirst

from config.admin.html import chip
from config.admin.levers import operator_of
from config.admin.read_only import ReadOnlyAdmin, age_column, number_column
from config.flows import Refusal
from outbox.admin.batches import page as batch_page
from outbox.admin.batches.form import DEEDS, RIGHT, lacking, may, posted_filter, role_for
from outbox.admin.failure_groups import TABS
from outbox.letters.closing import CODES
from outbox.letters.filters import VERBS
from outbox.replay.batches import requests
from outbox.replay.batches.models import ReplayBatch


@admin.register(ReplayBatch)
class ReplayBatchAdmin(ReadOnlyAdmin):
    place = 30
    tabs = TABS
    list_display = ["batch", "in_state", "count_pinned", "count_done", "count_failed", "who", "asked"]
    empty = ("No replay batch yet", "A batch requeues, discards, resolves or restores many letters at once.")
    count_pinned = number_column("pinned", "Letters")
    count_failed = number_column("failed_again", "Failed again")
    asked = age_column("created_at", "Asked for")

    @admin.display(description="Batch")
    def batch(self, row: ReplayBatch) -> str:
        line = '{} {}<span class="sw-second">{}</span>'
        return format_html(line, capfirst(row.verb), batch_page.words_of(row), row.reason or "no reason yet")

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
    def change_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """`?part=1` answers with what the refresh script lays over the page."""
        response = super().change_view(request, *args, **kwargs)
        if request.GET.get("part") and isinstance(response, TemplateResponse):
            response.template_name = "admin/outbox/replaybatch/part.html"
        return response

    def detail(self, request: HttpRequest, row: ReplayBatch) -> dict[str, Any]:
        allowed = may(request.user, row.verb)
        return {
            **batch_page.context(row),
            "allowed": allowed,
            "right": RIGHT,
            "role": role_for(row.verb),
            "problem": "",
            "typed": {},
            "codes": CODES,
        }

    # -- Asking for one, and its levers ---------------------------------------------------------
    def get_urls(self) -> list[Any]:
        wrap = self.admin_site.admin_view
        mine = [
            path("draft/", wrap(self.draft_view), name="outbox_replaybatch_draft"),
            path("<int:object_id>/deed/<slug:name>/", wrap(self.deed_view), name="outbox_replaybatch_deed"),
        ]
        return [*mine, *super().get_urls()]

    def draft_view(self, request: HttpRequest) -> HttpResponse:
        """POST pins whatever matches the filter, and leads to the preview; GET asks first.

        A lever of another page carries its filter in the address.
        """
        given = request.POST if "verb" in request.POST else request.GET
        verb = given.get("verb", "requeue")
        if verb not in VERBS:
            raise Http404
        if not self.has_view_permission(request) or not may(request.user, verb):
            raise PermissionDenied(lacking(request.user, verb))
        try:
            chosen = posted_filter(given)
            chosen.check()
            if request.method == "POST":
                found = requests.draft(verb, chosen, operator_of(request.user))
                return self._to(found.pk)
            problem = ""
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
        }
        status = 400 if problem and request.method == "POST" else 200
        return TemplateResponse(request, "admin/outbox/replaybatch/ask.html", context, status=status)

    def deed_view(self, request: HttpRequest, object_id: int, name: str) -> HttpResponse:
        """Pull a lever of a batch; whoever was slower is told who was faster."""
        batch = ReplayBatch.objects.filter(pk=object_id).first() if object_id < 2**63 else None
        if batch is None or name not in DEEDS:
            raise Http404
        if not self.has_view_permission(request, batch) or not may(request.user, batch.verb):
            raise PermissionDenied(lacking(request.user, batch.verb))
        if request.method != "POST":
            return self._to(object_id)
        try:
            messages.success(request, DEEDS[name](object_id, operator_of(request.user), request.POST))
        except Refusal as refusal:
            why = f"{capfirst(str(refusal)).rstrip('.')}."
            if name == "confirm" and ReplayBatch.objects.filter(pk=object_id, state="previewed").exists():
                return self._again(request, object_id, why)
            messages.warning(request, f"{why} Nothing was changed.")
        return self._to(object_id)

    def _again(self, request: HttpRequest, number: int, problem: str) -> HttpResponse:
        """The preview once more, with what was typed and what is wrong with it."""
        response: Any = self.change_view(request, str(number))
        response.context_data.update(problem=problem, typed=request.POST.dict())
        response.status_code = 400
        return response

    def _to(self, number: int) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:outbox_replaybatch_change", args=[number]))
