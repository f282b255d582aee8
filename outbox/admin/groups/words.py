"""The form of a group's words: the note of whoever works on it, its ticket, and what to do about its cause."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from config.admin.levers import operator_of
from config.admin.roles import role_with
from config.flows import Refusal
from outbox.admin.groups.levers import MANAGE, TAKE
from outbox.groups.levers import WORDS, mark_of, write_words
from outbox.groups.models import FailureGroup

NEEDS = {"note": TAKE, "ticket": TAKE, "hint": MANAGE}
SCHEMES = ("https://", "http://")


def may_write(request: HttpRequest) -> set[str]:
    """The words that this user may change."""
    return {name for name, right in NEEDS.items() if request.user.has_perm(f"outbox.{right}")}


def ticket_url(ticket: str) -> str:
    """Where a ticket leads; empty for one that is only a number."""
    return ticket if ticket.startswith(SCHEMES) and not set(ticket) & set(" \t\n\"'<>") else ""


def words_page(request: HttpRequest, group: FailureGroup, context: dict[str, Any]) -> HttpResponse:
    """GET shows the form, POST writes what may be written; 403 without any right. What was typed is never lost."""
    allowed = may_write(request)
    given = request.POST if request.method == "POST" else None
    texts = {name: _typed(given, name) if given and name in allowed else getattr(group, name) for name in WORDS}
    problems = {name: _fault(name, text) for name, text in texts.items() if _fault(name, text)}
    theirs = {}
    if given is not None and allowed and not problems:
        try:
            write_words(
                group.pk, {name: texts[name] for name in allowed}, given.get("seen", ""), operator_of(request.user)
            )
        except Refusal as refusal:
            problems["changed"] = str(refusal)
            theirs = {name: getattr(group, name) for name in WORDS if getattr(group, name) != texts[name]}
        else:
            messages.success(request, "Saved.")
            return HttpResponseRedirect(group.url)
    shown = {
        **context, "title": f"Words about: {group}", "group": group, "texts": texts, "problems": problems,
        "theirs": theirs, "allowed": allowed, "seen": mark_of(group), "right": "" if allowed else "take groups",
        "role": role_with(f"outbox.{TAKE}"),
    }  # fmt: skip
    status = 200 if allowed else 403
    return TemplateResponse(request, "admin/outbox/failuregroup/words.html", shown, status=status)


def _typed(given: Any, name: str) -> str:
    # PostgreSQL stores no NUL in a text.
    return given.get(name, "").replace("\r\n", "\n").strip()


def _fault(name: str, text: str) -> str:
    longest = getattr(FailureGroup._meta.get_field(name), "max_length", 0)
    return f"At most {longest:,} characters; it has {len(text):,}." if len(text) > longest else ""
