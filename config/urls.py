"""Every route of the web process."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from config.admin.site import register_pages
from config.environment.extensions import extensions
from config.probes import endpoints

register_pages()
urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    # Before the admin's own: whoever logs out does so at the provider, too.
    *([path("", include("outbox.sign_in.urls"))] if settings.OIDC_ISSUER else []),
    path("admin/", admin.site.urls),
    path("healthz", endpoints.healthz),
    path("readyz", endpoints.readyz),
    path("metrics", endpoints.metrics),
    path("", include("notifications.urls")),
    *(path(f"{app.label}/", include(app.urls)) for app in extensions() if app.urls),
]
