"""The line on home that says what is in hand."""

from __future__ import annotations

from django import template
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from config.admin import humanize
from outbox.admin.groups.filters import AT_WORK
from outbox.groups.models import FailureGroup
from outbox.replay_batches.models import ReplayBatch

register = template.Library()


def _said(batch: ReplayBatch) -> str:
    share = f" at {batch.percent:.0f} %" if batch.state != "holding" else ", nothing has left yet"
    return f"{batch} is {batch.state}{share}."


@register.simple_tag
def in_hand() -> SafeString | str:
    """`Replay batch 7 is running at 62 %. 8 groups have an owner.`; nothing when nothing is."""
    batches = ReplayBatch.objects.filter(state__in=AT_WORK).order_by("-pk")[:3]
    page = "admin:outbox_replaybatch_change"
    said = [(reverse(page, args=[one.pk]), _said(one)) for one in batches]
    owned = FailureGroup.objects.needing_work(timezone.now()).owned().count()
    if owned:
        words = f"{humanize.plural(owned, 'group has', 'groups have')} an owner."
        said.append((f"{reverse('admin:outbox_failuregroup_changelist')}?state=acknowledged", words))
    lines = format_html_join(" ", '<a href="{}">{}</a>', said)
    return format_html('<p class="sw-in-hand sw-quiet">In hand: {}</p>', lines) if said else ""
