"""The levers on a customer: what each promises, which right it needs, its page, the change that it makes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.contrib import messages
from django.db.models.options import Options
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from config.admin import humanize
from config.admin.levers import Lever, LeverResult, fault_of_reason, operator_of
from config.admin.pages import LeverState
from config.letters import Refusal
from throttler.admin import customer_text
from throttler.customers import changes
from throttler.customers.models import Customer
from throttler.customers.situation import Situation, has_row, ttl_of
from throttler.limits.rate import BadRates, parse_rates, rates_text

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractUser, AnonymousUser

# -- The levers on a customer --------------------------------------------------------------------------------
SECONDS = {"": 1, "s": 1, "min": 60, "h": 3600, "d": 86_400}
LENGTH = re.compile(r"([0-9]{1,9}) ?(s|min|h|d|)", re.ASCII)
NUMBER = re.compile(r"[0-9]{1,9}", re.ASCII)
Given = Mapping[str, str]


@dataclass(frozen=True)
class CustomerLever:
    """A lever, the verb of its operator action, what it asks beside a reason, and the change it makes of that."""

    lever: Lever
    verb: str
    change: Callable[[Given], changes.Change]
    why_not: Callable[[Situation], str] = lambda situation: ""
    asks: str = ""  # "rate", "life" or "weight": which fields the form has
    counts: bool = False  # the button says how many messages it is about


def _lever(name: str, right: str, verb: str, icon: str, **words: Any) -> Lever:
    return Lever(
        name=name, verb=verb, icon=icon, right=right, nouns=("message", "messages"),
        act=lambda keys, operator, reason: LeverResult(0, ["Open the customer's page."]),
        ready=lambda rows: rows, why_not=lambda row: "", **words,
    )  # fmt: skip


def _rate(given: Given) -> changes.Change:
    burst = given.get("burst", "").replace(",", "").strip()
    if burst and not NUMBER.fullmatch(burst):
        raise Refusal("burst: a whole number is needed, or nothing")
    return changes.set_rate(given.get("rates", "").strip(), int(burst) if burst else None)


def _life(given: Given) -> changes.Change:
    return changes.set_ttl(seconds_of(given.get("life", "")))


def _weight(given: Given) -> changes.Change:
    weight = given.get("weight", "").strip()
    if not NUMBER.fullmatch(weight):
        raise Refusal("weight: a whole number is needed")
    return changes.set_weight(int(weight))


def seconds_of(text: str) -> int | None:
    """`6 h`, `90 min`, `2d`, or seconds; nothing is the default. Raises Refusal."""
    text = text.strip().lower()
    if not text:
        return None
    length = LENGTH.fullmatch(text)
    if not length:
        raise Refusal(f"{text[:20]!r} is no length of time (6 h, 90 min, 2 d)")
    return int(length[1]) * SECONDS[length[2]]


def _nothing_waits(situation: Situation) -> str:
    return "" if situation.traffic.backlog else "Nothing waits."


RATE = CustomerLever(
    _lever(
        "rate", "rate_customer", "Change rate", "edit", past="Changed the rate of", keep="Leave it",
        promise="Every throttler has the new rate within 5 s.",
        detail="What waits leaves at it, in order. A smaller rate takes back no message that has left.",
    ), "set_rate", _rate, asks="rate",
)  # fmt: skip
LIFE = CustomerLever(
    _lever(
        "life", "rate_customer", "Let messages live longer", "clock", past="Changed the lifetime of messages of", keep="Leave it",
        promise="Every throttler has the new lifetime within 5 s.",
        detail="It counts for what waits already, too. What is older than a shorter one expires at once. A message that names its own lifetime keeps it.",
    ), "set_ttl", _life, asks="life",
)  # fmt: skip
WEIGHT = CustomerLever(
    _lever(
        "weight", "rate_customer", "Change weight", "edit", past="Changed the weight of", keep="Leave it",
        promise="Every throttler has the new weight within 5 s.",
        detail="It counts while customers wait for the rate of all: so many messages leave in one turn. Nobody goes over their own rate.",
    ), "set_weight", _weight, asks="weight",
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

    def answer(self, opts: Options) -> HttpResponse:
        """GET shows the form, POST carries it out. Without the right: 403, and the page names the right."""
        lever = self.one.lever
        if not lever.allowed(self.request.user, opts):
            return self.show(right=lever.right_in_words(opts), role=lever.role(opts), status=403)
        if self.request.method != "POST":
            return self.show()
        reason = self.given.get("reason", "").strip()
        if problem := fault_of_reason(reason, lever.least):
            return self.show(problem, at="reason")
        try:
            self._act(reason)
        except Refusal as refusal:
            return self.show(_sentence(str(refusal)), at=self.one.asks)
        messages.success(self.request, f"{lever.past} {self.situation.row.pk}. It takes effect within 5 s.")
        return HttpResponseRedirect(self.back)

    def _act(self, reason: str) -> None:
        row = self.situation.row
        change = self.one.change(self.given)
        if self.given.get("seen") != mark_of(row):
            raise Refusal(CHANGED.format(row.pk))
        seen = row if has_row(row) else None
        changes.change(row.pk, self.one.verb, change, operator_of(self.request.user), reason, seen)

    def show(self, problem: str = "", at: str = "", right: str = "", role: str = "", status: int = 200) -> HttpResponse:
        """The page; `problem` stands at the field `at`."""
        one, situation = self.one, self.situation
        context = {
            **self.context,
            "title": f"{one.lever.verb}: {situation.row.pk}",
            "lever": one.lever,
            "asks": one.asks,
            "label": label(one, situation),
            "row": situation.row,
            "new_row": not has_row(situation.row),
            "new": "new" in self.given,
            "seen": self.given.get("seen") or mark_of(situation.row),
            "waiting": situation.traffic.backlog,
            "why_not": "" if right else one.why_not(situation),
            "problem": problem,
            "at": at,
            "right": right,
            "role": role,
            "reason": self.given.get("reason", ""),
            "back": self.back,
            "now": situation.now,
            **self._fields(),
        }
        return TemplateResponse(self.request, "admin/throttler/customer/lever.html", context, status=status)

    def _fields(self) -> dict[str, object]:
        if self.one.asks == "rate":
            return self._rate_fields()
        if self.one.asks == "weight":
            return {"weight": self.given.get("weight", self.situation.row.weight), "most": changes.MOST_WEIGHT}
        return self._life_fields() if self.one.asks == "life" else {}

    def _rate_fields(self) -> dict[str, object]:
        row, rates = self.situation.row, self.given.get("rates", self.situation.row.rates)
        burst = self.given.get("burst", "" if row.burst is None else row.burst)
        tried = None
        if rates != row.rates and self.situation.owned:
            tried = self._tried(rates)
        return {"rates": rates, "burst": burst, "tried": tried}

    def _tried(self, text: str) -> customer_text.TriedRate | None:
        try:
            rates = parse_rates(text)
        except BadRates:
            return None
        return customer_text.tried_rate(self.situation.at(rates), rates_text(rates), self.situation.now)

    def _life_fields(self) -> dict[str, object]:
        row = self.situation.row
        own = "" if row.ttl_seconds is None else _short(row.ttl_seconds)
        return {
            "life": self.given.get("life", own),
            "life_now": humanize.length(ttl_of(row)),
            "longest": humanize.length(changes.longest_ttl()),
        }


def _short(seconds: int) -> str:
    """As `seconds_of` reads it back."""
    unit, name = next((size, name) for size, name in ((3600, "h"), (60, "min"), (1, "s")) if not seconds % size)
    return f"{seconds // unit} {name}"


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
