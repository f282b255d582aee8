"""Admin pages of subscriptions: who is told of what, where and when, and what was said lately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from django import forms
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import mark_safe
from django.utils.text import capfirst

from config.admin import humanize
from config.admin.forms import fault_of
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
    act=ask_for_test, least=0, question="Send a test to",
)  # fmt: skip
REMOVE = subscription_lever(
    name="remove", verb="Remove", past="Removed", icon="ban", keep="Keep it",
    promise="Nobody is told there any more.", detail="What waits to be said there is not said. Its address is forgotten.",
    act=remove, harm=True,
)  # fmt: skip


# -- The form ------------------------------------------------------------------------------------------------
COLUMNS = ("name", "kinds", "urgency", "digest_minutes", "quiet_from", "quiet_to", "zone", "wakes")
OF_ADDRESS = ("address", "shown", "failures", "failing_since", "next_try_at", "error")
NAMED = "A name of 1 to 100 characters: it stands in lists."
FULL = f"You have {MOST_OF_ONE} already, and nobody can have more: change one of them."
TAKEN = "There is one of this name already."
ONE = dict.fromkeys(("required", "invalid_choice"), "Choose one.")
BOTH = "Both ends as 22:00, or neither."
NO_ZONE = "That is no time zone: UTC, Europe/Berlin, America/New_York, Asia/Ho_Chi_Minh…"
WHERE = mark_safe(
    "A webhook as the service gives it (<code>https://hooks.slack.com/services/…</code>), or an "
    '<a href="https://github.com/caronc/apprise/wiki">address of apprise</a>: <code>slack://…</code>, '
    "<code>workflows://…</code> (Teams), <code>pagerduty://…</code>, <code>mailto://…</code>, <code>jsons://host/path</code>."
)
FILES = mark_safe(" Or <code>file:NAME</code>, a file in NOTIFY_SECRETS_DIR.")


class AddressInput(forms.PasswordInput):
    """Seen while it is typed, and never filled in."""

    input_type = "text"


class QuietField(forms.TimeField):
    """An end of the quiet hours, to the minute."""

    def __init__(self, **options: Any) -> None:
        widget = forms.TimeInput({"type": "time", "class": "sw-short"}, format="%H:%M")
        super().__init__(required=False, widget=widget, error_messages={"invalid": BOTH}, **options)


class SubscriptionForm(forms.ModelForm):
    """Who is told of what, where and when. `save` writes it."""

    name = forms.CharField(
        max_length=100, help_text="How it is called in lists: “On-call Slack”, “Anna’s phone”.",
        error_messages={"required": NAMED, "max_length": NAMED, "unique": TAKEN},
    )  # fmt: skip
    team = forms.BooleanField(
        required=False, label="A team’s, not only mine",
        help_text="A team’s is seen by everybody who sees subscriptions. Your own ends with your account.",
    )  # fmt: skip
    address = forms.CharField(
        max_length=LONGEST_ADDRESS, widget=AddressInput({"autocomplete": "off", "spellcheck": "false"}),
        error_messages={"required": "Where should it go?", "max_length": "That is too long for an address."},
    )  # fmt: skip
    kinds = forms.MultipleChoiceField(
        label="About", widget=forms.CheckboxSelectMultiple, initial=tuple(KINDS),
        choices=[(kind, format_html('{} <span class="sw-quiet">{}</span>', *words)) for kind, words in KINDS.items()],
        error_messages=dict.fromkeys(("required", "invalid_choice"), "Choose at least one."),
    )  # fmt: skip
    urgency = forms.ChoiceField(
        label="Of these", initial=Subscription.Urgency.SOON, error_messages=ONE,
        choices=[(value, capfirst(words)) for value, words in Subscription.Urgency.choices],
    )  # fmt: skip
    digest = forms.TypedChoiceField(
        label="When", choices=DIGESTS, coerce=int, error_messages=ONE, help_text="What comes together is one message."
    )
    quiet_from = QuietField()
    quiet_to = QuietField(help_text="What happens meanwhile is one message at their end. Empty: none.")
    zone = forms.CharField(
        label="Time zone", initial="UTC", widget=forms.TextInput({"class": "sw-short", "size": 24}),
        error_messages={"required": NO_ZONE},
        help_text="Of the quiet hours and of the times in a notice: UTC, Europe/Berlin, Asia/Ho_Chi_Minh.",
    )  # fmt: skip
    wakes = forms.BooleanField(
        required=False, initial=True, label="What cannot wait is told at once, also in quiet hours"
    )

    class Meta:
        model = Subscription
        fields = ("name", "address", "kinds", "urgency", "quiet_from", "quiet_to", "zone", "wakes")

    field_order = ("name", "team")

    def __init__(self, *args: Any, may_manage: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.may_manage, row = may_manage, self.instance
        self.fields["digest"].initial, self.fields["team"].initial = row.digest_minutes, may_manage
        if row.pk or not may_manage:
            del self.fields["team"]
        address = self.fields["address"]
        address.required = not row.pk
        kept = (
            f"Now {row.shown}. Leave it empty to keep it; the address itself is never shown again. " if row.pk else ""
        )
        address.help_text = format_html("{}{}{}", kept, WHERE, FILES if may_manage else "")

    def clean_address(self) -> str:
        """As it is stored. Looks at it, which takes a second or two."""
        address: str = self.cleaned_data["address"]
        if not address:
            return self.instance.address
        try:
            if "\n" in address:
                raise Refusal("that is too long for an address")
            if address.startswith(FILE) and not self.may_manage:
                raise Refusal("only who manages subscriptions may name a secret file")
            shown = look_at(unseal(address) if address.startswith(FILE) else address)
        except Refusal as refusal:
            raise fault_of(refusal) from None
        self.instance.shown = (f"{shown}, from {address}" if address.startswith(FILE) else shown)[:200]
        return seal(address)

    def clean_zone(self) -> str:
        zone: str = self.cleaned_data["zone"]
        if zone not in available_timezones():
            raise forms.ValidationError(NO_ZONE)
        return zone

    def clean(self) -> None:
        begin, end = (self.cleaned_data.get(name) for name in ("quiet_from", "quiet_to"))
        if not {"quiet_from", "quiet_to"} & self.errors.keys():
            if (begin is None) != (end is None):
                self.add_error("quiet_from", BOTH)
            elif begin is not None and begin == end:
                self.add_error("quiet_from", "The two ends are the same: leave both empty, or write a span.")
        self.instance.digest_minutes = self.cleaned_data.get("digest", self.instance.digest_minutes)


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
        return self._ask(request, None)

    def edit_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_object(request, object_id)
        if row is None:
            raise Http404
        if not row.may_be_changed_by(request.user):
            raise PermissionDenied
        return self._ask(request, row)

    def _ask(self, request: HttpRequest, row: Subscription | None) -> HttpResponse:
        manages = request.user.has_perm("outbox.manage_subscription")
        form = SubscriptionForm(request.POST or None, instance=copy(row), may_manage=manages)
        if form.is_valid() and save(form, row, request.user):
            return HttpResponseRedirect(reverse("admin:outbox_subscription_change", args=[form.instance.pk]))
        title = f"Change {row}" if row else "Tell somebody"
        context = {**self.admin_site.each_context(request), "title": title, "opts": self.opts, "form": form, "row": row}
        return TemplateResponse(request, "admin/outbox/subscription/ask.html", context)

    def detail(self, request: HttpRequest, row: Subscription) -> dict[str, object]:
        now = database_now()
        notices = list(row.notices.select_related("incident").order_by("-pk")[:LATELY])
        test = next((notice for notice in notices if notice.phase == Notice.Phase.TEST), None)
        unfinished, quiet_end = test is not None and test.state in UNTOLD, quiet_until(row, now)
        return {
            "now": now,
            "title": row.name,
            "state": row.state,
            "may_change": row.may_be_changed_by(request.user),
            "notices": notices,
            "test": test if test and (row.tested_at is None or now - test.created_at < timedelta(minutes=10)) else None,
            "unfinished": unfinished,
            "refresh_seconds": REFRESH_SECONDS if unfinished else 0,
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


def save(form: SubscriptionForm, was: Subscription | None, user: Any) -> bool:
    """Write it and the action about it; False, and why in the form, when it cannot be one more or its name was taken meanwhile."""
    row, new_address = form.instance, bool(form["address"].data)
    try:
        with transaction.atomic():
            if was is None:
                row.owner, row.created_at = None if form.cleaned_data.get("team") else user, database_now()
                if row.owner and not _has_room(user.pk):
                    form.add_error("name", FULL)
                    return False
                row.save()
            elif new_address:  # it may be tried at once
                row.failures, row.failing_since, row.next_try_at, row.error = 0, None, None, ""
                row.save(update_fields=[*COLUMNS, *OF_ADDRESS])
            else:  # what is not in the form others may have changed meanwhile
                row.save(update_fields=COLUMNS)
            after = {**state_of(row), "address": "new" if new_address else "kept"}
            verb, before = ("change_subscription", state_of(was)) if was else ("add_subscription", None)
            record(operator_of(user), verb, f"Notification {row}", reason="", before=before, after=after, **about(row))
    except IntegrityError:
        form.add_error("name", TAKEN)
        return False
    return True
