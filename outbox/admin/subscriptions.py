"""Admin pages of notifications: who is told of what, where and when, and what was said lately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, available_timezones

from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html

from config.admin import humanize
from config.admin.html import chip, clock_and_age
from config.admin.levers import Lever, LeverResult, Operator, operator_of
from config.admin.lists import Keyset
from config.admin.pages import LeverState, ReadOnlyAdmin, age_column
from config.database.clock import database_now
from config.letters import Refusal
from outbox.audit_log.actions import Subject, record
from outbox.notices.addresses import FILE, LONGEST_ADDRESS, look_at, seal, unseal
from outbox.notices.incidents import quiet_until
from outbox.notices.models import KINDS, MOST_OF_ONE, Notice, Subscription
from outbox.processes.overview import Liveness, sightings

if TYPE_CHECKING:
    pass

BETWEEN_TESTS = timedelta(seconds=30)
LATELY = 30  # notices on the page of one subscription
REFRESH_SECONDS = 2
DIGESTS = ((0, "At once"), (15, "Every 15 minutes"), (60, "Every hour"), (240, "Every 4 hours"), (1440, "Once a day"))
UNTOLD = ("waiting", "sending", "unsure")


# -- Levers --------------------------------------------------------------------------------------------------
def ask_for_test(keys: list[int], operator: Operator, reason: str) -> LeverResult:
    """A notice of its own for each, sent by the worker; two within half a minute are one too many."""
    now, asked, refused = database_now(), 0, []
    for row in Subscription.objects.filter(pk__in=keys):
        with transaction.atomic():
            earlier = Q(tested_at=None) | Q(tested_at__lte=now - BETWEEN_TESTS)
            if not Subscription.objects.filter(earlier, pk=row.pk).update(tested_at=now):
                refused.append(f"{row} had a test less than {BETWEEN_TESTS.seconds} seconds ago.")
                continue
            Notice.objects.create(
                subscription=row, phase=Notice.Phase.TEST, title="A test", due_at=now, created_at=now
            )  # fmt: skip
            record(operator, "test_subscription", f"Notification {row}", reason=reason, **about(row))
        asked += 1
    return LeverResult(asked, refused)


def remove(keys: list[int], operator: Operator, reason: str) -> int:
    """Nobody is told there any more; what waited to be said is gone with it."""
    removed = 0
    for row in Subscription.objects.filter(pk__in=keys):
        with transaction.atomic():
            record(
                operator,
                "remove_subscription",
                f"Notification {row}",
                reason=reason,
                before=state_of(row),
                **about(row),
            )
            removed += bool(Subscription.objects.filter(pk=row.pk).delete()[0])
    return removed


def about(row: Subscription) -> Subject:
    return {"subject_type": "outbox.subscription", "subject_id": row.pk}


def state_of(row: Subscription) -> dict[str, object]:
    """What the audit log keeps: never the address."""
    return {
        "name": row.name, "of": owner_of(row), "where": row.shown, "about": sorted(row.kinds), "urgency": row.urgency,
        "digest_minutes": row.digest_minutes, "quiet": quiet_hours(row), "wakes": row.wakes,
    }  # fmt: skip


subscription_lever = partial(Lever, nouns=("subscription", "subscriptions"), right="view_subscription")
TEST = subscription_lever(
    name="test", verb="Send a test", past="Asked for a test of", icon="play", keep="Not now",
    promise="A notice that says it is a test goes there within seconds.", detail="What came of it stands on its page.",
    act=ask_for_test, ready=lambda rows: rows, why_not=lambda row: "", least=0, question="Send a test to",
)  # fmt: skip
REMOVE = subscription_lever(
    name="remove", verb="Remove", past="Removed", icon="ban", keep="Keep it",
    promise="Nobody is told there any more.", detail="What waits to be said there is not said. Its address is forgotten.",
    act=remove, ready=lambda rows: rows, why_not=lambda row: "", harm=True,
)  # fmt: skip


# -- The form ------------------------------------------------------------------------------------------------
@dataclass
class SubscriptionForm:
    """What somebody typed, and what is wrong with it, by field. The address is never filled in."""

    may_manage: bool
    name: str = ""
    team: bool = False
    address: str = ""
    kinds: Sequence[str] = tuple(KINDS)
    urgency: str = Subscription.Urgency.SOON
    digest: str = "0"
    quiet_from: str = ""
    quiet_to: str = ""
    zone: str = "UTC"
    wakes: bool = True
    problems: dict[str, str] = field(default_factory=dict)
    row: Subscription | None = None

    @classmethod
    def of_row(cls, row: Subscription, may_manage: bool) -> SubscriptionForm:
        begin, end = (f"{at:%H:%M}" if at else "" for at in (row.quiet_from, row.quiet_to))
        return cls(
            may_manage, row.name, row.owner_id is None, "", row.kinds, row.urgency, str(row.digest_minutes), begin, end,
            row.zone, row.wakes, row=row,
        )  # fmt: skip

    def read(self, given: QueryDict) -> None:
        """Take over what was posted."""
        for name in ("name", "address", "urgency", "digest", "quiet_from", "quiet_to", "zone"):
            setattr(self, name, str(given.get(name, "")).strip())
        self.team = bool(given.get("team")) if self.may_manage else False
        self.kinds = [kind for kind in given.getlist("kinds") if kind in KINDS]
        self.wakes = bool(given.get("wakes"))

    def values(self) -> dict[str, object] | None:
        """The columns to write, or None and the problems. Looks at the address, which takes a second or two."""
        if not 1 <= len(self.name) <= 100:
            self.problems["name"] = "A name of 1 to 100 characters: it stands in lists."
        elif Subscription.objects.filter(name=self.name).exclude(pk=self.row.pk if self.row else 0).exists():
            self.problems["name"] = "There is one of this name already."
        if not self.kinds:
            self.problems["kinds"] = "Choose at least one."
        if self.urgency not in Subscription.Urgency.values:
            self.problems["urgency"] = "Choose one."
        if self.digest not in {str(minutes) for minutes, _words in DIGESTS}:
            self.problems["digest"] = "Choose one."
        if self.zone not in available_timezones():
            self.problems["zone"] = "That is no time zone: UTC, Europe/Berlin, America/New_York, Asia/Ho_Chi_Minh…"
        quiet = self._quiet()
        where = self._where()
        if self.problems:
            return None
        return {
            "name": self.name, "kinds": list(self.kinds), "urgency": self.urgency, "digest_minutes": int(self.digest),
            "quiet_from": quiet[0], "quiet_to": quiet[1], "zone": self.zone, "wakes": self.wakes, **where,
        }  # fmt: skip

    def _quiet(self) -> tuple[time | None, time | None]:
        if not self.quiet_from and not self.quiet_to:
            return None, None
        try:
            begin, end = (
                time.fromisoformat(text).replace(second=0, microsecond=0) for text in (self.quiet_from, self.quiet_to)
            )
        except ValueError:
            self.problems["quiet_from"] = "Both ends as 22:00, or neither."
            return None, None
        if begin == end:
            self.problems["quiet_from"] = "The two ends are the same: leave both empty, or write a span."
        return begin, end

    def _where(self) -> dict[str, str]:
        """The address as it is stored, and what of it is shown; nothing when it stays as it is."""
        address = self.address
        if not address and self.row:
            return {}
        try:
            if not address:
                raise Refusal("where should it go?")
            if len(address) > LONGEST_ADDRESS or "\n" in address:
                raise Refusal("that is too long for an address")
            if address.startswith(FILE) and not self.may_manage:
                raise Refusal("only who manages notifications may name a secret file")
            shown = look_at(unseal(address) if address.startswith(FILE) else address)
            return {
                "address": seal(address),
                "shown": f"{shown}, from {address}"[:200] if address.startswith(FILE) else shown[:200],
            }
        except Refusal as refusal:
            text = str(refusal)
            self.problems["address"] = f"{text[:1].upper()}{text[1:].rstrip('.')}."
            return {}


def quiet_hours(row: Subscription) -> str:
    """`22:00 to 07:00 Europe/Berlin`; empty when there are none."""
    if row.quiet_from is None or row.quiet_to is None:
        return ""
    return f"{row.quiet_from:%H:%M} to {row.quiet_to:%H:%M} {row.zone}"


def owner_of(row: Subscription) -> str:
    return operator_of(row.owner).name if row.owner else "a team"


# -- Pages ---------------------------------------------------------------------------------------------------
@admin.register(Subscription)
class SubscriptionAdmin(ReadOnlyAdmin[Subscription]):
    place = 57
    levers = (TEST, REMOVE)
    keyset = Keyset("name", descending=False)
    list_display = ["name", "state_shown", "where", "whose", "about_what", "when", "last_sent"]
    empty = (
        "Nobody is told yet",
        "Subscribe a channel of your team or yourself: a dead worker, a new failure group, a paused channel "
        "then comes to Slack, Teams, PagerDuty or your mail, once, and once more when it is over.",
    )
    last_sent = age_column("sent_at", "Last sent")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Subscription]:
        return Subscription.objects.seen_by(request.user).select_related("owner")

    def rows(self, request: HttpRequest, keys: Sequence[str]) -> list[Subscription]:
        """For levers: one's own, or all for whoever manages them."""
        return [row for row in super().rows(request, keys) if row.may_be_changed_by(request.user)]

    def offered(self, request: HttpRequest, states: list[LeverState], row: Subscription) -> list[LeverState]:
        return states if row.may_be_changed_by(request.user) else []

    @admin.display(description="State")
    def state_shown(self, row: Subscription) -> str:
        return chip(row.state)

    @admin.display(description="Where")
    def where(self, row: Subscription) -> str:
        return row.shown

    @admin.display(description="Whose")
    def whose(self, row: Subscription) -> str:
        return owner_of(row)

    @admin.display(description="About")
    def about_what(self, row: Subscription) -> str:
        names = [KINDS[kind][0] for kind in KINDS if kind in row.kinds]
        what = "Everything" if len(names) == len(KINDS) else ", ".join(names)
        return format_html('{}<span class="sw-second">{}</span>', what, Subscription.Urgency(row.urgency).label)

    @admin.display(description="When")
    def when(self, row: Subscription) -> str:
        digest = dict(DIGESTS).get(row.digest_minutes, f"Every {row.digest_minutes} minutes")
        quiet = quiet_hours(row)
        return format_html('{}<span class="sw-second">not {}</span>', digest, quiet) if quiet else digest

    def changelist_view(self, request: HttpRequest, extra_context: Mapping[str, object] | None = None) -> HttpResponse:
        return super().changelist_view(request, {"asleep": nobody_sends(database_now()), **(extra_context or {})})

    # -- Who adds and changes -----------------------------------------------------------------
    def get_urls(self) -> list[URLPattern]:
        edit = self.admin_site.admin_view(self.edit_view)
        return [path("<path:object_id>/edit/", edit, name="outbox_subscription_edit"), *super().get_urls()]

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Whoever may look may subscribe themselves."""
        return self.has_view_permission(request)

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: Mapping[str, object] | None = None
    ) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        manages = request.user.has_perm("outbox.manage_subscription")
        return self._ask(request, SubscriptionForm(manages, team=manages))

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, object_id)
        if row is None:
            raise Http404
        if not row.may_be_changed_by(request.user):
            raise PermissionDenied
        return self._ask(request, SubscriptionForm.of_row(row, request.user.has_perm("outbox.manage_subscription")))

    def _ask(self, request: HttpRequest, form: SubscriptionForm) -> HttpResponse:
        if request.method == "POST":
            form.read(request.POST)
            if (values := form.values()) and (row := save(form, values, request.user)):
                return HttpResponseRedirect(reverse("admin:outbox_subscription_change", args=[row.pk]))
        context = {
            **self.admin_site.each_context(request),
            "title": f"Change {form.row}" if form.row else "Tell somebody",
            "opts": self.opts,
            "form": form,
            "row": form.row,
            "kinds": [(kind, *words) for kind, words in KINDS.items()],
            "urgencies": Subscription.Urgency.choices,
            "digests": [(str(minutes), words) for minutes, words in DIGESTS],
        }
        return TemplateResponse(request, "admin/outbox/subscription/ask.html", context)

    def detail(self, request: HttpRequest, row: Subscription) -> dict[str, object]:
        now = database_now()
        notices = list(row.notices.select_related("incident").order_by("-pk")[:LATELY])
        test = next((notice for notice in notices if notice.phase == Notice.Phase.TEST), None)
        quiet_end = quiet_until(row, now)
        return {
            "title": row.name,
            "state": row.state,
            "may_change": row.may_be_changed_by(request.user),
            "notices": notices,
            "test": test if test and (row.tested_at is None or now - test.created_at < timedelta(minutes=10)) else None,
            "unfinished": test is not None and test.state in UNTOLD,
            "refresh_seconds": REFRESH_SECONDS,
            "asleep": nobody_sends(now),
            "quiet_end": quiet_end.astimezone(ZoneInfo(row.zone)) if quiet_end else None,
            "facts": [
                ("Where", row.shown),
                ("Whose", owner_of(row)),
                ("About", ", ".join(KINDS[kind][0] for kind in KINDS if kind in row.kinds)),
                ("Of these", Subscription.Urgency(row.urgency).label),
                ("When", dict(DIGESTS).get(row.digest_minutes, f"Every {row.digest_minutes} minutes")),
                ("Quiet hours", quiet_hours(row) or "none"),
                ("What cannot wait", "is told at once, also in quiet hours" if row.wakes else "waits as everything else"),
                ("Last sent", clock_and_age(row.sent_at, now)),
                ("Next try", clock_and_age(row.next_try_at, now) if row.failures else humanize.UNKNOWN),
            ],
        }  # fmt: skip


def nobody_sends(now: datetime) -> bool:
    """Whether no `notify_people` is known to run."""
    runs = (Liveness.RUNS, Liveness.HANGS)
    return not any(sighting.row.command == "notify_people" and sighting.state in runs for sighting in sightings(now))


def _has_room(owner: int) -> bool:
    """Whether this person may have another one; of two who ask at once the second sees the first."""
    get_user_model()._default_manager.select_for_update().get(pk=owner)
    return Subscription.objects.filter(owner=owner).count() < MOST_OF_ONE


def save(form: SubscriptionForm, values: dict[str, object], user: Any) -> Subscription | None:
    """Write it and the action about it; None, and a problem, when somebody took its name meanwhile."""
    now = database_now()
    try:
        with transaction.atomic():
            if form.row is None:
                owner = None if form.team else user
                if owner and not _has_room(owner.pk):
                    form.problems["name"] = (
                        f"You have {MOST_OF_ONE} already, and nobody can have more: change one of them."
                    )
                    return None
                row = Subscription.objects.create(owner=owner, created_at=now, **values)
                before, verb = None, "add_subscription"
            else:
                row, before, verb = form.row, state_of(form.row), "change_subscription"
                # A new address may be tried at once.
                fresh = (
                    {"failures": 0, "failing_since": None, "next_try_at": None, "error": ""}
                    if "address" in values
                    else {}
                )
                Subscription.objects.filter(pk=row.pk).update(**values, **fresh)
                row.refresh_from_db()
            after = {**state_of(row), "address": "new" if "address" in values else "kept"}
            record(operator_of(user), verb, f"Notification {row}", reason="", before=before, after=after, **about(row))
    except IntegrityError:
        form.problems["name"] = "There is one of this name already."
        return None
    return row
