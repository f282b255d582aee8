"""Operator actions: each lever writes one in the transaction of its effect; so does each refused POST."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TypedDict

from django.apps import apps
from django.db import models
from django.http import HttpRequest
from django.utils.encoding import force_str
from django.utils.text import capfirst

from config.admin.levers import Operator, operator_of
from config.database.clock import database_now
from config.telemetry.logs import RowIds, log_committed
from config.telemetry.redaction import masked_error, without_addresses
from outbox.audit_log.models import ActionSubject, OperatorAction

# -- The operator's trail: each lever inserts one action, in the transaction of its effect --------------------
MOST_SUBJECTS = 1000  # rows that find an action again; one about more is found from its batch


class Subject(TypedDict, total=False):
    """What an action is about, as `record` takes it."""

    subject_type: str
    subject_id: object
    subject_ids: Collection[object]
    url: str


def record(
    operator: Operator,
    verb: str,
    subject: str,
    *,
    reason: str,
    result: str = "done",
    rows: int = 1,
    url: str = "",
    detail: Mapping[str, object] | None = None,
    subject_type: str = "",
    subject_id: object = "",
    subject_ids: Collection[object] = (),
    before: object = None,
    after: object = None,
) -> OperatorAction:
    """Insert an operator action; call it in the transaction of the effect.

    `subject_type` is a model (`outbox.deadletter`); `subject_ids` are the keys of its rows where an action has several,
    of which the first 1,000 are kept. The result loses e-mail addresses: it may hold what a provider said.
    """
    if len(subject_ids) == 1:
        (subject_id,) = subject_ids
    action = OperatorAction.objects.create(
        actor_number=getattr(operator.user, "pk", None),
        actor_name=operator.name[:150],
        verb=verb,
        subject=subject[:300],
        subject_type=subject_type,
        subject_id=str(subject_id)[:150],
        url=url,
        reason=reason,
        result=_kept(force_str(result))[:200],
        rows=rows,
        detail=detail or {},
        before=before,
        after=after,
        created_at=database_now(),
    )
    about = {"verb": verb, "by": operator.name, "subject_type": subject_type, "rows": rows}
    log_committed("action_recorded", **about, ids=RowIds(subject_ids or [subject_id], subject_id=None))
    if len(subject_ids) > 1:
        kept = sorted({str(one)[:150] for one in list(subject_ids)[:MOST_SUBJECTS]})
        ActionSubject.objects.bulk_create(
            ActionSubject(subject_type=subject_type, subject_id=one, action=action.pk) for one in kept
        )
    return action


def _kept(result: str) -> str:
    """The error of an action that failed again may repeat values of a payload; nobody can mask them later."""
    return masked_error(result) if result.startswith("failed again") else without_addresses(result)


# -- Lists that somebody took away as a file ------------------------------------------------------------------
def record_export(
    sender: object,
    request: HttpRequest,
    model: type[models.Model],
    filters: dict[str, str],
    result: str,
    rows: int,
    **_: object,
) -> None:
    """A receiver of `list_exported`: one action when a file begins, one when it has ended."""
    opts = model._meta
    record(
        operator_of(request.user), "download", f"{capfirst(str(opts.verbose_name_plural))} as CSV", reason="", result=result,
        rows=rows, subject_type=opts.label_lower,
        detail={"filters": {name: without_addresses(value) for name, value in filters.items()}},  # one may be searched for
    )  # fmt: skip


# -- Refused POSTs: who asked for an action without its right is written down as who did it would be ------------
VERB = "refused"
MOST = 50  # rows named, characters of a key


def record_refusal(sender: object, request: HttpRequest, right: str, **_: object) -> None:
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
