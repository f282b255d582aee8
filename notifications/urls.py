"""Routes of this app: the API and its documents."""

from __future__ import annotations

from django.urls import path

from notifications.api.site import api
from notifications.webhooks.views import receive

urlpatterns = [path("webhooks/email/<slug:esp>", receive), path("", api.urls)]
