"""What was tried is written down, whatever words the other side found for it: else it would be tried again."""

from __future__ import annotations

import pytest

from outbox.letters.models import DeadLetter
from outbox.models import DeliveryAttempt, OutboxMessage
from outbox.verify import checks
from tests.outbox.scripted import Outcome, message, promise
from tests.refusing import refusing

pytestmark = pytest.mark.django_db(transaction=True)
STRANGE = Outcome("permanent", "Unbekannt … 東京")


@pytest.fixture(autouse=True)
def _everything_adds_up(transactional_db):
    yield
    assert [check for check in checks() if not check.ok] == []


@pytest.mark.parametrize("model", [OutboxMessage, DeliveryAttempt])
def test_an_answer_that_the_database_refuses_is_escaped_and_spares_the_others(memory, go, model):
    memory.by_aggregate["order:2"] = [STRANGE]
    ids = [promise(f"order:{number}") for number in range(5)]
    with refusing(model, "error", "東京"):
        assert go(memory) == 4
    assert [message(pk).state for pk in ids] == ["sent", "sent", "dead_lettered", "sent", "sent"]
    assert (message(ids[2]).error, len(memory.calls)) == ("Unbekannt \\u2026 \\u6771\\u4eac", 5)
    assert DeadLetter.objects.get().business_key == "order:2"


def test_in_one_call_of_many_it_is_found_by_halves(install, go):
    from outbox.channels.permits import ensure
    from tests.outbox.scripted import Scripted

    handler = install(Scripted(acknowledges="batch"))
    ensure([handler.name])
    handler.by_aggregate["order:5"] = [STRANGE]
    ids = [promise(f"order:{number}") for number in range(9)]
    with refusing(OutboxMessage, "error", "東京"):
        assert go(handler) == 8
    assert [message(pk).state for pk in ids].count("sent") == 8
    assert (len(handler.calls), message(ids[5]).state) == (1, "dead_lettered")


def test_an_answer_that_is_refused_in_any_words_is_written_without_them(memory, go):
    memory.answers = [Outcome("permanent", "no such mailbox")]
    pk = promise()
    with refusing(OutboxMessage, "error", "mailbox"):
        go(memory)
    assert (message(pk).state, message(pk).error) == ("dead_lettered", "the database refuses what was answered")


@pytest.mark.parametrize(
    "answer",
    [
        Outcome("permanent", "nul \x00, half \ud83d"),
        Outcome("permanent", "refused", reason="r" * 300),
        Outcome("transient", "x" * 100_000),
        Outcome("transient", "later", retry_after=1e300),
        Outcome("transient", "later", least_wait=float("inf")),
        Outcome("transient", "later", retries_last=float("inf")),
        Outcome("transient", "later", retry_after=float("nan")),
        Outcome("throttled", "later", retry_after=-1e300),
        Outcome("sent", receipt="nul \x00" * 200),
    ],
)
def test_an_answer_that_no_column_takes_is_settled(memory, go, answer):
    memory.answers = [answer]
    pk = promise()
    go(memory)
    assert message(pk).state in ("dead_lettered", "pending", "sent")
    assert len(memory.calls) == 1
