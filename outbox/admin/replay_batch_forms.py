"""What the pages of replay batches ask: which change an edit makes."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.safestring import mark_safe

from config.admin import humanize
from outbox.letters.edits import typed
from outbox.letters.field_changes import LONGEST_PATH, VERBS, FieldChange, change_of

MEANT_AS = {
    "text": mark_safe("as text: <code>12</code> is the text “12”"),
    "json": mark_safe(
        'as JSON: <code>12</code> is a number, <code>"12"</code> a text; also <code>true</code>, <code>null</code>, '
        "lists and objects"
    ),
}


class ValueField(forms.CharField):
    """Kept as it is typed, with its blanks."""

    def __init__(self, label: str) -> None:
        widget = forms.Textarea({"rows": 2, "spellcheck": "false"})
        super().__init__(label=label, required=False, strip=False, widget=widget)

    def to_python(self, value: Any) -> str:
        return typed(value or "")


class ChangeForm(forms.Form):
    """The change of one field; `made` is it, where nothing is wrong. How values are usually meant is chosen at first."""

    change = forms.CharField(
        label="One field", initial="set", empty_value="set", required=False, widget=forms.RadioSelect(choices=[*VERBS.items()]),
    )  # fmt: skip
    path = forms.CharField(
        label="Its path", required=False,
        widget=forms.TextInput({
            "class": "sw-mono", "list": "sw-paths", "maxlength": LONGEST_PATH, "required": True, "autofocus": True,
            "autocomplete": "off", "spellcheck": "false", "placeholder": "$.items[0].sku",
        }),
        help_text=mark_safe(
            "A JSON path to one value, as <code>$.to</code> or <code>$.items[0].sku</code>; <code>[-1]</code> is the "
            "last of a list."
        ),
    )  # fmt: skip
    old, new = ValueField("Old value"), ValueField("New value")
    other_type = forms.BooleanField(label="Also where its value has another type now", required=False)
    add = forms.BooleanField(label="Also where the field is missing", required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.made: FieldChange | None = None
        self.fields["as"] = forms.CharField(
            label="It is typed", initial="text", empty_value="text", required=False,
            widget=forms.RadioSelect(choices=[*MEANT_AS.items()]),
        )  # fmt: skip

    def clean(self) -> None:
        self.made, faults = change_of({**self.cleaned_data, "verb": self.cleaned_data["change"]})
        if faults:
            self.add_error(None, f"{humanize.plural(len(faults), 'thing is', 'things are')} wrong.")
        for name, fault in faults.items():
            self.add_error("change" if name == "verb" else name, fault)
