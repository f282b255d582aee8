"""Routes of the log-in at the identity provider; only where OIDC_ISSUER is set."""

from django.urls import path

from outbox.sign_in import views

urlpatterns = [
    path("oidc/authenticate/", views.log_in, name="oidc_authentication_init"),
    path("oidc/callback/", views.callback, name="oidc_authentication_callback"),
    path("admin/logout/", views.log_out, name="sign_out"),
]
