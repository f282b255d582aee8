"""Admin page of channels, and the levers on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from django.contrib import admin
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html

from config.admin import humanize
from config.admin.html import chip, moment
from config.admin.levers import Lever, Operator
from config.admin.lists import Keyset
from config.admin.pages import ReadOnlyAdmin
from config.telemetry.redaction import masked_error
from outbox.channels import permits
from outbox.channels.handlers import silent_there
from outbox.channels.models import ChannelState
from outbox.messages.models import DeliveryAttempt, OutboxMessage


def _each(lever: Callable[[str, Operator, str], bool]) -> Callable[[list[str], Operator, str], int]:
    return lambda keys, operator, reason: sum(lever(key, operator, reason) for key in keys)


channel_lever = partial(Lever, nouns=("channel", "channels"), right="pause_channel")
RESUME = channel_lever(
    name="resume", verb="Resume", past="Resumed", icon="play", keep="Leave it paused",
    promise="What waits is sent at once, at the channel's rate.",
    detail="Its breaker is reset, too. If refusals alike paused it, their letters are requeued. If nobody answers, it opens again "
    "by itself; no attempt is used up.",
    act=_each(permits.resume), ready=lambda rows: rows.filter(paused=True),
    why_not=lambda row: f"{row.name} is not paused.",
)  # fmt: skip
PAUSE = channel_lever(
    name="pause", verb="Pause", past="Paused", icon="pause", keep="Let it run",
    promise="Nothing more leaves through it until somebody resumes it.",
    detail="A message that is on its way this second still goes out. The others wait, and may expire.",
    act=_each(permits.pause), ready=lambda rows: rows.filter(paused=False),
    why_not=lambda row: f"{row.name} is paused already.", harm=True, least=10,
)  # fmt: skip


def state_of_channel(row: ChannelState, now: datetime) -> str:
    """The word for a channel: a key of `config.admin.html.STATES`."""
    if row.paused:
        return "paused"
    if row.breaker == ChannelState.Breaker.OPEN:
        return "breaker"
    return "told_to_wait" if row.wait_until and row.wait_until > now else "healthy"


MOST_FOUND = 20
MOST_COUNTED = 10_000


@admin.register(ChannelState)
class ChannelStateAdmin(ReadOnlyAdmin[ChannelState]):
    place = 45
    levers = (RESUME, PAUSE)
    keyset = Keyset("name", descending=False)
    list_display = ["name", "state_chip", "waiting", "since", "why"]
    empty = ("No channel has sent anything yet", "A channel appears here when it sends for the first time.")

    @admin.display(description="State")
    def state_chip(self, row: ChannelState) -> str:
        return chip(state_of_channel(row, timezone.now()))

    @admin.display(description="Waiting")
    def waiting(self, row: ChannelState) -> str:
        return format_html('<span class="sw-number">{}</span>', waiting_in(row))

    @admin.display(description="Since")
    def since(self, row: ChannelState) -> str:
        when = row.paused_at if row.paused else row.opened_at
        return moment(when, humanize.ago(when, timezone.now()))

    @admin.display(description="Why")
    def why(self, row: ChannelState) -> str:
        failing = silent_there(row.name, masked_error(row.last_error)) if row.failures else ""
        return row.pause_reason if row.paused else failing

    def find(self, key: str) -> Iterable[ChannelState]:
        return list(ChannelState.objects.filter(pk=key))

    def detail(self, request: HttpRequest, row: ChannelState) -> dict[str, object]:
        now = timezone.now()
        errors = DeliveryAttempt.objects.filter(channel=row.pk).exclude(outcome__in=["sent", ""]).order_by("-id")
        oldest = OutboxMessage.objects.due(row.pk, now).values_list("available_at", flat=True).first()
        return {
            "title": f"Channel {row.name}",
            "state": state_of_channel(row, now),
            "silent_there": silent_there(row.name, masked_error(row.last_error)),
            "waiting": waiting_in(row),
            "errors": list(errors[:MOST_FOUND]) if row.failures or row.paused or row.wait_until else [],
            "facts": [
                ("Oldest due", humanize.ago(oldest, now) if oldest else "nothing is due"),
                ("Outages in a row", f"{row.failures:,}"),
                ("Next probe", humanize.ago(row.probe_at, now) if row.probe_at else humanize.UNKNOWN),
                ("Told to wait until", humanize.ago(row.wait_until, now) if row.wait_until else humanize.UNKNOWN),
                ("Comes back on resume", _owed(row)),
                ("Newest by change capture", humanize.ago(row.cdc_seen_at, now)),
            ],
        }


def _owed(row: ChannelState) -> str:
    """The letters of the refusals alike that paused it."""
    if row.requeue_since is None:
        return "no letter"
    return f"letters of this cause since {humanize.stamp(row.requeue_since)}"


def waiting_in(row: ChannelState) -> str:
    """Pending messages of a channel; counting stops somewhere."""
    pending = OutboxMessage.objects.in_channel(row.pk).pending().order_by()[: MOST_COUNTED + 1]
    return humanize.bounded(pending.count(), MOST_COUNTED)
