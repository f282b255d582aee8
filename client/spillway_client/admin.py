"""Promises in the admin: what waits, what was refused and why; never what a payload says."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from spillway_client.models import Promise, PromiseQuerySet


@admin.register(Promise)
class PromiseAdmin(admin.ModelAdmin):
    list_display = ("id", "state", "event_type", "aggregate", "channel", "attempts", "created_at", "sent_at", "error")
    list_filter = ("state",)
    search_fields = ("=aggregate", "=idempotency_key")
    show_full_result_count = False
    exclude = ("payload",)
    actions = ("promise_again",)

    @admin.action(description="Send refused promises again", permissions=["change"])
    def promise_again(self, request: HttpRequest, chosen: PromiseQuerySet) -> None:
        self.message_user(request, f"{chosen.promise_again()} will be sent again.")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [field.name for field in Promise._meta.fields if field.editable and field.name != "payload"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
