"""Edited copies: whether there can be one, what the flow says of it, and the requeue in place of its letter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db import transaction
from django.utils.text import capfirst

from config.admin import humanize
from config.admin.humanize import TOKEN, indented, is_json
from config.admin.levers import Operator
from config.database.clock import database_now
from config.database.queries import batched, by_key
from config.database.retry import remedy_for
from config.flows import letters_of, mask_of
from config.letters import Effect, Judgement, PayloadForm, Refusal
from config.payload import digest
from config.processes.worker import until_it_stands
from config.telemetry.logs import log
from config.telemetry.redaction import DOTS, masked, masked_error
from outbox.audit_log import actions
from outbox.audit_log.models import OperatorAction, verb_in_words
from outbox.audit_log.reveal import HIDE, REVEAL
from outbox.letters import redelivery
from outbox.letters.burial import STOPPED
from outbox.letters.edit_checks import (
    DiffLine,
    Fault,
    difference,
    in_order,
    located,
    locked_faults,
    locked_values,
    repeated_faults,
)
from outbox.letters.field_changes import FieldChange, Unchanged, as_text, value_at, with_value
from outbox.letters.models import DeadLetter, PayloadRevision
from outbox.letters.transitions import Status, locked

# -- An edited copy ------------------------------------------------------------------------------------------
# Whether there can be one, and what the flow's gate and judgement say of it. Nothing is written.
MOST = 65_536  # bytes in a form
TOO_LARGE = f"It has more than {MOST:,} bytes, the most that can be edited."
PLAIN = {"\n", "\t", "\r"}  # characters that a form keeps although nobody sees them
SAME = "The copy says what the letter says. Requeue the letter instead."
ANOTHER = "It is about {}; the letter is about {}. What identifies the effect is locked."


@dataclass(frozen=True)
class Examined:
    """What is to be known of a copy before it is requeued."""

    faults: Sequence[Fault]
    difference: Sequence[DiffLine]
    judgement: Judgement | None = None  # of a copy without faults

    @property
    def may_go(self) -> bool:
        return not self.faults and self.judgement is not None and self.judgement.eligible


def why_not(letter: DeadLetter) -> str:
    """Why no copy of this letter can be edited, whatever its state; empty when one can."""
    if letter.step == STOPPED:
        return "It stands for a stopped partition, not for a record."
    if letter.is_excerpt:
        return "Only parts of its payload are kept."
    if not letter.payload:
        return "It has no payload."
    if len(letter.payload) > MOST:
        return TOO_LARGE
    try:
        return _why_no_text(letter.json_payload) or letters_of(letter.source, letter.step).why_not_edited(letter)
    except Refusal as refusal:
        return f"{capfirst(str(refusal))}."


def _why_no_text(payload: bytes) -> str:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return "Its payload is no text."
    hidden = any(not char.isprintable() and char not in PLAIN and char.isascii() for char in text)
    return "Its payload holds control characters, which a form does not keep." if hidden else ""


def text_of(letter: DeadLetter) -> str:
    """The payload as the form shows it: JSON is indented, and nothing else is changed."""
    text = letter.json_payload.decode("utf-8", "backslashreplace")
    return indented(text) if is_json(text) else text


def typed(text: str) -> str:
    """What came from a form, with the line ends that it had before."""
    return text.replace("\r\n", "\n").replace("\x00", "")


def bytes_of(text: str) -> bytes:
    """What is sent: JSON without the spaces between its values, as it usually arrives; all else as it was typed."""
    return ("".join(TOKEN.findall(text)) if is_json(text) else text).encode("utf-8", "surrogatepass")


def copy_of(letter: DeadLetter, text: str) -> DeadLetter:
    """The letter with the edited payload."""
    return letter.copy_with(bytes_of(text), PayloadRevision.objects.last_number(letter.pk) + 1)


def what_is_locked(letter: DeadLetter) -> Mapping[str, str | None]:
    """What of its payload a copy has to repeat, by path. Where its own gate finds a value wrong, that one is free."""
    text = text_of(letter)
    letters = letters_of(letter.source, letter.step)
    wrong = {located(error, text).path for error in letters.faults(letter)}
    return locked_values(text, letters.locked, wrong)


def examine(letter: DeadLetter, text: str, now: datetime) -> Examined:
    """What the gate, the locks and the flow's judgement say of `text` in place of the letter's payload.

    Most gates say the first thing that they have against it, and the next one when that is mended.
    """
    copy = copy_of(letter, text)
    if len(copy.payload or b"") > MOST:
        return Examined([Fault(TOO_LARGE)], ())
    lines = difference(text_of(letter), indented(text) if is_json(text) else text)
    gate = [located(error, text) for error in letters_of(copy.source, copy.step).faults(copy)]
    faults = in_order([*gate, *locked_faults(text, dict(what_is_locked(letter))), *repeated_faults(text)])
    if not faults:
        faults = [*_about_another(letter, copy), *([] if lines else [Fault(SAME)])]
    return Examined(faults, lines, None if faults else redelivery.judge([copy], now)[copy.pk])


def _about_another(letter: DeadLetter, copy: DeadLetter) -> list[Fault]:
    """For a letter that its gate lets through: it failed later, and it is known what it is about."""
    letters = letters_of(letter.source, letter.step)
    was, now = ("", "") if letters.faults(letter) else (letters.identity(letter), letters.identity(copy))
    return [Fault(ANOTHER.format(now, was))] if was != now else []


# -- The fields of a payload that people edit without its JSON -----------------------------------------------
def form_of(letter: DeadLetter) -> PayloadForm | None:
    """None for a payload that is only edited as a whole."""
    return letters_of(letter.source, letter.step).form(letter)


def field_of(text: str, path: str) -> str:
    """What a field shows of the text: its text, or nothing where another value stands, or none."""
    value = value_at(text, path)
    return typed(str(json.loads(value))) if value and value.startswith('"') else ""


def with_fields(
    text: str, letter: DeadLetter, form: PayloadForm, given: Mapping[str, str], shown: Mapping[str, str], make: bool
) -> tuple[str, list[Fault]]:
    """The text with what was typed into its fields, and where JSON and field were both changed, to two values.

    `given` is by path, `shown` the digest of what the field showed before; `make`: what can be made from a field is made
    of it where the letter had another one, and is the letter's own otherwise.
    """
    faults = []
    for field in form.fields:
        now, wanted = field_of(text, field.path), form.normal(field.path, given.get(field.path, ""))
        if field.path not in given or mark_of(given[field.path]) == shown.get(field.path) or wanted == now:
            continue
        if mark_of(now) != shown.get(field.path):
            faults.append(
                Fault("was changed in the form and in the JSON, to two values.", field.path.removeprefix("$."))
            )
        elif changed := with_value(text, field.path, as_text(wanted)) if is_json(text) else None:
            text = indented(changed)
    return _with_made(text, text_of(letter), form, make), faults


def mark_of(shown: str) -> str:
    """Stands for what a field showed."""
    return digest(shown.encode("utf-8", "surrogatepass"))


def _with_made(text: str, before: str, form: PayloadForm, make: bool) -> str:
    own, source = value_at(before, form.made.path), field_of(text, form.source)
    new = as_text(form.make(source))
    if make and source and source != field_of(before, form.source):
        return indented(with_value(text, form.made.path, new) or text)
    if not make and own and value_at(text, form.made.path) == new:  # it was made, and is to be left after all
        return indented(with_value(text, form.made.path, own) or text)
    return text


# -- Requeues an edited copy in place of its letter ----------------------------------------------------------
# Effect, state, revision and action in one transaction.
VERB = "edit_and_requeue"
LEAST_REASON = 10
LETTER = "outbox.deadletter"
NO_ACTIONS = (REVEAL, HIDE, "refused")  # they change nothing of a letter
FASTER = "Somebody was faster. {} Nothing of yours was sent."


def requeue_copy(letter_id: UUID, text: str, seen: int, operator: Operator, reason: str) -> Effect:
    """Give the copy to the letter's flow; `seen` is the number of edits that the editor knew of.

    Raises Refusal, and nothing was written, when somebody was faster, or when gate or flow do not take the copy now.
    """

    def unit() -> Effect:
        with transaction.atomic():
            return _requeue(letter_id, text, seen, operator, reason)

    return until_it_stands(unit, "letter-edit")


def _requeue(letter_id: UUID, text: str, seen: int, operator: Operator, reason: str) -> Effect:
    mine = locked([letter_id], Status.OPEN)
    letter = DeadLetter.objects.filter(pk=letter_id).first()
    if letter is None:
        raise Refusal("The letter is gone.")
    number = PayloadRevision.objects.last_number(letter_id)
    if not mine or number != seen:
        raise Refusal(FASTER.format(who_was_faster(letter)))
    if problem := why_not(letter):
        raise Refusal(problem)
    now = database_now()
    copy = copy_of(letter, text)
    examined = examine(letter, text, now)
    if not examined.may_go:
        raise Refusal("The copy cannot be requeued as it is now: check it again.")
    effect = redelivery.take_back([copy], now)[letter_id]
    if effect.state == "refused":
        raise Refusal(f"It was refused: {effect.evidence}.")
    _record(letter, copy, operator, reason, effect, now)
    return effect


def _record(
    letter: DeadLetter, copy: DeadLetter, operator: Operator, reason: str, effect: Effect, now: datetime
) -> None:
    """The revision, which keeps the payload as long as the letter is kept; and the action, which has none."""
    revision = _revision(letter, copy, operator.name, getattr(operator.user, "pk", None), reason, now)
    revision.save(force_insert=True)
    digests = revision.digest_before, revision.digest_after
    after = DeadLetter.objects.filter(pk=letter.pk).values_list("status", flat=True).first()
    states: list[dict[str, object]] = [
        {"status": status, "payload": payload} for status, payload in zip((letter.status, after), digests, strict=True)
    ]
    actions.record(
        operator, VERB, f"Letter {letter}", reason=reason, result=effect.result,
        detail={"letter": str(letter.pk), "position": letter.position, "edit": copy.edit}, subject_type=LETTER,
        subject_id=letter.pk, before=states[0], after=states[1],
    )  # fmt: skip


def _revision(
    letter: DeadLetter, copy: DeadLetter, editor: str, editor_number: int | None, reason: str, now: datetime
) -> PayloadRevision:
    payload = bytes(copy.payload or b"")
    return PayloadRevision(
        letter=letter.pk, number=copy.edit, payload=payload, digest_before=digest(bytes(letter.payload or b"")),
        digest_after=digest(payload), editor=editor[:150], editor_number=editor_number, reason=reason, created_at=now,
    )  # fmt: skip


def who_was_faster(letter: DeadLetter) -> str:
    """What was done to the letter last, and by whom: one sentence."""
    actions = OperatorAction.objects.about(LETTER, letter.pk).exclude(verb__in=NO_ACTIONS)
    last = actions.first()
    state = letter.get_status_display().lower()
    if last is None:  # a batch records one action for all its letters
        return f"The letter became {state} {humanize.ago(letter.updated_at, database_now())}."
    when = humanize.ago(last.created_at, database_now())
    return f"{last.actor_name}: {verb_in_words(last.verb).lower()}, {when}. The letter is {state} now."


# -- One change in many letters ------------------------------------------------------------------------------
# For a replay batch, which judges, locks, counts and records: here are the copies, and what is written of each.
SAYS_TWICE = "A name stands twice in one object."
WRITTEN_AT_ONCE = 32  # revisions of a statement: of 64 KiB each, and no packet of MariaDB takes more than 16 MiB


def copies_for(change: FieldChange, letters: Sequence[DeadLetter]) -> tuple[list[DeadLetter], dict[UUID, str]]:
    """An edited copy of each letter that can have one, and in one line without values why the others have none.

    Asks the gate and compares what is locked; what requeueing would do is left to be asked. One query.
    """
    numbers = PayloadRevision.objects.last_numbers([letter.pk for letter in letters])
    copies: list[DeadLetter] = []
    why: dict[UUID, str] = {}
    for letter in letters:
        try:
            copies.append(_changed(letter, change, numbers.get(letter.pk, 0) + 1))
        except Unchanged as refusal:
            why[letter.pk] = f"It would not change: {_lower(str(refusal))}"
        except Refusal as refusal:
            why[letter.pk] = f"It cannot be edited: {_lower(str(refusal))}"
        except Exception as error:
            if remedy_for(error) in redelivery.WORTH_ANOTHER_TRY:
                raise
            log.exception("letter_breaks_its_flow", letter=str(letter.pk), source=letter.source)
            why[letter.pk] = f"It cannot be edited: {masked_error(redelivery.why_broken(error))}."
    return copies, why


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def _changed(letter: DeadLetter, change: FieldChange, number: int) -> DeadLetter:
    """The letter's edited copy. Raises Refusal, also for what `examine` would find against it."""
    if problem := why_not(letter):
        raise Refusal(problem)
    text = change.apply(letter.json_payload.decode())
    copy = letter.copy_with(bytes_of(text), number)
    if len(copy.payload or b"") > MOST:
        raise Refusal(TOO_LARGE)
    if locks := locked_faults(text, dict(what_is_locked(letter))):
        raise Refusal(f"“{locks[0].path}” is locked: it says what the message is about.")
    if errors := letters_of(letter.source, letter.step).faults(copy):
        raise Refusal(f"The gate refuses the copy: {masked_error(errors[0]).rstrip('.')}.")
    if repeated_faults(text):
        raise Refusal(SAYS_TWICE)
    if about := _about_another(letter, copy):
        raise Refusal(masked_error(about[0].text))
    return copy


