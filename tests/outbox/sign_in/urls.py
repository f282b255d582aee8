"""The routes as they are where OIDC_ISSUER was set at the start."""

from django.urls import include, path

from config.urls import urlpatterns as others

urlpatterns = [path("", include("outbox.sign_in.urls")), *others]
