"""Edit many: one change of one field in all letters of a batch, judged letter by letter, taken back as edited copies."""

from __future__ import annotations

import json
import uuid
from datetime import timedelta

import pytest

from buffer.ledger.movement_letters import MovementLetters
from buffer.models import InventoryTracking
from config.database.clock import database_now
from config.flows import prove
from config.letters import Effect, Refusal
from config.payload import digest
from outbox.letters.edits import TOO_LARGE, requeue_copy
from outbox.letters.field_changes import FieldChange
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter, PayloadRevision
from outbox.models import OperatorAction
from outbox.replay_batches import items, requests
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from outbox.verify import payload_checks
from tests.buffer.ledger.conftest import RECEIVED, quantities, record, stocks, sums, write
from tests.outbox.replay_batches.scripted_flow import ANNA, BELA, confirm, counts, run_until, step

pytestmark = pytest.mark.django_db(transaction=True)
QUANTITY = "$.items[0].quantity"
THREE = FieldChange("set", QUANTITY, "3", other_type=True)
WHY = "The supplier confirmed three"


@pytest.fixture(autouse=True)
def scripted(settings):
    """The real flows: this name is that of the fixture which would replace them."""
    settings.REPLAY_CHUNK = 50


def receipts(number: int, quantity: object = "three", first: int = 0) -> None:
    """Letters of receipts that the gate refuses."""
    for start in range(first, first + number, 500):
        lines = [[{"stockId": "A", "quantity": quantity}]] * number
        found = [
            record((RECEIVED, {"purchaseOrderId": f"PO-{start + at}", "items": line}))
            for at, line in enumerate(lines[: first + number - start][:500])
        ]
        write(*found)


def drafted(change: FieldChange = THREE, **narrowed: object) -> ReplayBatch:
    return requests.draft("edit", Filter(**(narrowed or {"all": True})), ANNA, reason=WHY, change=change)


def previewed(change: FieldChange = THREE, **narrowed: object) -> ReplayBatch:
    return run_until(drafted(change, **narrowed), "previewed")


def done(change: FieldChange = THREE, **narrowed: object) -> ReplayBatch:
    batch = previewed(change, **narrowed)
    requests.confirm(batch.pk, ANNA, WHY, typed=str(batch.eligible), canary=0)
    ReplayBatch.objects.filter(pk=batch.pk).update(hold_until=database_now())
    return run_until(batch, "done")


def broken_checks() -> list[object]:
    return [check for check in prove()["checks"] if not check["ok"]]


# -- the preview -------------------------------------------------------------------------------------------
def test_a_preview_counts_what_cannot_be_edited_and_what_would_not_change_with_the_reason():
    stocks(A=0)
    receipts(6)
    payloads = [
        b"\xff", b'{"purchaseOrderId":"PO-1"', b'{"purchaseOrderId":"PO-2"}',
        b'{"purchaseOrderId":"PO-3","items":[{"stockId":"A","quantity":{}}]}',
        b'{"purchaseOrderId":"PO-4","items":[{"quantity":"x"}]}',
    ]  # fmt: skip
    for letter, payload in zip(DeadLetter.objects.order_by("pk"), payloads, strict=False):
        DeadLetter.objects.filter(pk=letter.pk).update(payload=payload)
    batch = previewed(FieldChange("set", QUANTITY, '"x"'))
    assert counts(batch) == {"skipped": 6}
    gate = "It cannot be edited: the gate refuses the copy: "
    assert {(why.partition(gate)[2] and gate) or why: number for why, number in batch.skipped_why.items()} == {
        "It cannot be edited: its payload is no text.": 1,
        "It cannot be edited: its payload is no JSON.": 1,
        "It cannot be edited: nothing is at the path.": 1,
        "It cannot be edited: its value is an object, the new one is a text.": 1,
        "It would not change: it has this value already.": 1,
        gate: 1,
    }
    assert not PayloadRevision.objects.exists()
    assert not InventoryTracking.objects.exists()


def test_what_is_locked_stays_locked():
    stocks(A=0)
    receipts(2, quantity=1)
    DeadLetter.objects.update(status="open")
    receipts(3)
    batch = previewed(FieldChange("set", "$.purchaseOrderId", '"PO-9"'))
    assert list(batch.skipped_why) == [
        "It cannot be edited: “purchaseOrderId” is locked: it says what the message is about."
    ]
    assert counts(batch) == {"skipped": 3}
    renamed = previewed(FieldChange("set", "$.receiptId", '"R"', add=True))
    assert list(renamed.skipped_why) == [
        "It cannot be edited: “receiptId” is locked: it says what the message is about."
    ]