def before_and_after(
    letter: DeadLetter, change: FieldChange, *, shown: bool = False, mine: bool = False
) -> tuple[str, str]:
    """The field as JSON text in the letter and in its copy; dots for what is hidden, "missing" where there is none.

    `mine`: the reader has typed the change, and sees its values. Raises Refusal where the change does not fit.
    """
    text = letter.json_payload.decode()
    after = change.apply(text)
    own = (change.old, change.new) if mine else ()
    return _seen(letter.source, text, change.path, shown, own), _seen(letter.source, after, change.path, shown, own)


def _seen(source: str, text: str, path: str, shown: bool, own: Sequence[str]) -> str:
    value = value_at(text, path)
    if value is None:
        return "missing"
    # Where the mask hides a name on the way, the path leads nowhere in it.
    return value if shown or value in own else value_at(masked(text, *mask_of(source)), path) or DOTS


def take_back_copies(
    copies: Sequence[DeadLetter], letters: Mapping[UUID, DeadLetter], editor: str, editor_number: int | None,
    reason: str, now: datetime,
) -> dict[UUID, Effect]:  # fmt: skip
    """Give the copies to their flows in place of these letters, which the caller's transaction has locked.

    Writes a revision for each that was taken, or failed again; the answer is that of `redelivery.take_back`.
    """
    effects = redelivery.take_back(copies, now)
    taken = [copy for copy in copies if copy.pk in effects and effects[copy.pk].state != "refused"]
    for part in batched(taken, WRITTEN_AT_ONCE):
        rows = [_revision(letters[copy.pk], copy, editor, editor_number, reason, now) for copy in part]
        PayloadRevision.objects.bulk_create(rows)
    return effects


# -- How long edited copies are kept: as long as their letters, whose months are dropped as a whole ----------
CHUNK = 500


def sweep_copies(now: datetime) -> int:
    """Delete the copies of letters that are gone; returns how many."""
    swept = 0
    for chunk in by_key(PayloadRevision.objects.values_list("pk", "letter"), CHUNK):
        there = set(DeadLetter.objects.filter(pk__in={letter for _, letter in chunk}).values_list("pk", flat=True))
        gone = [pk for pk, letter in chunk if letter not in there]
        swept += PayloadRevision.objects.filter(pk__in=gone).delete()[0] if gone else 0
    return swept
