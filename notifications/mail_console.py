"""The levers on addresses: stop writing to one, or write to it again."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import Exists, OuterRef

from config.levers import Lever, Outcome
from notifications import suppression
from notifications.deliveries import Delivery
from notifications.suppression import Suppression
from outbox.console import operator_of


def _suppress(keys: list[Any], user: Any, reason: str) -> Outcome:
    people = Delivery.objects.of_messages(keys).values_list("recipient", flat=True)
    return Outcome(suppression.add(list(people), operator_of(user), reason))


def _lift(keys: list[Any], user: Any, reason: str) -> Outcome:
    return Outcome(suppression.lift(keys, operator_of(user), reason))


def _not_suppressed(rows: models.QuerySet) -> models.QuerySet:
    """Compared by address as it was written down; `add` looks again, by the hash that forgets case."""
    return rows.exclude(Exists(Suppression.objects.filter(address=OuterRef("recipient"))))


SUPPRESS = Lever(
    name="suppress", verb="Suppress the recipient", past="Suppressed", icon="ban",
    right="suppress_recipient", keep="Go on writing",
    nouns=("recipient", "recipients"),
    promise="This address gets no mail any more, whatever happens to its orders.",
    detail="Mails that wait for it become dead letters when their turn comes; they can be requeued after it is lifted.",
    question="Suppress",
    act=_suppress, ready=_not_suppressed, why_not=lambda row: "The address is suppressed already.",
    harm=True, least=10,
)  # fmt: skip
LIFT = Lever(
    name="lift", verb="Lift", past="Lifted", icon="play",
    right="lift_suppression", keep="Leave it suppressed",
    nouns=("suppression", "suppressions"),
    promise="The address gets mail again, from the next one on.",
    detail="Mails that were refused meanwhile are dead letters: requeue those that are still wanted. "
    "Writing again to somebody who complained harms the sender's name with every provider.",
    act=_lift, ready=lambda rows: rows.all(), why_not=lambda row: "", least=10,
)  # fmt: skip