def test_what_a_single_edit_refuses_an_edit_of_many_refuses(monkeypatch):
    stocks(A=0)
    receipts(1)
    large = FieldChange("set", "$.note", f'"{"x" * 70_000}"', add=True)
    assert list(previewed(large).skipped_why) == [f"It cannot be edited: {TOO_LARGE[:1].lower()}{TOO_LARGE[1:]}"]
    payload = b'{"purchaseOrderId":"PO-0","items":[{"stockId":"A","quantity":"three"}],"note":1,"note":2}'
    DeadLetter.objects.update(payload=payload)
    assert list(previewed().skipped_why) == ["It cannot be edited: a name stands twice in one object."]
    DeadLetter.objects.update(payload=payload.replace(b'"three"', b"3").replace(b',"note":1,"note":2', b""))
    monkeypatch.setattr(MovementLetters, "locked", ())  # a topic that spells its paths otherwise
    (why,) = previewed(FieldChange("set", "$.purchaseOrderId", '"PO-9"')).skipped_why
    assert why.startswith("It cannot be edited: it is about ")


def test_a_copy_that_would_fail_again_is_not_eligible():
    receipts(2)  # of a stock that is not there
    batch = previewed()
    assert counts(batch) == {"skipped": 2}
    assert next(iter(batch.skipped_why)).startswith("Fails again.")


def test_a_letter_that_its_flow_breaks_on_spares_the_others(monkeypatch):
    stocks(A=0)
    receipts(5)
    bad = DeadLetter.objects.order_by("pk")[2].pk
    faults = MovementLetters.faults

    def breaking(self, letter):
        if letter.pk == bad and letter.edit:
            raise ZeroDivisionError("a bug")
        return faults(self, letter)

    monkeypatch.setattr(MovementLetters, "faults", breaking)
    batch = previewed()
    assert counts(batch) == {"eligible": 4, "skipped": 1}
    assert "its flow breaks on it: ZeroDivisionError" in next(iter(batch.skipped_why))


def test_only_an_edit_has_a_change():
    receipts(1)
    for verb, change in (("requeue", THREE), ("edit", None)):
        with pytest.raises(Refusal, match="says what it changes"):
            requests.draft(verb, Filter(all=True), ANNA, change=change)


@pytest.mark.parametrize("number", [10, 40])
def test_judging_asks_the_same_queries_for_few_and_for_many(number, django_assert_max_num_queries):
    stocks(A=0)
    receipts(number)
    batch = drafted()
    step()
    with django_assert_max_num_queries(40):
        run_until(batch, "previewed")
    assert counts(batch) == {"eligible": number}


# -- the action ----------------------------------------------------------------------------------------------
def test_each_copy_takes_effect_once_and_leaves_what_a_single_edit_leaves():
    stocks(A=0)
    receipts(120)
    before = {letter.pk: bytes(letter.payload) for letter in DeadLetter.objects.all()}
    batch = done()
    assert (batch.verified, batch.state) == (120, "done")
    assert quantities() == sums() == {"A": 360}
    assert InventoryTracking.objects.count() == 120
    for letter in DeadLetter.objects.all():
        assert (letter.status, bytes(letter.payload)) == ("resolved", before[letter.pk])
        copy = PayloadRevision.objects.get(letter=letter.pk)
        assert json.loads(bytes(copy.payload))["items"][0]["quantity"] == 3
        assert (copy.number, copy.editor, copy.reason) == (1, "Anna", WHY)
        assert copy.created_at == letter.requeued_at or letter.requeued_at is None
        assert (copy.digest_before, copy.digest_after) == (digest(before[letter.pk]), digest(bytes(copy.payload)))
    action = OperatorAction.objects.get()
    assert (action.verb, action.rows, action.reason) == ("edit", 120, WHY)
    assert action.detail["change"] == {"verb": "set", "path": QUANTITY, "other_type": True, "add": False}
    assert broken_checks() == []


