"""Forms of an account: a new person by e-mail, and what roles an account has."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import UserChangeForm, UsernameField
from django.contrib.auth.models import Group, User
from django.utils.html import format_html
from django.utils.safestring import SafeString

from outbox.accounts.links import free_name
from outbox.accounts.rights import roles_in_words

FIRST_ROLE = "Support"  # the least one that does something; chosen for a new person until another one is


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

    email = forms.EmailField(required=False, label="E-mail address", help_text="The link to set a password goes here.")
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

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = super().clean() or self.cleaned_data
        if given.get("groups"):
            given["is_staff"] = True
        return given
