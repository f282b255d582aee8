"""Levers on groups: take, assign, release, ignore, watch again, words about a cause; each one guarded UPDATE."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Greatest

from config.admin.levers import Operator
from config.database.clock import database_now
from config.letters import Refusal
from config.payload import digest
from outbox.audit_log import actions
from outbox.groups.models import FailureGroup

State = FailureGroup.State
IGNORED_FOR = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
    "month": timedelta(days=30),
}
DOUBLES = "doubles"  # until as many letters have come as are open now
NOBODY: dict[str, object] = {"owner_name": "", "owner_id": None}
WORDS = ("note", "ticket", "hint")
CHANGED = (
    "Somebody else changed these words while this page was open. Yours are below; look at theirs, then save again."
)


def take(ids: Iterable[int], operator: Operator, reason: str = "") -> int:
    """Make the operator the owner of groups that have none; returns how many."""

    def take_one(pk: int) -> int:
        free = FailureGroup.objects.filter(pk=pk).takeable()
        changed = free.update(state=State.ACKNOWLEDGED, state_since=database_now(), **_owned_by(operator))
        if changed:
            after = {"owner": operator.name}
            _record(operator, "take", pk, reason, f"{operator.name} has it", {"owner": ""}, after)
        return changed

    return _each(ids, take_one)


def assign(ids: Iterable[int], operator: Operator, reason: str, owner: Operator) -> int:
    """Make somebody the owner of groups, whoever has them; returns how many had another one."""
    new = _owned_by(owner)

    def assign_one(pk: int) -> int:
        # Locked, so that the trail names the owner who is replaced.
        group = FailureGroup.objects.select_for_update().filter(pk=pk).workable().exclude(**new).first()
        if group is None:
            return 0
        rest = {} if group.state == State.ACKNOWLEDGED else {"state": State.ACKNOWLEDGED, "state_since": database_now()}
        changed = FailureGroup.objects.filter(pk=pk, owner_name=group.owner_name).update(**new, **rest)
        if changed:
            was = {"owner": group.owner_name}
            _record(operator, "assign", pk, reason, f"{owner.name} has it", was, {"owner": owner.name})
        return changed

    return _each(ids, assign_one)


def release(ids: Iterable[int], operator: Operator, reason: str = "") -> int:
    """Give groups back to nobody; returns how many had an owner."""

    def release_one(pk: int) -> int:
        owned = FailureGroup.objects.filter(pk=pk).owned()
        before = owned.values_list("owner_name", flat=True).first()
        in_hand = owned.filter(state=State.ACKNOWLEDGED)
        changed = in_hand.update(state=State.OPEN, state_since=database_now(), **NOBODY) or owned.update(**NOBODY)
        if changed:
            was = {"owner": before}
            _record(operator, "release", pk, reason, f"{before} has it no longer", was, {"owner": ""})
        return changed

    return _each(ids, release_one)


def ignore(ids: Iterable[int], operator: Operator, reason: str, until: str) -> int:
    """Ignore groups for a time (`IGNORED_FOR`), or until their open letters have doubled; returns how many."""
    if until != DOUBLES and until not in IGNORED_FOR:
        raise Refusal("say until when")

    def ignore_one(pk: int) -> int:
        now = database_now()
        end = None if until == DOUBLES else now + IGNORED_FOR[until]
        # As many new letters as are open: what is requeued meanwhile does not put it off.
        total = F("total_count") + Greatest(F("open_count"), Value(1)) if until == DOUBLES else None
        rows = FailureGroup.objects.filter(pk=pk).with_open_letters()
        before = rows.values_list("state", flat=True).first()
        changed = rows.update(state=State.IGNORED, state_since=now, ignored_until=end, ignored_total=total)
        if changed:
            said = f"until {end:%Y-%m-%d %H:%M} UTC" if end else "until its open letters have doubled"
            _record(operator, "ignore", pk, reason, said, {"state": before}, {"state": State.IGNORED})
        return changed

    return _each(ids, ignore_one)


def watch(ids: Iterable[int], operator: Operator, reason: str = "") -> int:
    """End the rest of ignored groups; returns how many."""

    def watch_one(pk: int) -> int:
        group = FailureGroup.objects.select_for_update().filter(pk=pk, state=State.IGNORED).first()
        if group is None:
            return 0
        after = group.state_when_ignored_no_more
        changed = FailureGroup.objects.filter(pk=pk, state=State.IGNORED).update(
            state=after, state_since=database_now()
        )
        _record(operator, "watch", pk, reason, after, {"state": State.IGNORED}, {"state": after})
        return changed

    return _each(ids, watch_one)


def _each(ids: Iterable[int], act: Callable[[int], int]) -> int:
    """Act on these groups, each in a transaction of its own; returns how many were changed."""
    changed = 0
    for pk in sorted(ids):
        with transaction.atomic():
            changed += act(pk)
    return changed


def _owned_by(owner: Operator) -> dict[str, object]:
    return {"owner_name": owner.name[:150], "owner_id": getattr(owner.user, "pk", None)}


def mark_of(group: FailureGroup) -> str:
    """What a form remembers of the words that it showed."""
    return digest("\x1f".join(getattr(group, name) for name in WORDS).encode("utf-8", "surrogatepass"))


def write_words(pk: int, words: Mapping[str, str], seen: str, operator: Operator) -> int:
    """Change note, ticket and hint to what `words` says; `seen` is the mark of those that the form showed.

    Returns how many words differ. Raises Refusal when somebody else changed them meanwhile.
    """
    with transaction.atomic():
        group = FailureGroup.objects.select_for_update().get(pk=pk)
        if mark_of(group) != seen:
            raise Refusal(CHANGED)
        new = {name: text for name, text in words.items() if name in WORDS and text != getattr(group, name)}
        if not new:
            return 0
        now = database_now()
        signed: dict[str, object] = {"note_by": operator.name[:150]} if "note" in new else {}
        if "hint" in new:
            signed |= {"hint_by": operator.name[:150], "hint_at": now}
        FailureGroup.objects.filter(pk=pk).update(**new, **signed)
        before = {name: getattr(group, name) for name in new}
        _record(operator, "write", pk, "", f"{', '.join(new)} changed", before, new)
    return len(new)


def _record(
    operator: Operator, verb: str, pk: int, reason: str, result: str, before: Mapping[str, object],
    after: Mapping[str, object],
) -> None:  # fmt: skip
    group = FailureGroup.objects.get(pk=pk)
    actions.record(
        operator, verb, f"Group {group}", reason=reason, result=result, url=group.url, detail={"group": pk},
        subject_type="outbox.failuregroup", subject_id=pk, before=before, after=after,
    )  # fmt: skip
