"""The operator's trail as home shows it: the last few deeds, and the very last one in a sentence."""

from __future__ import annotations

from django import template
from django.template.context import Context
from django.utils.html import format_html

from config.admin import humanize
from config.telemetry.redaction import without_addresses
from outbox.audit_log.models import OperatorAction, verb_in_words

register = template.Library()

RECENT = 6
MOST_DEEDS = 20


@register.inclusion_tag("admin/parts/actions.html", takes_context=True)
def recent_actions(context: Context) -> dict[str, object]:
    """Who did what and why, newest first; nothing for somebody who may not read the trail."""
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
    deed = format_html('<a href="{}">{}: {}</a>', action.url, verb_in_words(action.verb), action.subject)
    plain = f"{verb_in_words(action.verb)}: {action.subject}"
    age = humanize.ago(action.created_at, context["now"])
    return format_html("The last thing was done {} by {}: {}.", age, action.actor_name, deed if action.url else plain)


@register.filter
def verb(action: OperatorAction) -> str:
    return verb_in_words(action.verb)


@register.inclusion_tag("admin/parts/deeds.html", takes_context=True)
def deeds(context: Context) -> dict[str, object]:
    """What people did to the row of this page, newest first; who sees the row may see that."""
    row = context["row"]
    found = list(OperatorAction.objects.about(row._meta.label_lower, row.pk, MOST_DEEDS)[:MOST_DEEDS])
    for action in found:
        action.reason = without_addresses(action.reason)
    allowed = context["user"].has_perm("outbox.view_operatoraction")
    return {"deeds": found, "allowed": allowed, "now": context["now"]}
