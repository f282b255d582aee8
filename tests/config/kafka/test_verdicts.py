"""What a transaction's verdict rests on, step by step, with a client that answers as a test says: no broker is needed."""

from __future__ import annotations

import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from kafka import errors
from kafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError
from kafka.structs import ConsumerGroupMetadata

from config.kafka import client, producer_internals
from config.kafka.transactional_producer import Committed, RefusedByGroup, RefusedRecord, TransactionalProducer, Unknown

MEMBER = ConsumerGroupMetadata("g", 3, "m", None)
LIMIT = 0.4  # seconds, for all steps of a commit together
EXPIRED = client.KafkaTimeoutError("the batch expired before it was sent")
TOO_LARGE = client.MessageSizeTooLargeError("too large")
STEPS = ["send_offsets", "begin_commit", "begin_abort"]


class Result:
    """What a step waits for: it comes at once, never, or as an error."""

    def __init__(self, answer):
        self.answer = answer

    def wait(self, timeout_ms):
        if isinstance(self.answer, Exception):
            raise self.answer
        if not self.answer:
            time.sleep(min(timeout_ms / 1000, 5))
        return self.answer


class Client:
    """Notes what is asked of it. `errors` of the records; `answers` to the steps, True where nothing is said."""

    def __init__(self):
        self.asked, self.errors, self.answers = [], [], {}

    def begin_transaction(self):
        self.asked = []

    def step(self, name):
        def ask(*_arguments):
            self.asked.append(name)
            return Result(self.answers.get(name, True))

        return ask

    def errors_of(self, _batch, _deadline):
        self.asked.append("records")
        return self.errors


@pytest.fixture
def broker(monkeypatch):
    found = Client()
    monkeypatch.setattr(client, "new_transactional_producer", lambda *_, **__: found)
    for name in (*STEPS, "init_transactions"):
        monkeypatch.setattr(producer_internals, name, found.step(name))
    monkeypatch.setattr(producer_internals, "errors_of", found.errors_of)
    monkeypatch.setattr(producer_internals, "send_batch", lambda *_: SimpleNamespace())
    for name in ("wake", "drop_producer"):
        monkeypatch.setattr(producer_internals, name, lambda _client: None)
    return found


def committed(broker, member=MEMBER):
    producer = TransactionalProducer("id", LIMIT)
    producer.rebuild()
    producer.begin()
    for value in (b"one", b"three"):
        producer.send("t", 0, None, value, [])
    return producer.commit({("t", 0): 7}, member), producer


def test_a_transaction_takes_its_steps_in_their_order(broker):
    assert committed(broker)[0] == Committed()
    assert broker.asked == ["records", "send_offsets", "begin_commit"]


def test_a_record_that_was_not_sent_is_never_committed(broker):
    """The client itself would commit."""
    broker.errors = [(1, EXPIRED)]
    verdict, producer = committed(broker)
    assert (type(verdict), producer.usable) == (Unknown, False)
    assert broker.asked == ["records"]


def test_of_a_record_that_is_refused_the_rest_is_given_up(broker):
    broker.errors = [(0, EXPIRED), (1, TOO_LARGE)]
    verdict, _producer = committed(broker)
    assert isinstance(verdict, RefusedRecord)
    assert (verdict.index, broker.asked) == (1, ["records", "begin_abort"])


@pytest.mark.parametrize("other", [TopicAuthorizationFailedError("t"), TOO_LARGE])
def test_a_right_that_is_missing_is_the_matter_of_no_record(broker, other):
    """The client fails everything in the transaction with it, whichever topic it is about."""
    broker.errors = [(0, other), (1, TopicAuthorizationFailedError("t"))]
    with pytest.raises(client.AuthorizationError):
        committed(broker)
    assert broker.asked == ["records"]


def test_a_record_that_no_request_can_carry_is_refused_before_anything_is_sent(broker):
    producer = TransactionalProducer("id", LIMIT)
    producer.rebuild()
    producer.begin()
    for size in (1, client.MAX_REQUEST_BYTES):
        producer.send("t", 0, None, b"x" * size, [])
    verdict = producer.commit({("t", 0): 7}, MEMBER)
    assert (type(verdict), verdict.index, broker.asked[-1]) == (RefusedRecord, 1, "begin_abort")


@pytest.mark.parametrize(("holder", "built"), [("another", False), ("m", True), ("", True)])
def test_while_another_member_has_the_name_no_producer_is_built(broker, monkeypatch, holder, built):
    """It has the transactional id as well, and would be fenced."""
    monkeypatch.setattr("config.kafka.transactional_producer.holder_of_name", lambda *_: holder)
    producer = TransactionalProducer("id", LIMIT)
    with nullcontext() if built else pytest.raises(client.KafkaError, match="another member is named of g"):
        producer.rebuild(MEMBER._replace(group_instance_id="named"))
    assert producer.usable is built


def test_a_group_that_may_not_be_written_is_no_doubt_either(broker):
    broker.answers["send_offsets"] = GroupAuthorizationFailedError("g")
    with pytest.raises(client.AuthorizationError):
        committed(broker)


# What the broker answers to offsets of a member that was thrown out, or of a generation that is over.
MOVED_ON = ["CommitFailedError", "IllegalGenerationError", "RebalanceInProgressError", "UnknownMemberIdError"]


@pytest.mark.parametrize("error", MOVED_ON)
def test_offsets_that_the_group_refuses_are_a_refusal_and_not_a_doubt(broker, error):
    broker.answers["send_offsets"] = getattr(errors, error)("moved on")
    verdict, producer = committed(broker)
    assert (type(verdict), producer.usable) == (RefusedByGroup, True)
    assert broker.asked == ["records", "send_offsets", "begin_abort"]


def test_who_is_in_no_generation_sends_no_offsets(broker):
    assert isinstance(committed(broker, MEMBER._replace(generation_id=-1))[0], RefusedByGroup)
    assert broker.asked == ["records", "begin_abort"]


@pytest.mark.parametrize("step", STEPS[:2])
def test_an_answer_that_never_comes_leaves_the_outcome_unknown_within_the_limit(broker, step):
    broker.answers[step] = False
    began = time.monotonic()
    verdict, producer = committed(broker)
    assert time.monotonic() - began < 3 * LIMIT
    assert (verdict, producer.usable) == (Unknown("KafkaTimeoutError: no answer within the limit"), False)


def test_giving_up_has_no_more_time_than_the_whole(broker):
    broker.errors, broker.answers["begin_abort"] = [(1, TOO_LARGE)], False
    began = time.monotonic()
    verdict, producer = committed(broker)
    assert time.monotonic() - began < 3 * LIMIT
    assert (type(verdict), producer.usable) == (RefusedRecord, False)


def test_a_producer_that_is_never_answered_is_none(broker):
    broker.answers["init_transactions"] = False
    producer, began = TransactionalProducer("id", LIMIT), time.monotonic()
    with pytest.raises(client.KafkaTimeoutError):
        producer.rebuild()
    assert time.monotonic() - began < 3 * LIMIT
    assert not producer.usable
