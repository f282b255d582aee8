"""A letter of the ledger is resolved at once, by the rows that stand in the ledger with its deltas."""

from __future__ import annotations

import pytest
from django.db import transaction

from buffer.ledger import movement_letters
from buffer.models import InventoryStock, InventoryTracking
from config.database.clock import database_now
from outbox.letters import redelivery as proof
from outbox.letters.models import DeadLetter
from tests.buffer.ledger.conftest import MERCHANTS, cooked, paid, quantities, record, stocks, sums, write

pytestmark = pytest.mark.django_db


def take_back(letters: list[DeadLetter]) -> dict[str, str]:
    """`{business key: state}`."""
    with transaction.atomic():
        found = proof.take_back(letters, database_now())
    return {letter.business_key: found[letter.pk].state for letter in letters}


def judged(letters: list[DeadLetter]) -> dict[str, str]:
    found = proof.judge(letters, database_now())
    return {letter.business_key: found[letter.pk].verdict for letter in letters}


def letters() -> list[DeadLetter]:
    return list(DeadLetter.objects.open().order_by("pk"))


def test_a_chunk_is_recorded_at_once_and_resolved_by_its_rows():
    write(*[record(paid(f"S{n}", A=n + 1)) for n in range(30)])
    stocks(A=0)
    assert set(judged(letters()).values()) == {f"stock A: -{n + 1}" for n in range(30)}
    assert set(take_back(letters()).values()) == {"resolved"}
    assert quantities() == sums() == {"A": -sum(range(1, 31))}
    evidence = DeadLetter.objects.get(business_key="S4").evidence
    assert evidence == "recorded: SALE_ORDER S4, stock A: -5"


def test_what_fails_again_spares_the_others():
    write(record(paid("S1", A=1)), record(paid("S2", B=1)))
    stocks(A=0)
    assert judged(letters()) == {"S1": "stock A: -1", "S2": "Fails again."}
    assert take_back(letters()) == {"S1": "resolved", "S2": "failed_again"}
    after = DeadLetter.objects.open().get()
    before = DeadLetter.objects.get(status="failed_again")
    assert (before.successor, after.predecessor, after.business_key) == (after.pk, before.pk, "S2")
    assert quantities() == {"A": -1} == sums()


def test_rows_that_do_not_stand_prove_nothing(monkeypatch):
    """The handler says that it wrote them; the proof looks."""
    write(record(paid("S1", A=1)))
    stocks(A=0)
    monkeypatch.setattr(movement_letters, "read_known", lambda *_: {})
    assert take_back(letters()) == {"S1": "waiting"}
    assert DeadLetter.objects.get().status == "requeued"
    monkeypatch.undo()
    assert proof.look_after(database_now()) == 1
    assert DeadLetter.objects.get().status == "resolved"


def test_another_delta_in_the_ledger_is_no_proof():
    write(record(paid("S1", A=1)))
    stocks(A=0)
    DeadLetter.objects.update(status="requeued")
    write(record(paid("S1", A=3)))
    proof.look_after(database_now())
    assert DeadLetter.objects.get().status == "requeued"


def test_a_letter_without_movements_says_so():
    write(record((MERCHANTS, b"{bad")), record(cooked("K1", A=1)))
    stocks(A=0)
    DeadLetter.objects.filter(topic=MERCHANTS).update(payload=b'{"op": "c", "after": {"id": "M9"}}')
    assert set(take_back(letters()).values()) == {"resolved"}
    assert DeadLetter.objects.get(topic=MERCHANTS).evidence == "the location of merchant M9 is there"


def test_letters_of_several_revisions_and_topics_come_back_in_one_call():
    write(record(paid("S1", A=1)), record(cooked("K1", A=2)))
    take_back(letters())
    write(record(paid("S2", A=4)))
    assert sorted(letter.revision for letter in letters()) == [0, 1, 1]
    InventoryStock.objects.create(pk="A")
    assert set(take_back(letters()).values()) == {"resolved"}
    assert InventoryTracking.objects.count() == 3
    assert quantities() == {"A": -7} == sums()
