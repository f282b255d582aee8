"""The named views that stand above a list, and the form that saves the present one."""

from __future__ import annotations

from django import template
from django.template.context import Context

from config.admin.pages import KeysetChangeList
from outbox.accounts.models import SavedView
from outbox.admin.saved_views import KEEP, SHARE, address_of, known_part

register = template.Library()
MOST_SHOWN = 60


@register.inclusion_tag("admin/parts/views.html", takes_context=True)
def saved_views(context: Context, changelist: KeysetChangeList) -> dict[str, object]:
    """Own views of this list and those for everybody, and whether the present one can be saved."""
    request, page = context["request"], changelist.model_admin
    views = SavedView.objects.seen_by(request.user).of_list(page.opts.label_lower)[:MOST_SHOWN]
    query = known_part(page, request.GET.urlencode())
    return {
        "views": [(view, address_of(view), view.query == query) for view in views],
        "list": page.opts.label_lower,
        "query": query,
        "may_save": bool(query) and request.user.has_perm(KEEP),
        "may_share": request.user.has_perm(SHARE),
        "csrf_token": context.get("csrf_token"),
    }
