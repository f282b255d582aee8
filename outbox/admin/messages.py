"""Admin page of outbox messages with their timeline, and the levers on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID

import msgspec
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import AbstractUser, AnonymousUser
from django.core.exceptions import PermissionDenied
from django.db import models
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import urlencode
from django.views.decorators.clickjacking import xframe_options_sameorigin

from config.admin import html as states
from config.admin import humanize
from config.admin.filters import EVERY, TIMES, ByUuid, Segments, WithinTime
from config.admin.html import chip, in_words, moment
from config.admin.levers import Lever, Operator, one_by_one, role_with
from config.admin.lists import Keyset
from config.admin.pages import KeysetChangeList, LeverState, ReadOnlyAdmin, age_column
from config.database.tables import missing_apps
from config.fields import is_uuid
from config.flows import mask_of
from outbox.admin import edit_form
from outbox.admin.dead_letters import REQUEUE
from outbox.audit_log.reveal import Revealing
from outbox.channels.models import ChannelState
from outbox.delivery import levers
from outbox.letters.models import DeadLetter
from outbox.messages.filters import MessageFilter
from outbox.messages.models import FLOW, DeliveryAttempt, IdempotencyKey, OutboxMessage, Resend


# -- The drawing of one message ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Stop:
    """One state in the drawing: where it stands, what is said of it, and whether the message is, or was, there."""

    name: str
    line: str
    x: int
    y: int
    width: int
    tone: str = ""  # of the state the message is in; empty elsewhere
    passed: bool = False


def timeline_of(row: OutboxMessage, attempts: Sequence[DeliveryAttempt], now: datetime) -> list[Stop]:
    """The six states, for a canvas of 820 by 176."""
    tone = states.STATES[row.state].tone
    here = "expired" if row.state == "cancelled" else row.state
    letter = "see its dead letter" if row.state == "dead_lettered" else "when tries are used up"
    stops = [
        ("pending", "Pending", _stop_pending(row, now), 0, 20, 196),
        ("processing", "Processing", _processing(row, attempts, now), 300, 20, 196),
        ("sent", "Sent", humanize.ago(row.sent_at, now) if row.sent_at else "not yet", 620, 20, 200),
        ("dead_lettered", "Dead letter", letter, 620, 76, 200),
        ("uncertain", "Uncertain", _stop_uncertain(row), 620, 132, 200),
        ("expired", "Expired or cancelled", _expired(row, now), 0, 104, 196),
    ]
    passed = {"pending"} | ({"processing"} if attempts else set())
    return [
        Stop(name, line, x, y, width, tone if state == here else "", state in passed)
        for state, name, line, x, y, width in stops
    ]


def _stop_pending(row: OutboxMessage, now: datetime) -> str:
    if row.state != "pending":
        return f"written {humanize.ago(row.created_at, now)}"
    return "due now" if row.available_at <= now else f"next try {humanize.ago(row.available_at, now)}"


def _processing(row: OutboxMessage, attempts: Sequence[DeliveryAttempt], now: datetime) -> str:
    if row.state == "processing" and row.lease_until:
        return f"lease ends {humanize.ago(row.lease_until, now)}"
    return humanize.plural(len(attempts), "try so far", "tries so far") if attempts else "not tried yet"


def _stop_uncertain(row: OutboxMessage) -> str:
    if row.state == "uncertain":
        return "no answer came back"
    return humanize.plural(row.times_uncertain, "time", "times") if row.times_uncertain else "never"


def _expired(row: OutboxMessage, now: datetime) -> str:
    if row.state in ("expired", "cancelled"):
        return row.get_state_display().lower()
    return f"would expire {humanize.ago(row.expires_at, now)}"


# -- Pages and levers ----------------------------------------------------------------------------------------
def why_not(row: OutboxMessage) -> str:
    """The same words for every lever, so that a page says them once."""
    return f"The message is {row.get_state_display().lower()}."


def _pending(rows: models.QuerySet) -> models.QuerySet:
    return rows.filter(state="pending")


def _uncertain(rows: models.QuerySet) -> models.QuerySet:
    return rows.filter(state="uncertain")


def _resend(keys: list[UUID], operator: Operator, reason: str, address: str) -> int:
    return len([levers.resend(key, operator, reason, address.strip()) for key in keys])


message_lever = partial(Lever, nouns=("message", "messages"), right="cancel_outboxmessage")
TRY_NOW = message_lever(
    name="try-now", verb="Try now", past="Asked for a try of", icon="play", keep="Let it wait",
    promise="It is due at once and leaves with the next round of a relay, if its channel is open.",
    detail="No attempt is given back. A message of the same aggregate that is still before it goes first.",
    act=levers.retry_now, ready=_pending, why_not=why_not, question="Try at once:",
)  # fmt: skip
IT_WAS_SENT = message_lever(
    name="it-was-sent", verb="Mark as sent", past="Marked as sent", icon="tick", keep="Leave it uncertain",
    promise="It counts as sent and is not sent again.",
    detail="Look at the provider first. The mark that it was once uncertain stays.",
    act=levers.it_was_sent, ready=_uncertain, why_not=why_not,
)  # fmt: skip
SEND_AGAIN = message_lever(
    name="send-again", verb="Send again", past="Sent again", icon="redo", keep="Leave it uncertain",
    promise="It leaves with the next round of a relay.",
    detail="If the provider did accept the first try and does not honour keys, somebody gets it twice.",
    act=levers.send_again, ready=_uncertain, why_not=why_not, right="send_again_outboxmessage",
)  # fmt: skip
RESEND = message_lever(
    name="resend", verb="Resend", past="Sent again", icon="redo", keep="Leave it", question="Send again",
    promise="Somebody gets the same once more.",
    detail="It is a message of its own, behind what its order still has to send. The first one stays as it is.",
    act=one_by_one(_resend), ready=lambda rows: rows.filter(state="sent"), why_not=why_not,
    text_label="To another address", text_help="Leave it empty to write to the same address as before.", right="resend_outboxmessage",
)  # fmt: skip
CANCEL = message_lever(
    name="cancel", verb="Cancel the message", past="Cancelled", icon="ban", keep="Leave it in",
    promise="It will never be sent.",
    detail="A relay that takes it in the meantime wins. The row stays and says who cancelled it and why.",
    act=levers.cancel, ready=_pending, why_not=why_not, harm=True, least=10, question="Cancel",
)  # fmt: skip
GIVE_UP = message_lever(
    name="give-up", verb="Make it a dead letter", past="Gave up", icon="octagon", keep="Leave it uncertain",
    promise="It becomes a dead letter, to be requeued or discarded there.",
    detail="Messages of the same aggregate that wait for it may go.",
    act=levers.give_up, ready=_uncertain, why_not=why_not, harm=True, least=10,
    question="Give up",
)  # fmt: skip


def state_of_message(row: OutboxMessage) -> str:
    """The word for a message: a key of `config.admin.html.STATES`."""
    return "retrying" if row.state == "pending" and row.attempts else row.state


MOST_FOUND = 20


def _letter_of(row: OutboxMessage) -> DeadLetter | None:
    """The newest letter that a message has left which is not sent any more."""
    if row.state not in ("dead_lettered", "expired"):
        return None
    letters = DeadLetter.objects.filter(business_key=row.aggregate, topic_id=str(row.pk))
    return letters.newest_first().defer("traceback", "headers").first()


def _lacking(user: AbstractUser | AnonymousUser) -> tuple[str, str]:
    """The right that this person lacks to send many again, and the least role that has it; empty where none is."""
    opts = OutboxMessage._meta
    if not user.has_perm("outbox.bulk_replay"):
        return "bulk requeue", role_with("outbox.bulk_replay")
    return ("", "") if RESEND.allowed(user, opts) else (RESEND.right_in_words(opts), RESEND.role(opts))


# A mail is somebody else's HTML: no script, no request, no link that leaves, in a frame of its own.
MAIL_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox; frame-ancestors 'self'"


class StateOfMessage(Segments):
    title = "state"
    parameter_name = "state"
    field = "state"
    states = "pending processing uncertain sent dead_lettered expired cancelled"
    choices_in_words = [("all", "All"), *in_words(states)]


@admin.register(OutboxMessage)
class OutboxMessageAdmin(Revealing, ReadOnlyAdmin[OutboxMessage]):
    place = 40
    levers = (TRY_NOW, IT_WAS_SENT, SEND_AGAIN, RESEND, CANCEL, GIVE_UP)
    list_display = ["what", "state_chip", "channel", "tries", "next_try", "written"]
    list_filter = [StateOfMessage]
    happened = ByUuid("written", "pk")
    begins = ["pk"]
    search_fields = ["pk"]
    search_help_text = "Paste a message id; a trace id; or an aggregate such as order:… for what it still has to send."
    empty = ("Nothing here", "A message appears with the change it tells of, in the same transaction.")
    written = age_column("created_at", "Written")

    def get_queryset(self, request: HttpRequest) -> models.QuerySet:
        return super().get_queryset(request).defer("payload")

    def changelist_view(self, request: HttpRequest, extra_context: Mapping[str, object] | None = None) -> HttpResponse:
        offered = self._of_list(request)
        return super().changelist_view(request, {"lever_states": offered, **(extra_context or {})})

    def _of_list(self, request: HttpRequest) -> list[LeverState]:
        """To send again all that the list shows, by a batch; none without a time range, and none on the hits of a search."""
        given = {name: request.GET.getlist(name) for name in TIMES if name in request.GET}
        within = WithinTime(request, given, self.model, self)
        state = request.GET.get("state", "")
        if within.chosen() == EVERY or state not in ("sent", "", EVERY):
            return []
        try:
            frame = within.frame()
        except ValueError:
            return []
        if frame.since is None:  # it would begin with the oldest
            return []
        ends = {"since": frame.since.isoformat(), "before": frame.until.isoformat() if frame.until else ""}
        chosen = MessageFilter(state="" if state == EVERY else state, **ends)
        url = f"{reverse('admin:outbox_replaybatch_draft')}?{urlencode([('verb', 'resend'), *chosen.fields()])}"
        right, role = _lacking(request.user)
        return [LeverState(replace(RESEND, verb="Resend all of these"), url, right=right, role=role)]

    def keyset_for(self, changelist: KeysetChangeList) -> Keyset:
        """What waits is read in the order in which it will be tried."""
        if changelist.params.get("state") == "pending":
            return Keyset("available_at", descending=False, back="Sooner", on="Later")
        return self.keyset

    @admin.display(description="Message")
    def what(self, row: OutboxMessage) -> str:
        return format_html('{}<span class="sw-second sw-code">{} {}</span>', row, row.event_type, row.aggregate)

    @admin.display(description="State")
    def state_chip(self, row: OutboxMessage) -> str:
        return chip(state_of_message(row))

    @admin.display(description="Tries")
    def tries(self, row: OutboxMessage) -> str:
        return format_html('<span class="sw-number">{}</span>', row.attempts)

    @admin.display(description="Next try")
    def next_try(self, row: OutboxMessage) -> str:
        if row.state != "pending":
            return humanize.UNKNOWN
        now = timezone.now()
        return moment(row.available_at, "now" if row.available_at <= now else humanize.ago(row.available_at, now))

    def find(self, key: str) -> Iterable[OutboxMessage]:
        rows = OutboxMessage.objects.defer("payload")
        if is_uuid(key) and (messages := list(rows.filter(pk=key))):
            return messages
        return [*rows.of_trace(key)[:MOST_FOUND], *rows.unfinished().filter(aggregate=key)[:MOST_FOUND]]

    def shortcut(self, request: HttpRequest, row: OutboxMessage) -> tuple[str, str]:
        """A sent message is sent again from the search, without its page."""
        if row.state != "sent" or not RESEND.allowed(request.user, self.opts):
            return "", ""
        return RESEND.verb, f"{self.lever_url(RESEND)}?{urlencode({'id': str(row.pk)})}"

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.body_view)
        return [path("<uuid:pk>/body/", view, name="outbox_outboxmessage_body"), *super().get_urls()]

    def body_view(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """The HTML of a mail, for the sandboxed frame on its page."""
        row = OutboxMessage.objects.filter(pk=pk).first()
        if not self.has_view_permission(request) or (row and not self.sight(request, row).shown):
            raise PermissionDenied
        html = mail_of(row).get("html") if row else None
        if not isinstance(html, str):
            raise Http404
        return _framed(html)

    def offered(self, request: HttpRequest, states: list[LeverState], row: OutboxMessage) -> list[LeverState]:
        """First to requeue its letter, as it is or with another address: nothing else sends what is not sent any more."""
        letter = row.__dict__["letter"] = _letter_of(row)
        if letter is None or letter.status != DeadLetter.Status.OPEN:
            return states
        opts, url = letter._meta, reverse("admin:outbox_deadletter_lever", args=[REQUEUE.name])
        right = "" if REQUEUE.allowed(request.user, opts) else REQUEUE.right_in_words(opts)
        role = REQUEUE.role(opts) if right else ""
        requeue = LeverState(REQUEUE, f"{url}?{urlencode({'id': str(letter.pk)})}", right=right, role=role)
        return [requeue, edit_form.state_of(request, letter, ""), *states]

    def detail(self, request: HttpRequest, row: OutboxMessage) -> dict[str, object]:
        now, sight, handled = timezone.now(), self.sight(request, row), row.channel in settings.HANDLERS
        attempts = list(DeliveryAttempt.objects.filter(message_id=row.pk).newest_first()[:MOST_FOUND])
        mail = mail_of(row) if sight.shown else {}
        # One that is kept longer stands as if it were written later, at most so late: there is no index of messages.
        edge = now - timedelta(days=settings.OUTBOX_IDEMPOTENCY_DAYS - 1)
        aged = Q(created_at__lte=edge) if row.created_at < edge else Q(created_at=row.created_at)
        key = IdempotencyKey.objects.filter(aged, scope="publish", message_id=row.pk)
        return {
            "title": str(row),
            "missing": None if handled else missing_apps(),
            "facts_of": f"{row.event_type} {row.aggregate}",
            "state": state_of_message(row),
            "attempts": attempts,
            "timeline": timeline_of(row, attempts, now),
            "next_try": row.available_at if row.state == "pending" and handled else None,
            "mail": mail if "subject" in mail else None,
            "body_url": reverse("admin:outbox_outboxmessage_body", args=[row.pk]) if "html" in mail else "",
            "payload": sight.payload(row.payload, *mask_of(FLOW)),
            "error": sight.error(row.error),
            "size": len(row.payload.encode()),
            "sight": sight,
            "copy_of": Resend.objects.filter(pk=row.pk).first(),
            "resent": list(Resend.objects.of([row.pk]).reverse()[:MOST_FOUND]),
            "key": key.values_list("key", flat=True).first(),
            "channel": ChannelState.objects.filter(pk=row.channel).first(),
            "letters": list(DeadLetter.objects.filter(business_key=row.aggregate).newest_first()[:MOST_FOUND]),
        }


@xframe_options_sameorigin
def _framed(html: str) -> HttpResponse:
    return HttpResponse(html, headers={"Content-Security-Policy": MAIL_POLICY, "Referrer-Policy": "no-referrer"})


def mail_of(row: OutboxMessage) -> dict[str, object]:
    """The payload of a mail; {} for what is none."""
    try:
        payload = msgspec.json.decode(row.payload)
    except msgspec.DecodeError:
        return {}
    return payload if isinstance(payload, dict) else {}
