"""An edited copy takes effect in place of its letter, at the same position, once; its letter keeps its own bytes."""

from __future__ import annotations

import msgspec
import pytest

from buffer.ledger.movement_letters import MovementLetters
from buffer.models import InventoryTracking
from config.admin.levers import Operator
from config.database.clock import database_now
from config.letters import Effect, Refusal
from config.payload import digest
from outbox.letters.edits import examine, requeue_copy, sweep_copies, text_of
from outbox.letters.models import DeadLetter, PayloadRevision
from outbox.letters.verify import letters_are_as_they_came
from outbox.models import OperatorAction
from tests.buffer.ledger.conftest import COOKED, RECEIVED, quantities, received, record, stocks, sums, write
from tests.outbox.letters.edits.edited import REASON, again, edited, faults, only, send, verdict

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _letters_keep_their_bytes(db):
    yield
    assert [check for check in letters_are_as_they_came() if not check.ok] == []


# -- the ledger --------------------------------------------------------------------------------------------
@pytest.fixture
def receipt() -> DeadLetter:
    """Of a receipt whose second line has no quantity."""
    stocks(A=0, B=0)
    lines = [{"stockId": "A", "quantity": 24}, {"stockId": "B"}]
    write(record((RECEIVED, {"purchaseOrderId": "PO-1", "items": lines})))
    return only()


FIXED = ('{"stockId": "B"}', '{"stockId": "B", "quantity": 12}')


def test_the_copy_of_a_receipt_says_what_it_would_do_and_does_it(receipt):
    text = edited(receipt, FIXED)
    assert faults(receipt, text_of(receipt)) == [("items[1].quantity", 5)]
    assert verdict(receipt, text) == "stock A: +24, stock B: +12"
    assert not InventoryTracking.objects.exists(), "a check writes nothing"
    before = bytes(receipt.payload)
    assert send(receipt, text) == "resolved"
    assert quantities() == sums() == {"A": 24, "B": 12}
    after = again(receipt)
    assert (after.status, bytes(after.payload)) == ("resolved", before)
    row = InventoryTracking.objects.get(stock_id="B")
    assert (row.source_partition, row.source_offset) == (receipt.partition, receipt.offset)


def test_the_revision_and_the_action_say_who_and_why_and_only_one_has_the_payload(receipt):
    send(receipt, edited(receipt, FIXED))
    revision = PayloadRevision.objects.get()
    assert (revision.letter, revision.number, revision.editor, revision.reason) == (receipt.pk, 1, "ann", REASON)
    assert msgspec.json.decode(revision.payload)["items"][1]["quantity"] == 12
    assert b"\n" not in bytes(revision.payload)
    action = OperatorAction.objects.get()
    assert (action.verb, action.subject_id, action.reason) == ("edit_and_requeue", str(receipt.pk), REASON)
    assert action.before == {"status": "open", "payload": digest(bytes(receipt.payload))}
    assert action.after == {"status": "resolved", "payload": digest(bytes(revision.payload))}
    assert "stockId" not in str(OperatorAction.objects.values().get())
    assert (revision.digest_before, revision.digest_after) == (action.before["payload"], action.after["payload"])


def test_a_copy_of_what_the_gate_let_through_is_about_the_same_reference():
    """Its paths may be spelled otherwise in a topic that somebody added; its reference is compared, too."""
    write(record(received("PO-1", A=3)))
    letter = only()
    assert letter.reason == "unknown_stock"
    stocks(B=0)
    assert faults(letter, edited(letter, ('"A"', '"B"'))) == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MovementLetters, "locked", ())
        (fault,) = examine(letter, edited(letter, ("PO-1", "PO-2")), database_now()).faults
    assert fault.text.startswith("It is about PURCHASE_ORDER PO-2; the letter is about PURCHASE_ORDER PO-1.")


def test_a_copy_that_would_fail_again_does_not_go(receipt):
    text = edited(receipt, FIXED, ('"A"', '"UNKNOWN"'))
    found = examine(receipt, text, database_now())
    assert not found.may_go
    assert found.judgement.verdict == "Fails again."
    with pytest.raises(Refusal, match="check it again"):
        send(receipt, text)
    assert (again(receipt).status, PayloadRevision.objects.count()) == ("open", 0)


def test_what_the_flow_refuses_at_the_last_moment_leaves_no_trace(receipt, monkeypatch):
    monkeypatch.setattr(
        MovementLetters, "take_back", lambda self, found, now: {receipt.pk: Effect("refused", "not just now")}
    )
    with pytest.raises(Refusal, match="not just now"):
        send(receipt, edited(receipt, FIXED))
    assert again(receipt).status == "open"
    assert (PayloadRevision.objects.count(), OperatorAction.objects.count()) == (0, 0)


def test_a_copy_that_changes_nothing_is_no_edit(receipt):
    write(record(received("PO-9", C=1)))
    letter = DeadLetter.objects.exclude(pk=receipt.pk).get()
    stocks(C=0)
    (fault,) = examine(letter, text_of(letter), database_now()).faults
    assert "Requeue the letter instead" in fault.text
    (spaced,) = examine(letter, text_of(letter).replace("\n", "\n\n"), database_now()).faults
    assert spaced.text == fault.text


def test_the_fault_of_a_status_in_a_list_of_materials_has_its_line():
    write(record((COOKED, {"kitchenTicketItemId": "K", "status": "DONE", "materials": [{"materialStockId": "A"}]})))
    assert faults(only(), text_of(only())) == [("materials[0].quantity", 5)]


# -- the version check -------------------------------------------------------------------------------------
def test_who_comes_second_is_told_who_was_faster(receipt):
    text = edited(receipt, FIXED)
    send(receipt, text)
    with pytest.raises(Refusal, match=r"Somebody was faster\. ann: edit and requeue, .* The letter is resolved now\."):
        requeue_copy(receipt.pk, text, 0, Operator("bob"), REASON)
    assert (PayloadRevision.objects.count(), OperatorAction.objects.count()) == (1, 1)
    assert quantities() == {"A": 24, "B": 12}


# -- how long ----------------------------------------------------------------------------------------------
def test_copies_go_with_their_letters(receipt):
    send(receipt, edited(receipt, FIXED))
    assert (sweep_copies(database_now()), PayloadRevision.objects.count()) == (0, 1)
    PayloadRevision.objects.create(
        letter="019aa5c1-52e0-7c41-9d0e-7be0b1f6a23c", number=1, payload=b"{}", created_at=database_now()
    )
    assert sweep_copies(database_now()) == 1
    assert PayloadRevision.objects.get().letter == receipt.pk
