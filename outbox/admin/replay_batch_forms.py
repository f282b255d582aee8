"""What the pages of replay batches ask: which change an edit makes, and how a previewed batch runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django import forms
from django.utils.safestring import mark_safe

from config.admin import humanize
from config.admin.forms import CheckedField, ReasonField
from config.admin.levers import Operator
from config.letters import Refusal
from outbox.letters.edits import typed
from outbox.letters.field_changes import LONGEST_PATH, VERBS, FieldChange, change_of
from outbox.letters.transitions import CODES
from outbox.replay_batches import requests
from outbox.replay_batches.models import ReplayBatch

Number = TypeVar("Number", int, float)


# -- An edit -------------------------------------------------------------------------------------------------
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


# -- A previewed batch ---------------------------------------------------------------------------------------
def rate_of(text: str) -> float | None:
    """A rate as it was typed; None for nothing. Raises Refusal."""
    rate = _number("rate", text, float)
    requests.check_pace(rate, None)
    return rate


def _canary_of(text: str) -> int | None:
    canary = _number("canary", text, int)
    requests.check_pace(None, canary)
    return canary


def _number(name: str, text: str, kind: Callable[[str], Number]) -> Number | None:
    try:
        return kind(text.replace(",", "")) if text else None
    except (ValueError, OverflowError):
        raise Refusal(f"{name} {text[:50]!r} is no number") from None


def _short(mode: str) -> forms.TextInput:
    return forms.TextInput({"class": "sw-short", "inputmode": mode, "autocomplete": "off"})


class ConfirmForm(forms.Form):
    """How a previewed batch runs, and why; without the fields that its verb or its size do not need."""

    rate = CheckedField(rate_of, required=False, widget=_short("decimal"))
    canary = CheckedField(_canary_of, required=False, widget=_short("numeric"))
    code = forms.CharField(required=False, max_length=30, widget=forms.Select(choices=[*CODES.items()]))
    typed = forms.CharField(label="Type the count", required=False, widget=_short("numeric"))

    def __init__(self, batch: ReplayBatch, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(data)
        self.batch, fields, many = batch, self.fields, batch.nouns[1].capitalize()
        rate = "" if batch.rate is None else f"{batch.rate:g}"
        self.initial = {"rate": rate, "canary": batch.canary_size, "reason": batch.reason}
        pace = "It climbs from 1 within 30 s" if batch.rate else "Empty is as fast as it goes"
        fields["rate"].help_text = f"{many} a second. {pace}, and can be changed while it runs."
        fields["canary"].help_text = f"{many} that go first. The rest waits until all are good. One failure stops it."
        fields["reason"] = ReasonField(requests.LEAST[batch.verb], "Kept with the batch and in the operator actions.")
        more = batch.eligible > requests.TYPED_ABOVE
        fields["typed"].help_text = f"To confirm more than {requests.TYPED_ABOVE:,}."
        for name, asked in (("canary", batch.sends), ("code", batch.verb == "discard"), ("typed", more)):
            if not asked:
                del fields[name]
        self.order_fields(["rate", "canary", "code", "reason", "typed"])

    def confirm(self, operator: Operator) -> str:
        """Start the hold; what was done. Raises Refusal: a wrong count, an old preview, somebody faster."""
        batch = requests.confirm(self.batch.pk, operator, **{"reason": "", **self.cleaned_data})
        one, many = batch.nouns
        return f"{humanize.plural(batch.eligible, f'{one} waits', f'{many} wait')} for the end of the hold. Nothing has left yet."
