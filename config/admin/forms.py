"""Fields of what pages ask for: each calls the rule that commands and the API call, and says a refusal as a sentence.

`admin/parts/fields.html` draws the fields of a form, `admin/parts/faults.html` says above it what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from django.utils.text import capfirst

from config.admin.levers import Lever, fault_of_reason
from config.letters import Refusal

LONGEST_REASON = 1000  # characters


def fault_of(refusal: Refusal) -> forms.ValidationError:
    """What a rule refused, as a sentence."""
    return forms.ValidationError(f"{capfirst(str(refusal)).rstrip('.')}.")


class NamedMoments(admin.ModelAdmin):
    """A page whose forms may ask for a moment: Django labels its two fields with words beside them only."""

    def formfield_for_dbfield(self, db_field: models.Field, request: HttpRequest, **kwargs: object) -> Any:
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if isinstance(db_field, models.DateTimeField) and field:
            for widget, part in zip(field.widget.widgets, ("date", "time"), strict=True):
                widget.attrs["aria-label"] = f"{capfirst(str(db_field.verbose_name))}, {part}"
        return field


class CheckedField(forms.CharField):
    """A text that `read` makes a value of; what it refuses, an empty text too, is the error."""

    def __init__(self, read: Callable[[str], object], **options: Any) -> None:
        super().__init__(**options)
        self.read = read

    def validate(self, value: str) -> None:
        """`read` knows what may be empty."""

    def clean(self, value: str) -> object:
        text = super().clean(value)
        try:
            return self.read(text)
        except Refusal as refusal:
            raise fault_of(refusal) from None


class WholeField(forms.IntegerField):
    """A whole number, with or without commas."""

    def __init__(self, *, label: str, attrs: Mapping[str, object] | None = None, **options: Any) -> None:
        words = dict.fromkeys(("required", "invalid"), f"{label}: a whole number is needed.")
        widget = forms.TextInput({"inputmode": "numeric", "class": "sw-short", "autocomplete": "off", **(attrs or {})})
        super().__init__(label=label, error_messages=words, widget=widget, **options)

    def to_python(self, value: Any) -> int | None:
        return super().to_python(value.replace(",", "") if value else value)


class ReasonField(forms.CharField):
    """Why somebody does it, of `least` characters."""

    def __init__(
        self, least: int, help_text: str = "Kept with your name and the time in the operator actions."
    ) -> None:
        self.least = least
        enough = f"At least {least} characters. " if least > 1 else ""
        widget = forms.Textarea({"rows": 2})
        super().__init__(max_length=LONGEST_REASON, widget=widget, required=bool(least), help_text=enough + help_text)

    def validate(self, value: str) -> None:
        if fault := fault_of_reason(value, self.least):
            raise forms.ValidationError(fault)


class LeverForm(forms.Form):
    """Why somebody pulls a lever, and what the lever asks beside that."""

    def __init__(self, lever: Lever, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data)
        if lever.choices:
            options, none = lever.options, f"{lever.choices_label}: choose one."
            self.fields["choice"] = forms.ChoiceField(
                label=lever.choices_label, choices=options, required="" not in dict(options),
                error_messages={"required": none, "invalid_choice": none},
            )  # fmt: skip
        if lever.text_label:
            self.fields["text"] = forms.CharField(
                label=lever.text_label, required=False, max_length=320, help_text=lever.text_help
            )
        self.fields["reason"] = ReasonField(lever.least)
        next(iter(self.fields.values())).widget.attrs["autofocus"] = True

    @property
    def choice(self) -> str:
        """What was chosen or written; valid forms only."""
        return str(self.cleaned_data.get("text", self.cleaned_data.get("choice", "")))
