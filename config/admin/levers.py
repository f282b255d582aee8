"""Levers: what a person may change, what it says beforehand, and the roles that may."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import models
from django.db.models.options import Options
from django.utils.text import capfirst

from config.admin import humanize
from config.letters import Refusal

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractUser, AnonymousUser

# -- The roles that `migrate` makes --------------------------------------------------------------------------
# Each of these apps' tables may be looked at; the audit log only by those who audit it.
LOOKED_AT = ("outbox", "buffer", "throttler", "notifications", *settings.ADDED_APPS)
NOT_LOOKED_AT = frozenset({"operatoraction", "actionseal", "actionsubject", "offeredright"})
VIEW = "view"  # stands for the right to view each of these tables

_SUPPORT = (
    VIEW, "outbox.requeue_deadletter", "outbox.take_failuregroup", "outbox.keep_savedview", "notifications.lift_suppression",
)  # fmt: skip
_SENIOR = (
    *_SUPPORT, "outbox.view_payload", "outbox.bulk_replay", "outbox.edit_deadletter", "outbox.resolve_deadletter",
    "outbox.discard_deadletter", "outbox.restore_deadletter", "outbox.manage_failuregroup", "outbox.cancel_outboxmessage",
    "outbox.resend_outboxmessage", "outbox.share_savedview",
)  # fmt: skip
_OPERATOR = (
    *_SENIOR, "outbox.send_again_outboxmessage", "outbox.pause_channel", "outbox.replay_topic", "outbox.manage_subscription",
    "outbox.forget_workerprocess", "buffer.flush_bucket", "buffer.hold_bucket", "throttler.rate_customer", "throttler.hold_customer",
    "outbox.view_operatoraction",
)  # fmt: skip
_AUDITOR = (VIEW, "outbox.view_operatoraction", "outbox.keep_savedview")
# A right that no release knows yet is offered by the one that brings it.
_OWN: Mapping[str, Sequence[str]] = {
    "Support": _SUPPORT,
    "Senior support": _SENIOR,
    "Operator": _OPERATOR,
    "Auditor": _AUDITOR,
}
_ADDED: Mapping[str, Sequence[str]] = settings.ADDED_ROLES
ROLES = {role: tuple(dict.fromkeys([*_OWN.get(role, ()), *_ADDED.get(role, ())])) for role in {**_OWN, **_ADDED}}


def role_with(right: str) -> str:
    """The least role that is offered a right (`outbox.requeue_deadletter`); empty when none is."""
    app, _, codename = right.partition(".")
    model = codename.removeprefix("view_")
    views = codename.startswith("view_") and app in LOOKED_AT and model not in {*NOT_LOOKED_AT, "payload"}
    return next((role for role, rights in ROLES.items() if right in rights or (views and VIEW in rights)), "")


# -- Levers --------------------------------------------------------------------------------------------------
# Each behind a confirmation that says what will happen to how many rows.
LEAST_REASON = 3  # characters; a single one tells nobody anything
MISSING = "A reason is required. It is kept with the operator action."
NO_REASON = "no reason was given"  # what the audit log says where a command may go without one
TOO_SHORT = "At least {} characters: whoever reads it next month must understand it."


def fault_of_reason(reason: str, least: int) -> str:
    """Why this reason is not enough, one sentence for the page and the terminal; empty when it is."""
    given = len(reason.strip())
    if not least:
        return ""
    return MISSING if not given else TOO_SHORT.format(least) if given < least else ""


@dataclass(frozen=True)
class Operator:
    """Whoever pulls a lever: a person in the admin, or a command and the account that ran it."""

    name: str
    user: Any = None


def operator_of(user: Any) -> Operator:
    """The person at the lever, by the name that the audit log keeps."""
    return Operator(user.get_full_name() or user.get_username(), user)


def operator_of_terminal() -> Operator:
    """Whoever runs the command; in a container an account may have no name."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"account {os.getuid()}"
    return Operator(f"{name}, by command")