def test_the_values_of_a_change_stand_in_no_action():
    stocks(A=0)
    receipts(2)
    done(FieldChange("set", QUANTITY, "31415", other_type=True))
    assert "31415" not in str(list(OperatorAction.objects.values()))


def test_a_letter_that_somebody_edits_meanwhile_is_skipped():
    stocks(A=0)
    receipts(3)
    batch = previewed()
    first = DeadLetter.objects.order_by("pk").first()
    requeue_copy(first.pk, bytes(first.payload).decode().replace('"three"', "7"), 0, BELA, "Seven were counted")
    run_until(confirm_edit(batch), "done")
    assert counts(batch) == {"verified": 2, "skipped": 1}
    assert quantities() == {"A": 13}
    assert PayloadRevision.objects.filter(letter=first.pk).count() == 1


def confirm_edit(batch: ReplayBatch) -> ReplayBatch:
    requests.confirm(batch.pk, ANNA, WHY, canary=0)
    ReplayBatch.objects.filter(pk=batch.pk).update(hold_until=database_now())
    batch.refresh_from_db()
    return batch


def test_a_copy_is_the_next_of_its_letter():
    stocks(A=0)
    receipts(2)
    letter = DeadLetter.objects.order_by("pk").first()
    PayloadRevision.objects.create(letter=letter.pk, number=4, payload=b"{}", created_at=letter.created_at)
    done()
    assert PayloadRevision.objects.last_number(letter.pk) == 5
    assert PayloadRevision.objects.last_numbers(DeadLetter.objects.values_list("pk", flat=True))[letter.pk] == 5


def test_a_letter_that_its_flow_refuses_leaves_no_copy(monkeypatch):
    stocks(A=0)
    receipts(3)
    take_back = MovementLetters.take_back

    def refusing(self, letters, now):
        refused, *others = sorted(letters, key=lambda letter: letter.pk)
        return {refused.pk: Effect("refused", "not just now"), **take_back(self, others, now)}

    batch = confirm_edit(previewed())
    monkeypatch.setattr(MovementLetters, "take_back", refusing)
    run_until(batch, "done")
    assert counts(batch) == {"verified": 2, "refused": 1}
    assert PayloadRevision.objects.count() == 2
    assert DeadLetter.objects.open().count() == 1


def test_it_has_a_canary_and_the_reason_of_an_edit():
    stocks(A=0)
    receipts(30)
    batch = previewed()
    assert batch.canary_size == 3
    with pytest.raises(Refusal, match="At least 10 characters"):
        requests.confirm(batch.pk, ANNA, "short")
    confirm(batch, canary=2)
    run_until(batch, "done")
    assert (ReplayItem.objects.filter(canary=True).count(), batch.verified) == (2, 30)


def test_the_values_go_with_the_letters_of_the_batch(settings):
    stocks(A=0)
    receipts(2)
    batch = done(FieldChange("replace", QUANTITY, "3", '"three"', other_type=True))
    assert '"three"' in str(batch.edit)
    later = database_now() + timedelta(days=settings.DEAD_LETTER_RETENTION_DAYS + 1)
    assert items.sweep_items(later) == 2
    batch.refresh_from_db()
    assert batch.edit == {"verb": "replace", "path": QUANTITY, "other_type": True, "add": False}
    assert FieldChange.of(batch.edit).words().startswith("Replace")


TAMPERED = {
    "deleted": lambda copies: copies.delete(),
    "rewritten with its digest": lambda copies: copies.update(payload=b"{}", digest_after=digest(b"{}")),
    "of another letter": lambda copies: copies.update(letter=uuid.uuid4()),
}


@pytest.mark.parametrize("how", TAMPERED)
@pytest.mark.parametrize("many", [True, False])
def test_verify_misses_a_copy_that_is_not_what_was_taken_back(many, how):
    stocks(A=0)
    receipts(3)
    if many:
        done()
    else:
        letter = DeadLetter.objects.order_by("pk")[0]
        requeue_copy(letter.pk, bytes(letter.payload).decode().replace('"three"', "3"), 0, ANNA, WHY)
    assert [check.name for check in payload_checks() if not check.ok] == []
    copy = PayloadRevision.objects.order_by("pk")[0]
    TAMPERED[how](PayloadRevision.objects.filter(pk=copy.pk))
    broken = [check for check in payload_checks() if not check.ok]
    assert str(copy.letter) in str([check.rows for check in broken])
