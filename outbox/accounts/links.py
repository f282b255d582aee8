"""Links by which a person sets the password: made for somebody, sent to them, and used once."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.tokens import default_token_generator
from django.contrib.auth.views import PasswordResetConfirmView
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import reverse, reverse_lazy
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode
from django.utils.module_loading import import_string

from config.admin import humanize
from config.admin.levers import Operator, operator_of
from outbox.audit_log.actions import record
from outbox.audit_log.models import OperatorAction

NO_ADDRESS = "the account has no e-mail address"
OVERTAKEN = "a newer link was made, or the account was changed, before it could leave"
ACCOUNT = "auth.user"  # what the actions are about
TEXT = """Hello {name},

{by} has made an account for you at {host}.

Set a password and you are logged in:
{link}

Your user name is {username}. The link works once, for {days}. If it is over, ask {by} for a new one.
"""


class PasswordLink(NamedTuple):
    """Where somebody sets a password, and the operator action of whoever made it."""

    address: str
    action: int


def make_link(request: HttpRequest, user: User) -> PasswordLink:
    """An address that lets whoever has it set the password of `user`; an operator action, because it opens the account.

    It ends after PASSWORD_RESET_TIMEOUT, with the first password set, and with the next login.
    """
    operator = operator_of(request.user)
    made = record(operator, "make_password_link", f"User {user}", reason="", subject_type=ACCOUNT, subject_id=user.pk)
    parts = [urlsafe_base64_encode(force_bytes(user.pk)), default_token_generator.make_token(user)]
    return PasswordLink(request.build_absolute_uri(reverse("admin:auth_user_welcome", args=parts)), made.pk)


def send_link(request: HttpRequest, user: User, link: PasswordLink) -> str:
    """Send it now, through what `ACCOUNT_MAIL` names, and never store it; why it was not sent, or empty.

    A process that was frozen since the link was made sends nothing that somebody has made good in the meantime.
    """
    if not user.email:
        return NO_ADDRESS
    text = TEXT.format(
        name=user.get_full_name() or user.get_username(),
        by=operator_of(request.user).name,
        host=request.get_host(),
        link=link.address,
        username=user.get_username(),
        days=lifetime(),
    )
    subject = f"Your account at {request.get_host()}"
    send = import_string(settings.ACCOUNT_MAIL)
    if OperatorAction.objects.about(ACCOUNT, user.pk, most=1).filter(pk__gt=link.action).exists():
        return OVERTAKEN
    fault: str = send(user.email, subject, text)
    return fault


def lifetime() -> str:
    """How long a link works, in words."""
    return humanize.length(settings.PASSWORD_RESET_TIMEOUT, coarse=True)


def free_name(address: str) -> str:
    """A user name that nobody has: what stands before the @, with a number where that is taken."""
    name = re.sub(r"[^\w.+-]", "", address.partition("@")[0].lower())[:100] or "user"
    taken = {
        known.lower() for known in User.objects.filter(username__istartswith=name).values_list("username", flat=True)
    }
    return next(
        free for free in (name, *(f"{name}{number}" for number in range(2, len(taken) + 3))) if free not in taken
    )


class Welcome(PasswordResetConfirmView):
    """Where the link leads: two fields, and the person is logged in."""

    template_name = "admin/auth/user/welcome.html"
    post_reset_login = True
    post_reset_login_backend = "django.contrib.auth.backends.ModelBackend"
    success_url = reverse_lazy("admin:index")

    def dispatch(self, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not settings.PASSWORD_LOGIN:
            raise Http404
        return super().dispatch(*args, **kwargs)

    def form_valid(self, form: SetPasswordForm) -> HttpResponse:
        person = Operator(form.user.get_full_name() or form.user.get_username(), form.user)
        with transaction.atomic():
            record(
                person, "set_password", f"User {form.user}",
                reason="", subject_type=ACCOUNT, subject_id=form.user.pk,
            )  # fmt: skip
            return super().form_valid(form)
