"""Two at one letter, on connections of their own: one copy takes effect, and the other editor is told who was faster."""

from __future__ import annotations

import pytest

from buffer.models import InventoryTracking
from config.admin.levers import Operator
from config.letters import Refusal
from outbox.letters import levers
from outbox.letters.edits import requeue_copy, text_of
from outbox.letters.models import DeadLetter, PayloadRevision
from outbox.models import FailureGroup, OperatorAction
from tests.buffer.ledger.conftest import RECEIVED, record, stocks, sums, write
from tests.outbox.race import race

pytestmark = pytest.mark.django_db(transaction=True)
ROUNDS = 5


@pytest.fixture(params=range(ROUNDS))
def letter(request) -> DeadLetter:
    stocks(A=0)
    write(record((RECEIVED, {"purchaseOrderId": f"PO-{request.param}", "items": [{"stockId": "A"}]})))
    return DeadLetter.objects.get()


def edit(letter: DeadLetter, name: str, quantity: int) -> str:
    """What became of it, in one word or in the words of the refusal."""
    text = text_of(letter).replace('"A"', f'"A", "quantity": {quantity}')
    try:
        return requeue_copy(letter.pk, text, 0, Operator(name), "the supplier confirmed it").state
    except Refusal as refusal:
        return str(refusal)


def test_of_two_editors_one_is_faster(letter):
    results = race(lambda: edit(letter, "ann", 3), lambda: edit(letter, "bob", 5))
    assert results.count("resolved") == 1
    (told,) = [found for found in results if found != "resolved"]
    winner = PayloadRevision.objects.get()
    assert told.startswith(f"Somebody was faster. {winner.editor}: edit and requeue")
    assert OperatorAction.objects.get().actor_name == winner.editor
    assert sums() == {"A": 3 if winner.editor == "ann" else 5}
    assert (FailureGroup.objects.get().open_count, InventoryTracking.objects.count()) == (0, 1)


def test_an_editor_and_a_lever_at_once_are_one_deed(letter):
    found, discarded = race(
        lambda: edit(letter, "ann", 3),
        lambda: levers.pull("discard", [letter.pk], Operator("bob"), "nobody wants it").acted,
    )
    assert (found == "resolved") != bool(discarded)
    assert found == "resolved" or "bob: discard" in found
    assert OperatorAction.objects.count() == 1
    assert PayloadRevision.objects.count() == InventoryTracking.objects.count() == 1 - discarded
    assert FailureGroup.objects.get().open_count == 0
