"""Template tags about rows of the outbox: what people did, what is in hand, and the saved views of a list."""

from __future__ import annotations

from django import template
from django.template.context import Context
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from config.admin import humanize
from config.admin.pages import KeysetChangeList
from config.telemetry.redaction import without_addresses
from outbox.accounts.models import SavedView
from outbox.admin.groups.filters import AT_WORK
from outbox.admin.saved_views import KEEP, SHARE, address_of, known_part
from outbox.audit_log.models import OperatorAction, verb_in_words
from outbox.groups.models import FailureGroup
from outbox.replay_batches.models import ReplayBatch

register = template.Library()

# -- What people did: the last few actions, the very last one in a sentence, those about a row --------------
RECENT = 6
MOST_DEEDS = 20


@register.inclusion_tag("admin/parts/actions.html", takes_context=True)
def recent_actions(context: Context) -> dict[str, object]:
    """Who did what and why, newest first; nothing for somebody who may not read the audit log."""
    user = context["user"]
    allowed = user.has_perm("outbox.view_operatoraction")
    actions = list(OperatorAction.objects.order_by("-created_at", "-pk")[:RECENT]) if allowed else []
    for action in actions:
        action.reason = without_addresses(action.reason)
    return {"allowed": allowed, "actions": actions, "now": context["now"]}


@register.simple_tag(takes_context=True)
def last_action(context: Context) -> str:
    """`The last thing was handled 42 min ago by M. Okafor: Released WH-42.`"""
    action = OperatorAction.objects.order_by("-created_at", "-pk").first()
    if action is None or not context["user"].has_perm("outbox.view_operatoraction"):
        return ""
    link = format_html('<a href="{}">{}: {}</a>', action.url, verb_in_words(action.verb), action.subject)
    plain = f"{verb_in_words(action.verb)}: {action.subject}"
    age = humanize.ago(action.created_at, context["now"])
    return format_html("The last thing was done {} by {}: {}.", age, action.actor_name, link if action.url else plain)


@register.filter
def verb(action: OperatorAction) -> str:
    return verb_in_words(action.verb)


@register.inclusion_tag("admin/parts/actions_done.html", takes_context=True)
def actions_done(context: Context) -> dict[str, object]:
    """What people did to the row of this page, newest first; who sees the row may see that."""
    row = context["row"]
    actions = list(OperatorAction.objects.about(row._meta.label_lower, row.pk, MOST_DEEDS)[:MOST_DEEDS])
    for action in actions:
        action.reason = without_addresses(action.reason)
    allowed = context["user"].has_perm("outbox.view_operatoraction")
    return {"done": actions, "allowed": allowed, "now": context["now"]}


# -- The line on home that says what is in hand --------------------------------------------------------------
def _said(batch: ReplayBatch) -> str:
    share = f" at {batch.percent:.0f} %" if batch.state != "holding" else ", nothing has left yet"
    return f"{batch} is {batch.state}{share}."


@register.simple_tag
def in_hand() -> SafeString | str:
    """`Replay batch 7 is running at 62 %. 8 groups have an owner.`; nothing when nothing is."""
    batches = ReplayBatch.objects.filter(state__in=AT_WORK).order_by("-pk")[:3]
    page = "admin:outbox_replaybatch_change"
    said = [(reverse(page, args=[batch.pk]), _said(batch)) for batch in batches]
    owned = FailureGroup.objects.needing_work(timezone.now()).owned().count()
    if owned:
        words = f"{humanize.plural(owned, 'group has', 'groups have')} an owner."
        said.append((f"{reverse('admin:outbox_failuregroup_changelist')}?state=acknowledged", words))
    lines = format_html_join(" ", '<a href="{}">{}</a>', said)
    return format_html('<p class="sw-in-hand sw-quiet">In hand: {}</p>', lines) if said else ""


# -- The named views that stand above a list, and the form that saves the present one ------------------------
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
