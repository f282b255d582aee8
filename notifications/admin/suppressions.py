"""Admin page of suppressed addresses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from config.admin import humanize
from config.admin.keyset import Keyset, KeysetChangeList
from config.admin.levers import Lever, operator_of
from config.admin.read_only import ReadOnlyAdmin, age_column
from notifications.admin.deliveries import address_seen
from notifications.mail import recipients, suppression
from notifications.mail.suppression import Suppression
from outbox.trail.reveal import Revealing

LIFT = Lever(
    name="lift", verb="Lift", past="Lifted", icon="play",
    right="lift_suppression", keep="Leave it suppressed",
    nouns=("suppression", "suppressions"),
    promise="The address gets mail again, from the next one on.",
    detail="Mails that were refused meanwhile are dead letters: requeue those that are still wanted. "
    "Writing again to somebody who complained harms the sender's name with every provider.",
    act=suppression.lift, ready=lambda rows: rows.all(), why_not=lambda row: "", least=10,
)  # fmt: skip


class NewSuppression(forms.ModelForm):
    class Meta:
        model = Suppression
        fields = ["address", "note"]
        labels = {"note": "Reason"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["note"].required = True

    def clean_address(self) -> str:
        try:
            return recipients.check(self.cleaned_data["address"])
        except ValueError as error:
            raise forms.ValidationError(f"Not an address: {error}.") from error


@admin.register(Suppression)
class SuppressionAdmin(Revealing, ReadOnlyAdmin):
    place = 40
    levers = (LIFT,)
    form = NewSuppression
    list_display = ["to", "because", "since_when"]
    search_fields = ["pk"]
    search_help_text = "Paste an address. Capitals do not matter."
    empty = ("Nobody is suppressed", "Addresses that bounced for good or complained are listed here.")
    since_when = age_column("since", "Since")

    def words(self, row: Suppression) -> str:
        return f"{row}: {row.get_reason_display()}"

    def keyset_for(self, changelist: KeysetChangeList) -> Keyset:
        return Keyset("since", ties_opposed=True)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return admin.ModelAdmin.has_add_permission(self, request)

    @admin.display(description="Address")
    def to(self, row: Suppression) -> str:
        return str(row)

    @admin.display(description="Because")
    def because(self, row: Suppression) -> str:
        return row.get_reason_display().capitalize()

    def find(self, key: str) -> Iterable[Suppression]:
        return list(Suppression.objects.of([key])) if "@" in key else ()

    def detail(self, request: HttpRequest, row: Suppression) -> dict[str, Any]:
        sight = self.sight(request, row)
        facts = [
            ("Address", address_seen(sight, row.address)),
            ("Because", self.because(row)),
            ("Since", f"{row.since:%Y-%m-%d %H:%M:%S} UTC"),
            ("Note", sight.text(row.note) or humanize.UNKNOWN),  # a provider's words, which may name the address
        ]
        return {"facts": facts, "sight": sight}

    def save_model(self, request: HttpRequest, obj: Suppression, form: Any, change: bool) -> None:
        suppression.add([obj.address], operator_of(request.user), obj.note)
        obj.__dict__.update(Suppression.objects.of([obj.address]).get().__dict__)

    def response_add(
        self, request: HttpRequest, obj: Suppression, post_url_continue: str | None = None
    ) -> HttpResponse:
        messages.success(request, f"{obj} is suppressed.")
        return HttpResponseRedirect(reverse("admin:notifications_suppression_change", args=[obj.pk]))

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> None:  # type: ignore[override]
        """Nothing: the operator action records it, with its reason and without the address."""
