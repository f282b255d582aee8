"""The levers on a customer: what each promises, which right it needs, its page, the change that it makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.db.models.options import Options
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from config.admin import humanize
from config.admin.forms import CheckedField, LeverForm, WholeField
from config.admin.levers import Lever, operator_of
from config.admin.pages import LeverState
from config.letters import Refusal
from throttler.admin import customer_text
from throttler.customers import changes
from throttler.customers.models import Customer
from throttler.customers.situation import Situation, has_row, ttl_of
from throttler.limits.rate import LONGEST_TEXT, BadRates, parse_rates, rates_text

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractUser, AnonymousUser

# -- What the levers ask -------------------------------------------------------------------------------------
SECONDS = {"": 1, "s": 1, "min": 60, "h": 3600, "d": 86_400}
LENGTH = re.compile(r"([0-9]{1,9}) ?(s|min|h|d|)", re.ASCII)
Given = Mapping[str, Any]  # by field, as it was read


def seconds_of(text: str) -> int | None:
    """`6 h`, `90 min`, `2d`, or seconds; nothing is the default. Raises Refusal."""
    text = text.strip().lower()
    if not text:
        return None
    length = LENGTH.fullmatch(text)
    if not length:
        raise Refusal(f"{text[:20]!r} is no length of time (6 h, 90 min, 2 d)")
    return int(length[1]) * SECONDS[length[2]]


def _short(seconds: int) -> str:
    """As `seconds_of` reads it back."""
    unit, name = next((size, name) for size, name in ((3600, "h"), (60, "min"), (1, "s")) if not seconds % size)
    return f"{seconds // unit} {name}"


def _sentence(refusal: Refusal) -> str:
    """As it is, for it may begin with the id of a customer."""
    text = str(refusal)
    return text if text.endswith(".") else f"{text}."


class CustomerForm(LeverForm):
    """Most levers ask why, and no more; the forms of the others have fields of their own."""

    asks: str | None = None  # the field of which the change is made

    def __init__(self, one: CustomerLever, row: Customer, request: HttpRequest) -> None:
        super().__init__(one.lever, request.POST if request.method == "POST" else None)
        self.initial = {**self.now(row), **request.GET.dict()}

    def now(self, row: Customer) -> Given:
        """What the fields say of this row; their help may, too."""
        return {}


class RateForm(CustomerForm):
    asks = "rates"
    rates = forms.CharField(
        label="Rate", max_length=LONGEST_TEXT, required=False,
        widget=forms.TextInput({"required": True, "spellcheck": "false", "autocomplete": "off"}),
    )  # fmt: skip
    burst = WholeField(
        label="Burst", required=False, help_text="Of the shortest window. Empty: one second’s worth, at least 1."
    )

    def now(self, row: Customer) -> Given:
        windows = "Windows of s, min, hour or day, all of which hold: 20/s;10000/day."
        self.fields["rates"].help_text = f"{windows} Now {row.rates}. 0/s is hold."
        return {"rates": row.rates, "burst": row.burst}


class LifeForm(CustomerForm):
    asks = "life"
    life = CheckedField(
        seconds_of, label="Messages live", max_length=20, required=False,
        widget=forms.TextInput({"class": "sw-short", "autocomplete": "off"}),
    )  # fmt: skip

    def now(self, row: Customer) -> Given:
        most, now = humanize.length(changes.longest_ttl()), humanize.length(ttl_of(row))
        self.fields["life"].help_text = f"Such as 6 h, 90 min, or 2 d; at most {most}. Empty: the default. Now {now}."
        return {"life": "" if row.ttl_seconds is None else _short(row.ttl_seconds)}


class WeightForm(CustomerForm):
    asks = "weight"
    weight = WholeField(label="Weight")

    def now(self, row: Customer) -> Given:
        self.fields["weight"].help_text = f"1 to {changes.MOST_WEIGHT}, beside the others’. Now {row.weight}."
        return {"weight": row.weight}


# -- The levers on a customer --------------------------------------------------------------------------------
@dataclass(frozen=True)
class CustomerLever:
    """A lever, the verb of its operator action, what it asks beside a reason, and the change it makes of that."""

    lever: Lever
    verb: str
    change: Callable[[Given], changes.Change]
    why_not: Callable[[Situation], str] = lambda situation: ""
    form: type[CustomerForm] = CustomerForm
    counts: bool = False  # the button says how many messages it is about


def _lever(name: str, right: str, verb: str, icon: str, **words: Any) -> Lever:
    return Lever(name, verb, icon, right, ("message", "messages"), **words)


def _nothing_waits(situation: Situation) -> str:
    return "" if situation.traffic.backlog else "Nothing waits."


RATE = CustomerLever(
    _lever(
        "rate", "rate_customer", "Change rate", "edit", past="Changed the rate of", keep="Leave it",
        promise="Every throttler has the new rate within 5 s.",
        detail="What waits leaves at it, in order. A smaller rate takes back no message that has left.",
    ), "set_rate", lambda given: changes.set_rate(given["rates"], given["burst"]), form=RateForm,
)  # fmt: skip
LIFE = CustomerLever(
    _lever(
        "life", "rate_customer", "Let messages live longer", "clock", past="Changed the lifetime of messages of", keep="Leave it",
        promise="Every throttler has the new lifetime within 5 s.",
        detail="It counts for what waits already, too. What is older than a shorter one expires at once. A message that names its own lifetime keeps it.",
    ), "set_ttl", lambda given: changes.set_ttl(given["life"]), form=LifeForm,
)  # fmt: skip
WEIGHT = CustomerLever(
    _lever(
        "weight", "rate_customer", "Change weight", "edit", past="Changed the weight of", keep="Leave it",
        promise="Every throttler has the new weight within 5 s.",
        detail="It counts while customers wait for the rate of all: so many messages leave in one turn. Nobody goes over their own rate.",
    ), "set_weight", lambda given: changes.set_weight(given["weight"]), form=WeightForm,
)  # fmt: skip
HOLD = CustomerLever(
    _lever(
        "hold", "hold_customer", "Hold", "pause", past="Held", keep="Let it run",
        promise="Nothing leaves until somebody resumes.",
        detail="What arrives is buffered, and what waits still expires at its time.",
    ), "hold", lambda given: changes.hold,
)  # fmt: skip
RESUME = CustomerLever(
    _lever(
        "resume", "hold_customer", "Resume", "play", past="Resumed", keep="Keep holding",
        promise="What waits leaves at the customer's rate, in order.",
        detail="Every throttler knows it within 5 s.",
    ), "resume", lambda given: changes.resume,
)  # fmt: skip
PURGE = CustomerLever(
    _lever(
        "purge", "purge_customer", "Drop the backlog", "ban", past="Dropped what waited for", keep="Keep it",
        promise="What waits now goes to notifications-expired and is never sent.",
        detail="There is no way back. What arrives after this moment is not touched.",
        harm=True, least=10,
    ), "purge", lambda given: changes.purge, _nothing_waits, counts=True,
)  # fmt: skip
LEVERS: Sequence[CustomerLever] = (RATE, LIFE, WEIGHT, HOLD, RESUME, PURGE)


def offered(row: Customer) -> list[CustomerLever]:
    """The levers of a page, the first one first: hold or resume, never both; the weight where there is a rate of all."""
    weight = [WEIGHT] if settings.THROTTLER_OUTPUT_RATE or row.weight != 1 else []
    return [RESUME, RATE, LIFE, *weight, PURGE] if row.held else [RATE, LIFE, *weight, HOLD, PURGE]


def lever_states(
    situation: Situation, user: AbstractUser | AnonymousUser, opts: Options, url_of: Callable[[CustomerLever], str]
) -> list[LeverState]:
    """As the page draws them: ready, without the right, or impossible for a reason."""
    result = []
    for one in offered(situation.row):
        right = "" if one.lever.allowed(user, opts) else one.lever.right_in_words(opts)
        locked = "" if right else one.why_not(situation)
        role = one.lever.role(opts) if right else ""
        result.append(LeverState(one.lever, url_of(one), locked=locked, right=right, role=role))
    return result


def label(one: CustomerLever, situation: Situation) -> str:
    """The words of the button."""
    if not one.counts:
        return one.lever.verb
    return f"Drop {humanize.plural(situation.traffic.backlog, 'message', 'messages')}"


def mark_of(row: Customer) -> str:
    """What the form carries of the row that the operator looked at."""
    return row.updated_at.isoformat() if has_row(row) else "none"


# -- The page of one lever -----------------------------------------------------------------------------------
CHANGED = "Somebody else changed {} while this form was open. Look at it, then try again."


class CustomerLeverPage:
    """One lever on one customer; `context` is what every admin page has, `back` the customer's page."""

    def __init__(
        self, request: HttpRequest, one: CustomerLever, situation: Situation, context: dict[str, object], back: str
    ) -> None:
        self.request, self.one, self.situation, self.context, self.back = request, one, situation, context, back
        self.given = request.POST if request.method == "POST" else request.GET
        self.form = one.form(one, situation.row, request)

    def answer(self, opts: Options) -> HttpResponse:
        """GET shows the form, POST carries it out. Without the right: 403, and the page names the right."""
        lever = self.one.lever
        if not lever.allowed(self.request.user, opts):
            return self.show(right=lever.right_in_words(opts), role=lever.role(opts), status=403)
        if not self.form.is_valid() or not self._act():
            return self.show()
        messages.success(self.request, f"{lever.past} {self.situation.row.pk}. It takes effect within 5 s.")
        return HttpResponseRedirect(self.back)

    def _act(self) -> bool:
        """Whether it was done; why not stands in the form."""
        row, form, at = self.situation.row, self.form, self.form.asks
        try:
            change, at = self.one.change(form.cleaned_data), None
            if self.given.get("seen") != mark_of(row):
                raise Refusal(CHANGED.format(row.pk))
            seen = row if has_row(row) else None
            operator = operator_of(self.request.user)
            changes.change(row.pk, self.one.verb, change, operator, form.cleaned_data["reason"], seen)
        except Refusal as refusal:
            form.add_error(at, _sentence(refusal))
        return not form.errors

    def show(self, right: str = "", role: str = "", status: int = 200) -> HttpResponse:
        one, situation = self.one, self.situation
        context = {
            **self.context,
            "title": f"{one.lever.verb}: {situation.row.pk}",
            "lever": one.lever,
            "form": self.form,
            "label": label(one, situation),
            "row": situation.row,
            "new_row": not has_row(situation.row),
            "new": "new" in self.given,
            "seen": self.given.get("seen") or mark_of(situation.row),
            "waiting": situation.traffic.backlog,
            "why_not": "" if right else one.why_not(situation),
            "right": right,
            "role": role,
            "back": self.back,
            "now": situation.now,
            "tried": self._tried() if one is RATE else None,
        }
        return TemplateResponse(self.request, "admin/throttler/customer/lever.html", context, status=status)

    def _tried(self) -> customer_text.TriedRate | None:
        """What the rate in the form would do, where it is another one than now."""
        text, situation = self.form["rates"].value(), self.situation
        if text == situation.row.rates or not situation.owned:
            return None
        try:
            rates = parse_rates(text)
        except BadRates:
            return None
        return customer_text.tried_rate(situation.at(rates), rates_text(rates), situation.now)
