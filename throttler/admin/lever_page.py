"""The page of one lever on one customer: what it will do, the fields it asks for, the reason; and the deed."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from config.admin import humanize
from config.admin.levers import fault_of_reason, operator_of
from config.flows import Refusal
from throttler.admin import figures
from throttler.admin.levers import CustomerLever, label, mark_of
from throttler.admin.situation import Situation, has_row, ttl_of
from throttler.customers import changes
from throttler.limits.rate import BadRates, parse_rates, rates_text

CHANGED = "Somebody else changed {} while this form was open. Look at it, then try again."


class CustomerLeverPage:
    """One lever on one customer; `context` is what every admin page has, `back` the customer's page."""

    def __init__(
        self, request: HttpRequest, one: CustomerLever, found: Situation, context: dict[str, Any], back: str
    ) -> None:
        self.request, self.one, self.found, self.context, self.back = request, one, found, context, back
        self.given = request.POST if request.method == "POST" else request.GET

    def answer(self, opts: Any) -> HttpResponse:
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
        messages.success(self.request, f"{lever.past} {self.found.row.pk}. It takes effect within 5 s.")
        return HttpResponseRedirect(self.back)

    def _act(self, reason: str) -> None:
        row = self.found.row
        change = self.one.change(self.given)
        if self.given.get("seen") != mark_of(row):
            raise Refusal(CHANGED.format(row.pk))
        seen = row if has_row(row) else None
        changes.change(row.pk, self.one.verb, change, operator_of(self.request.user), reason, seen)

    def show(self, problem: str = "", at: str = "", right: str = "", role: str = "", status: int = 200) -> HttpResponse:
        """The page; `problem` stands at the field `at`."""
        one, found = self.one, self.found
        context = {
            **self.context,
            "title": f"{one.lever.verb}: {found.row.pk}",
            "lever": one.lever,
            "asks": one.asks,
            "label": label(one, found),
            "row": found.row,
            "new_row": not has_row(found.row),
            "new": "new" in self.given,
            "seen": self.given.get("seen") or mark_of(found.row),
            "waiting": found.traffic.backlog,
            "why_not": "" if right else one.why_not(found),
            "problem": problem,
            "at": at,
            "right": right,
            "role": role,
            "reason": self.given.get("reason", ""),
            "back": self.back,
            "now": found.now,
            **self._fields(),
        }
        return TemplateResponse(self.request, "admin/throttler/customer/lever.html", context, status=status)

    def _fields(self) -> dict[str, Any]:
        if self.one.asks == "rate":
            return self._rate_fields()
        if self.one.asks == "weight":
            return {"weight": self.given.get("weight", self.found.row.weight), "most": changes.MOST_WEIGHT}
        return self._life_fields() if self.one.asks == "life" else {}

    def _rate_fields(self) -> dict[str, Any]:
        row, rates = self.found.row, self.given.get("rates", self.found.row.rates)
        burst = self.given.get("burst", "" if row.burst is None else row.burst)
        tried = None
        if rates != row.rates and self.found.owned:
            tried = self._tried(rates)
        return {"rates": rates, "burst": burst, "tried": tried}

    def _tried(self, text: str) -> figures.TriedRate | None:
        try:
            rates = parse_rates(text)
        except BadRates:
            return None
        return figures.tried_rate(self.found.after(rates), rates_text(rates), self.found.now)

    def _life_fields(self) -> dict[str, Any]:
        row = self.found.row
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