@dataclass(frozen=True)
class LeverResult:
    """How many rows a lever changed, why the others were refused, and which of the changed ones failed at once."""

    changed: int
    refused: Sequence[str] = ()
    failed: Sequence[str] = ()
    next_step: str = ""  # what can be done about it now; HTML where it is safe


def _on_its_own_page(*given: object) -> LeverResult:
    """Of a lever that is only offered here, and pulled where its form is."""
    return LeverResult(0, ["It has a page of its own."])


def one_by_one(act: Callable[..., int]) -> Callable[..., LeverResult]:
    """`act` for each row by itself: one that is refused must not hide what became of the others. It returns how many it changed."""

    def each(keys: list[Any], *given: Any) -> LeverResult:
        changed, refused = 0, []
        for key in keys:
            try:
                changed += act([key], *given)
            except Refusal as refusal:
                refused.append(f"{capfirst(str(refusal))}.")
        return LeverResult(changed, refused)

    return each


@dataclass(frozen=True)
class Lever:
    """One verb on the rows of one model; `act` is the function that the command calls, too."""

    name: str
    verb: str
    icon: str
    right: str  # codename of a permission of the model
    nouns: tuple[str, str]
    past: str = ""
    promise: str = ""  # what will happen: the bold first words, then the rest
    detail: str = ""
    keep: str = ""  # the words of the button that does nothing
    act: Callable[..., LeverResult | int] = _on_its_own_page  # primary keys, operator, reason
    ready: Callable[[Any], models.QuerySet] = lambda rows: rows.all()  # rows in a state that allows it
    why_not: Callable[[Any], str] = lambda row: ""  # one sentence about a row that is not ready
    harm: bool = False
    least: int = LEAST_REASON  # characters of the reason
    question: str = ""  # of the title, when the verb and the count alone would be odd
    # (value, words) of what it asks beside the reason, or what reads them; `act` gets the value, too
    choices: Sequence[tuple[str, str]] | Callable[[], Sequence[tuple[str, str]]] = ()
    choices_label: str = ""
    text_label: str = ""  # of a line that may stay empty; `act` gets it, too
    text_help: str = ""
    # (promise, detail) for just these rows; empty where the general words fit
    promise_of: Callable[[Sequence[Any]], tuple[str, str]] = lambda rows: ("", "")
    faster: Callable[[Any], str] = lambda row: ""  # who moved a row on that is not ready any more

    @property
    def at_once(self) -> bool:
        """Whether the button on a page of one row pulls it: it asks nothing, and another one undoes it."""
        return not self.least and not self.choices and not self.text_label

    @property
    def options(self) -> Sequence[tuple[str, str]]:
        """The choices as they are now."""
        return self.choices() if callable(self.choices) else self.choices

    def pull(
        self, keys: list[object], user: AbstractUser | AnonymousUser, reason: str, choice: str = ""
    ) -> LeverResult:
        given = (keys, operator_of(user), reason, *([choice] if self.choices or self.text_label else []))
        result = self.act(*given) if keys else 0
        return result if isinstance(result, LeverResult) else LeverResult(result)

    def allowed(self, user: AbstractUser | AnonymousUser, opts: Options) -> bool:
        return bool(user.has_perm(f"{opts.app_label}.{self.right}"))

    def right_in_words(self, opts: Options) -> str:
        """What the permission is called where it is granted, without the "Can"."""
        return dict(opts.permissions).get(self.right, self.right).removeprefix("Can ")

    def role(self, opts: Options) -> str:
        """The least role that has the right; empty when it is given one by one."""
        return role_with(f"{opts.app_label}.{self.right}")

    def count(self, number: int) -> str:
        return humanize.plural(number, *self.nouns)

    def label(self, number: int) -> str:
        """The text of the button: the verb and the number of rows."""
        return f"{self.verb} {self.count(number)}" if self.harm or number != 1 else self.verb

    def title(self, number: int) -> str:
        what = f"this {self.nouns[0]}" if number == 1 else self.count(number)
        return f"{self.question or self.verb} {what}?"
