"""Keys of messages that are letters: as long as a letter may bring its message back, nobody promises it a second time."""

from datetime import timedelta

import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.delivery.levers import resend
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from outbox.messages.retention import sweep_keys
from outbox.models import IdempotencyKey, OutboxMessage
from tests.outbox.scripted import PERMANENT, promise

pytestmark = pytest.mark.django_db
ANN = Operator("ann")


def swept() -> int:
    IdempotencyKey.objects.update(created_at=database_now() - timedelta(days=8))
    return sweep_keys(database_now())


@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize(("verb", "kept"), [("", True), ("discard", True), ("requeue", True), ("resolve", False)])
def test_the_key_of_a_dead_message_is_kept_until_its_letter_is_resolved(memory, go, gone, verb, kept):
    memory.always = PERMANENT
    first = promise("order:1")
    go(memory)
    if gone:
        OutboxMessage.objects.all().delete()
    if verb:
        pull(verb, [DeadLetter.objects.get().pk], ANN, "for a reason")
    assert swept() == (not kept)
    assert IdempotencyKey.objects.filter(message_id=first).exists() is kept


@pytest.mark.parametrize(
    ("state", "kept"), [("pending", True), ("processing", True), ("uncertain", True), ("sent", False)]
)
def test_the_key_of_what_may_still_be_sent_is_kept(memory, state, kept):
    promise()
    OutboxMessage.objects.update(state=state)
    assert swept() == (not kept)


def test_the_key_of_what_was_sent_again_is_kept_and_says_of_which_family_it_is(memory, go):
    first = promise()
    go(memory)
    again = resend(first, ANN, "it never came")
    go(memory)
    assert swept() == 1
    assert IdempotencyKey.objects.get().message_id == again
