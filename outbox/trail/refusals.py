"""Refused POSTs: who asked for a deed without its right is written down as who did it would be."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.http import HttpRequest

from config.admin.levers import operator_of
from outbox.trail.audit import record

VERB = "refused"
MOST = 50  # rows named, characters of a key


def record_refusal(sender: Any, request: HttpRequest, right: str, **_: Any) -> None:
    """A receiver of `post_refused`: one action, about the rows that were named."""
    match = request.resolver_match
    url_name, kwargs = (match.url_name or "", match.kwargs) if match else ("", {})
    kind, words = _model(url_name)
    asked = str(kwargs.get("name") or url_name.rpartition("_")[2])
    named = request.POST.getlist("id") or [kwargs[name] for name in ("object_id", "id", "pk") if name in kwargs]
    keys = [str(key)[:MOST] for key in named[:MOST]]
    record(
        operator_of(request.user), VERB, f"{asked.replace('-', ' ').capitalize()} on {words}",
        reason=request.POST.get("reason", "")[:1000],
        result=f"needs the right “{right}”" if right else "without the right", rows=len(keys),
        detail={"asked": asked}, subject_type=kind, subject_ids=list(dict.fromkeys(keys)),
    )  # fmt: skip


def _model(url_name: str) -> tuple[str, str]:
    """(`outbox.deadletter`, `dead letters`) of `outbox_deadletter_lever`."""
    app, _, rest = url_name.partition("_")
    try:
        model = apps.get_model(app, rest.partition("_")[0])
    except LookupError:
        return "", "a page"
    return model._meta.label_lower, str(model._meta.verbose_name_plural)
