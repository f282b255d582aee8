"""Admin pages of accounts and roles, and their forms: only a superuser changes them, and each change of a right is an action."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from django import forms
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.forms import UserChangeForm, UsernameField
from django.contrib.auth.models import Group, Permission, User
from django.core.exceptions import PermissionDenied
from django.db import models, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.cache import add_never_cache_headers
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst

from config.admin.filters import list_without_strangers
from config.admin.forms import NamedMoments
from config.admin.levers import operator_of
from outbox.accounts.links import Welcome, free_name, lifetime, make_link, send_link
from outbox.accounts.roles import all_that, in_words, named, roles_in_words
from outbox.accounts.zones import choose
from outbox.audit_log.actions import record
from outbox.sign_in.people import is_of_provider

FIRST_ROLE = "Support"  # the least one that does something; chosen for a new person until another one is


NO_ADDRESS = {"invalid": "That is no e-mail address: one is like anna@example.com."}


class RolesField(forms.ModelMultipleChoiceField):
    """Roles as boxes to tick; each says what it allows as it is now."""

    def __init__(self) -> None:
        super().__init__(
            Group.objects.order_by("pk"),
            required=False,
            label="Roles",
            widget=forms.CheckboxSelectMultiple(attrs={"class": "sw-roles"}),
            help_text="A role lets its people log in here. Several add up.",
        )

    def label_from_instance(self, obj: Group) -> SafeString:
        if not hasattr(self, "words"):
            self.words = roles_in_words(Group.objects.prefetch_related("permissions__content_type"))
        return format_html('<b>{}</b> <span class="sw-quiet">{}</span>', obj.name, self.words.get(obj.pk, ""))


class NewPerson(forms.ModelForm):
    """Somebody new: without a password, until their link is used."""

    email = forms.EmailField(
        required=False,
        label="E-mail address",
        help_text="The link to set a password goes here.",
        error_messages=NO_ADDRESS,
    )
    groups = RolesField()

    class Meta:
        model = User
        fields = ("email", "first_name", "last_name", "username", "groups")
        field_classes = {"username": UsernameField}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["email"].widget.attrs["autofocus"] = True
        self.fields["username"].required = False
        self.fields["username"].help_text = "Empty: what stands before the @ of the address."
        self.fields["groups"].initial = list(Group.objects.filter(name=FIRST_ROLE))

    def clean_email(self) -> str:
        address: str = self.cleaned_data["email"]
        if address and (owner := User.objects.filter(email__iexact=address).first()):
            raise forms.ValidationError(f"The account {owner.get_username()} has this address.")
        return address

    def clean_username(self) -> str:
        name: str = self.cleaned_data["username"]
        if name and User.objects.filter(username__iexact=name).exists():
            raise forms.ValidationError("Somebody has this user name.")
        return name

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if not given.get("username") and "username" not in self.errors and "email" not in self.errors:
            if not given.get("email"):
                raise forms.ValidationError("Give an e-mail address, or a user name.")
            given["username"] = free_name(given["email"])
        self.instance.is_staff = bool(given.get("groups"))
        return given

    def save(self, commit: bool = True) -> User:
        self.instance.set_unusable_password()
        user: User = super().save(commit=commit)
        return user


class Person(UserChangeForm):
    """An account: a role gives what it needs to be of use."""

    groups = RolesField()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if email := self.fields.get("email"):
            email.error_messages.update(NO_ADDRESS)

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if given.get("groups"):
            given["is_staff"] = True
        return given


# -- Pages ---------------------------------------------------------------------------------------------------
State = dict[str, object]


class RecordedAdmin(NamedMoments):
    """Only superusers give rights, and what they give or take stands in the trail with what was before."""

    def state_of(self, row: Any) -> State:
        """What decides what this account or role may do."""
        raise NotImplementedError

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return list_without_strangers(self, request) or super().changelist_view(request, extra_context)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return _is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return _is_superuser(request)

    def save_model(self, request: HttpRequest, obj: models.Model, form: object, change: bool) -> None:
        if change:
            request.__dict__["rights_before"] = self.state_of(self.model._default_manager.get(pk=obj.pk))
        super().save_model(request, obj, form, change)

    def log_addition(self, request: HttpRequest, obj: models.Model, message: object) -> LogEntry:
        self._record(request, "add", obj, None, self._now(obj))
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: models.Model, message: object) -> LogEntry:
        after = self._now(obj)
        before = request.__dict__.pop("rights_before", after)
        # What is no right is a name, an address, or a password: that it was changed is said, its value is not.
        self._record(request, "change" if before == after else "change_rights", obj, before, after)
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: models.QuerySet) -> list[LogEntry]:
        for row in queryset:
            self._record(request, "delete", row, self.state_of(row), None)
        return super().log_deletions(request, queryset)

    def _now(self, obj: models.Model) -> State:
        return self.state_of(self.model._default_manager.get(pk=obj.pk))  # without what the row has cached

    def _record(
        self, request: HttpRequest, verb: str, row: models.Model, before: State | None, after: State | None
    ) -> None:
        noun = str(self.opts.verbose_name)
        record(
            operator_of(request.user), f"{verb}_{noun}" if verb != "change_rights" else verb, f"{noun.capitalize()} {row}",
            reason="", subject_type=self.opts.label_lower, subject_id=row.pk, before=before, after=after,
        )  # fmt: skip


def _is_superuser(request: HttpRequest) -> bool:
    return bool(request.user.is_active and request.user.is_superuser)


def _names(rights: models.QuerySet[Permission]) -> list[str]:
    return sorted(f"{app}.{codename}" for app, codename in rights.values_list("content_type__app_label", "codename"))


class RecordedUserAdmin(RecordedAdmin, UserAdmin):
    """Accounts. A new one gets a link by e-mail to set its password."""

    form, add_form = Person, NewPerson
    add_form_template = "admin/auth/user/add_form.html"
    list_display = ("username", "full_name", "roles", "may_log_in", "last_login")
    list_filter = ("groups", "is_active", "is_superuser")
    readonly_fields = ("may_do", "last_login", "date_joined")
    filter_horizontal = ("user_permissions",)
    add_fieldsets = ((None, {"fields": ("email", ("first_name", "last_name"), "groups", "username")}),)
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Person", {"fields": (("first_name", "last_name"), "email")}),
        ("What this person may do", {"fields": ("is_active", "groups", "may_do")}),
        (
            "Single rights, beside the roles",
            {
                "classes": ("collapse",),
                "fields": ("is_staff", "is_superuser", "user_permissions"),
                "description": "Rights that are in no role are given here. Each change is an operator action.",
            },
        ),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )

    def state_of(self, row: User) -> State:
        return {
            "active": row.is_active,
            "staff": row.is_staff,
            "superuser": row.is_superuser,
            "roles": sorted(row.groups.values_list("name", flat=True)),
            "rights": _names(row.user_permissions.all()),
        }

    def has_add_permission(self, request: HttpRequest) -> bool:
        """Where passwords are off a new account would open nothing."""
        return settings.PASSWORD_LOGIN and super().has_add_permission(request)

    # -- The list -------------------------------------------------------------------------------
    def get_queryset(self, request: HttpRequest) -> models.QuerySet[User]:
        return super().get_queryset(request).prefetch_related("groups")

    @admin.display(description="Name")
    def full_name(self, row: User) -> str:
        return row.get_full_name()

    @admin.display(description="Roles")
    def roles(self, row: User) -> str:
        names = ["Superuser"] if row.is_superuser else []
        return ", ".join([*names, *sorted(group.name for group in row.groups.all())]) or "none"

    @admin.display(description="May log in")
    def may_log_in(self, row: User) -> str:
        if not row.is_active:
            return "no, not active"
        if is_of_provider(row):
            return "at the identity provider" if settings.OIDC_ISSUER and row.is_staff else "no, without a role"
        if not settings.PASSWORD_LOGIN and row.get_username() != settings.BREAK_GLASS_ACCOUNT:
            return "no, passwords are off"
        if not row.has_usable_password():
            return "not before a password is set"
        return "yes" if row.is_staff else "no, without a role"

    @admin.display(description="All together")
    def may_do(self, row: User) -> str:
        return all_that(row)

    # -- Links to set a password ------------------------------------------------------------------
    def get_urls(self) -> list[URLPattern]:
        link = self.admin_site.admin_view(self.link_view)
        own = [
            path("welcome/<uidb64>/<token>/", Welcome.as_view(), name="auth_user_welcome"),
            path("zone/", self.admin_site.admin_view(choose), name="auth_user_zone"),
            path("<path:object_id>/link/", link, name="auth_user_link"),
        ]
        return [*own, *super().get_urls()]

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, object] | None = None
    ) -> HttpResponse:
        """The mail leaves after the account's transaction: a server that hangs holds no lock."""
        response = super().add_view(request, form_url, extra_context)
        person: User | None = request.__dict__.pop("new_person", None)
        return self._hand_over(request, person) if person else response

    def response_add(self, request: HttpRequest, obj: User, post_url_continue: str | None = None) -> HttpResponse:
        request.__dict__["new_person"] = obj
        return HttpResponse()  # of which `add_view` makes the page with the link

    def render_change_form(self, request: HttpRequest, context: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        person = kwargs.get("obj")
        context["of_provider"] = person is not None and is_of_provider(person)
        return super().render_change_form(request, context, *args, **kwargs)

    def link_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """POST: a new link for somebody who is there already."""
        person = self.get_object(request, unquote(object_id))
        if not self.has_change_permission(request, person) or not settings.PASSWORD_LOGIN:
            raise PermissionDenied
        if person is None or is_of_provider(person):
            raise Http404
        if request.method != "POST":
            return HttpResponseRedirect(reverse("admin:auth_user_change", args=[person.pk]))
        return self._hand_over(request, person)

    def _hand_over(self, request: HttpRequest, person: User) -> HttpResponse:
        """Send a link, and show it once, on this page: a message would be stored in a cookie or a session."""
        with transaction.atomic():
            link = make_link(request, person)
        context = {
            **self.admin_site.each_context(request),
            "title": f"A link for {person.get_full_name() or person.get_username()}",
            "opts": self.opts,
            "row": person,
            "link": link.address,
            "why_not": send_link(request, person, link),
            "lifetime": lifetime(),
            "may_do": all_that(person),
        }
        response = TemplateResponse(request, "admin/auth/user/link.html", context)
        add_never_cache_headers(response)
        return response


class Members(TypedDict):
    """What the list counts of a role."""

    members: int


if TYPE_CHECKING:
    from django_stubs_ext import WithAnnotations

    CountedGroup = WithAnnotations[Group, Members]


class RecordedGroupAdmin(RecordedAdmin, GroupAdmin):
    """Roles: groups of Django's."""

    list_display = ("name", "may_do", "people")
    readonly_fields = ("may_do",)
    fieldsets = (
        (None, {"fields": ("name", "may_do")}),
        ("Rights", {"classes": ("collapse",), "fields": ("permissions",)}),
    )

    def state_of(self, row: Group) -> State:
        return {"rights": _names(row.permissions.all())}

    def get_queryset(self, request: HttpRequest) -> models.QuerySet[Group]:
        rows = super().get_queryset(request).prefetch_related("permissions__content_type")
        return rows.annotate(members=models.Count("user", distinct=True))

    @admin.display(description="People may")
    def may_do(self, row: Group) -> str:
        return capfirst(in_words(named(row.permissions.all()))) if row.pk else ""

    @admin.display(description="People", ordering="members")
    def people(self, row: CountedGroup) -> str:
        return f"{row.members:,}"


admin.site.unregister([User, Group])
admin.site.register(User, RecordedUserAdmin)
admin.site.register(Group, RecordedGroupAdmin)
