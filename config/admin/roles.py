"""The roles that `migrate` makes: which rights each is offered, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# Each of these apps' tables may be looked at; the trail only by those who audit it.
LOOKED_AT = ("outbox", "buffer", "throttler", "notifications")
NOT_LOOKED_AT = frozenset({"operatoraction", "actionseal", "actionsubject", "offeredright"})
VIEW = "view"  # stands for the right to view each of these tables

_SUPPORT = (VIEW, "outbox.requeue_deadletter", "outbox.take_failuregroup")
_SENIOR = (
    *_SUPPORT, "outbox.view_payload", "outbox.bulk_replay", "outbox.edit_deadletter", "outbox.resolve_deadletter",
    "outbox.discard_deadletter", "outbox.restore_deadletter", "outbox.manage_failuregroup", "outbox.cancel_outboxmessage",
)  # fmt: skip
_OPERATOR = (
    *_SENIOR, "outbox.send_again_outboxmessage", "outbox.pause_channel", "outbox.replay_topic", "buffer.flush_bucket",
    "buffer.hold_bucket", "throttler.rate_customer", "throttler.hold_customer",
)  # fmt: skip
_AUDITOR = (VIEW, "outbox.view_operatoraction")
# A right that no release knows yet is offered by the one that brings it.
ROLES: Mapping[str, Sequence[str]] = {
    "Support": _SUPPORT,
    "Senior support": _SENIOR,
    "Operator": _OPERATOR,
    "Auditor": _AUDITOR,
}


def role_with(right: str) -> str:
    """The least role that is offered a right (`outbox.requeue_deadletter`); empty when none is."""
    app, _, codename = right.partition(".")
    model = codename.removeprefix("view_")
    views = codename.startswith("view_") and app in LOOKED_AT and model not in {*NOT_LOOKED_AT, "payload"}
    return next((role for role, rights in ROLES.items() if right in rights or (views and VIEW in rights)), "")
