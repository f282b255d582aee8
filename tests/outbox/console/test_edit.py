"""`dead_letters edit`: one field changed in many letters, rehearsed or carried out by one call."""

import io
import json
import re

import pytest
from django.core.management import CommandError, call_command

from config.telemetry.redaction import DOTS
from outbox.letters.models import DeadLetter, PayloadRevision
from outbox.replay_batches.models import ReplayBatch
from tests.buffer.ledger.conftest import RECEIVED, quantities, record, stocks, write

pytestmark = pytest.mark.django_db(transaction=True)


def run(*arguments):
    out = io.StringIO()
    call_command("dead_letters", *map(str, arguments), stdout=out, stderr=io.StringIO())
    return out.getvalue()


QUANTITY = "$.items[0].quantity"
SET = ("--set", QUANTITY, "3", "--as", "json", "--allow-type")
WHO = ("--reason", "The supplier confirmed three")


@pytest.fixture
def receipts():
    """Three letters that the gate refuses."""
    stocks(A=0)
    lines = [{"stockId": "A", "quantity": "zq-planted-7f3a and more"}]
    write(*[record((RECEIVED, {"purchaseOrderId": f"PO-{n}", "items": lines})) for n in range(3)])


def test_an_edit_is_rehearsed_with_three_differences_and_carried_out(receipts):
    said = run("edit", "--all", *SET, "--dry-run").splitlines()
    assert said[0] == "would edit 3 letters; nothing was changed"
    assert [line.partition(": ")[2] for line in said[1:]] == [f'"{DOTS}" -> 3'] * 3
    assert DeadLetter.objects.open().count() == 3
    assert run("edit", "--all", *SET, *WHO).splitlines() == ["3 letters edited and requeued"]
    assert quantities() == {"A": 9}
    assert PayloadRevision.objects.count() == 3
    (batch,) = [json.loads(line) for line in run("batches", "--json").splitlines()]
    assert batch["change"] == {"verb": "set", "path": QUANTITY, "other_type": True, "add": False}


@pytest.mark.parametrize(
    ("given", "code", "why"),
    [
        ((), 2, "edit takes one of --set"),
        (("--remove", "$.a", *SET), 2, "edit takes one of --set"),
        (("--set", "$.a", "3"), 2, "--as text or --as json"),
        (("--set", "$.a[*]", "3", "--as", "text"), 1, "path: Character 5"),
        (("--replace", "$.a", "1", "x", "--as", "json"), 1, "new: Character 1: this is no JSON"),
        (SET, 1, "reason"),
        ((*SET, "--reason", "short"), 1, "At least 10 characters"),
    ],
)
def test_an_edit_that_makes_no_sense_says_why(receipts, given, code, why):
    with pytest.raises(CommandError, match=re.escape(why)) as failed:
        run("edit", "--all", *given)
    assert failed.value.returncode == code
    assert not ReplayBatch.objects.exists()


def test_only_an_edit_knows_what_to_change(receipts):
    with pytest.raises(CommandError, match="--set belongs to edit, not to requeue"):
        run("requeue", "--all", *SET, *WHO)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--replace", QUANTITY, "zq-planted-7f3a and more", "y", "--as", "text"), "the gate refuses the copy"),
        (("--replace", QUANTITY, "other", "y", "--as", "text"), "another value than the one to be replaced"),
        (("--replace-part", QUANTITY, "planted", "y"), "the gate refuses the copy"),
        (("--remove", QUANTITY), "the gate refuses the copy"),
        (("--set", "$.x", "y", "--as", "text"), "nothing is at the path"),
        (("--set", QUANTITY, "3", "--as", "json"), "its value is a text, the new one is a number"),
    ],
)
def test_each_way_to_change_a_field_is_judged(receipts, given, said):
    lines = run("edit", "--all", *given, "--dry-run").splitlines()
    assert lines[0] == "would edit 0 letters; nothing was changed"
    assert said in lines[1]
    assert "planted" not in lines[1]
