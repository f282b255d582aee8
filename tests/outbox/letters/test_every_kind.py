"""What each kind of letters promises: judged, taken back once, proven by its effect, linked when it fails again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import ClassVar

import msgspec
import pytest
from django.db import transaction

from buffer.events import levers as buckets
from buffer.events.models import Bucket
from buffer.flush.batch_letters import RefusedBatchLetters
from buffer.flush.flusher import Flusher
from buffer.ledger.movement_letters import MovementLetters
from buffer.order_letters import LateLetters, OrderLetters
from config.admin.levers import Operator
from config.database.clock import database_now
from config.flows import flows, letters_of, prove
from config.kafka import Refused, Replayed, topic_name
from config.letters import Letters, Refusal
from outbox.delivery.message_letters import MessageLetters
from outbox.intake.promise_letters import PromiseLetters
from outbox.letters import levers, redelivery
from outbox.letters.burial import Letter, bury
from outbox.letters.edits import requeue_copy, text_of, why_not
from outbox.letters.levers import LeverOutcome
from outbox.letters.models import NOT_JUDGED, DeadLetter, PayloadRevision
from outbox.models import FailureGroup, OperatorAction, OutboxMessage, Watermark
from outbox.workers.change_capture import HintLetters
from tests.buffer.ledger import conftest as ledger
from tests.conftest import TOPIC_ID, order
from tests.outbox.intake import conftest as intake
from tests.outbox.letters.edits.edited import ANN, REASON, faults
from tests.outbox.scripted import PERMANENT, promise
from throttler.notification_letters import NotificationLetters

pytestmark = pytest.mark.django_db
ME = Operator("me")
Fixture = Callable[[str], object]


class Kind:
    """One kind of letters: how a letter of it comes to be, how its effect comes, and how it fails again."""

    letters: type[Letters]
    awaited = True  # nothing is proven before `bring`
    change = ("", "")  # what may be edited in its text; nothing where nobody may
    locked: ClassVar[list[tuple[str, str]]] = []  # what may not

    def __init__(self, fixture: Fixture) -> None:
        self.fixture = fixture

    def make(self) -> None:
        """Bury one."""
        raise NotImplementedError

    def bring(self) -> None:
        """Whoever brings the effect of requeued letters does so."""

    def prepare_failure(self) -> None:
        """Before it is taken back: it will fail again."""
        raise NotImplementedError


class Orders(Kind):
    letters = OrderLetters
    locked: ClassVar = [("A1", "A2"), ("WH-1", "WH-2"), ('Z"', '+00:00"')]
    change = ('"quantity": 1', '"quantity": 3')

    def make(self) -> None:
        self.fixture("settings").BUFFER_RETENTION_MONTHS = 1
        self.ingest(order("A1", at="2026-08-01T10:00:00Z"))
        self.fixture("settings").BUFFER_RETENTION_MONTHS = 13

    def ingest(self, *values: bytes) -> None:
        self.fixture("ingest")(self.fixture("records")(*values))

    def bring(self) -> None:
        buckets.flush_now(list(Bucket.objects.values_list("pk", flat=True)), ME, "test")
        while Flusher([self.fixture("stream")], self.fixture("producer")).tick():
            pass

    def prepare_failure(self) -> None:
        self.fixture("settings").BUFFER_RETENTION_MONTHS = 1


class RefusedBatches(Orders):
    letters = RefusedBatchLetters
    locked: ClassVar = []
    change = ("", "")

    def make(self) -> None:
        self.ingest(order("A1"))
        self.prepare_failure()
        self.bring()

    def prepare_failure(self) -> None:
        self.fixture("producer").outcomes = [Refused("too large")]


class LateOrders(Orders):
    letters = LateLetters
    change = ('"quantity": 5', '"quantity": 4')

    def make(self) -> None:
        self.ingest(order("A1"))
        self.bring()
        self.ingest(order("A1", items={"S1": 5}))


class Movements(Kind):
    letters = MovementLetters
    awaited = False  # its rows stand when it is taken back
    change = ('"quantity": 1', '"quantity": 2')
    locked: ClassVar = [("S1", "S2")]

    def make(self) -> None:
        ledger.write(ledger.record(ledger.paid("S1", A=1)))
        ledger.stocks(A=0)

    def prepare_failure(self) -> None:
        ledger.InventoryStock.objects.all().delete()


class Messages(Kind):
    letters = MessageLetters
    change = ('"n": 1', '"n": 2')
    locked: ClassVar = [('"order_id": "7"', '"order_id": "8"')]

    def __init__(self, fixture: Fixture) -> None:
        super().__init__(fixture)
        self.memory = fixture("memory")

    def make(self) -> None:
        promise(payload={"n": 1, "order_id": "7"})
        self.prepare_failure()
        self.bring()

    def bring(self) -> None:
        self.fixture("go")(self.memory)

    def prepare_failure(self) -> None:
        self.memory.answers = [PERMANENT]


class Hints(Messages):
    letters = HintLetters
    change = ("", "")
    locked: ClassVar = []

    def make(self) -> None:
        hint = {"id": str(promise()), "event_type": "order.paid", "created_at": None}
        buried("outbox", "decode", "outbox.outbox_message", msgspec.json.encode(hint))


class Promises(Messages):
    letters = PromiseLetters
    locked: ClassVar = []  # its key may be another one, and its aggregate may be put right

    def make(self) -> None:
        self.fixture("settings").MESSAGES_IN = {"messages-in": {"": ["kafka"]}}
        intake.write(intake.record(intake.envelope(channel="memory", payload={"n": 1})))
        self.fixture("settings").MESSAGES_IN = {"messages-in": {"": ["memory"]}}


class Notifications(Kind):
    letters = NotificationLetters
    change = ('"recipient": "a"', '"recipient": "b"')
    locked: ClassVar = [("acme", "other"), ("n-1", "n-2")]

    def make(self, partition: int = 3, offset: int = 17) -> None:
        notice = {"notification_id": "n-1", "customer_id": "acme", "recipient": "a", "message": {}}
        value = msgspec.json.encode({**notice, "created_at": datetime.now(UTC).isoformat()})
        buried("throttler", "store", "notifications-in", value, partition, offset)

    def bring(self) -> None:
        OutboxMessage.objects.update(state="sent", receipt="5/40", sent_at=database_now())
        if self.fails:
            self.make(5, 40)
        place = {"group": topic_name("throttler"), "topic": topic_name("notifications-in"), "partition": 5}
        Watermark.objects.create(**place, next_offset=41, updated_at=database_now())

    fails = False

    def prepare_failure(self) -> None:
        self.fails = True


KINDS = [Orders, RefusedBatches, LateOrders, Movements, Messages, Hints, Promises, Notifications]
EDITED = [kind for kind in KINDS if kind.change[0]]


def buried(source: str, step: str, topic: str, value: bytes, partition: int = 0, offset: int = 7) -> None:
    record = Replayed(topic_name(topic), partition, offset, 1_900_000_000_000, b"k", value)
    with transaction.atomic():
        bury([Letter(source, step, "reason", "text", record, TOPIC_ID)], source, database_now())


@pytest.fixture
def kind(request) -> Kind:
    made = request.param(request.getfixturevalue)
    made.make()
    return made


@pytest.fixture
def letter(kind) -> Iterator[DeadLetter]:
    found = DeadLetter.objects.get()
    yield found
    assert again(found).payload == found.payload, "its own bytes never change"


every_kind = pytest.mark.parametrize("kind", KINDS, indirect=True)


def again(letter: DeadLetter) -> DeadLetter:
    return DeadLetter.objects.get(pk=letter.pk)


def counts() -> tuple[int, int, str]:
    group = FailureGroup.objects.get()
    return group.open_count, group.requeued_count, group.state


def look() -> int:
    return redelivery.look_after(database_now())


def broken(kind: Kind) -> list[object]:
    """Invariants of its flow and of the outbox that do not hold, among those about letters."""
    return [check for check in prove()["checks"] if not check["ok"] and "letter" in check["name"]]


def test_each_kind_is_one_of_these():
    assert {type(found) for flow in flows() for found in flow.letters()} == {kind.letters for kind in KINDS}


@every_kind
def test_it_is_judged_by_few_of_its_columns_and_nothing_is_written(kind, letter):
    """A preview loads no others: asking for one would be a query for each letter."""
    assert type(letters_of(letter.source, letter.step)) is kind.letters
    few = DeadLetter.objects.to_judge().get()
    missing = few.get_deferred_fields()
    assert redelivery.judge([few], database_now())[letter.pk].eligible
    assert few.get_deferred_fields() == missing
    assert len(missing) == len(NOT_JUDGED)
    assert DeadLetter.objects.values().get() == DeadLetter.objects.filter(pk=letter.pk).values().get()
    assert counts() == (1, 0, "new")


@every_kind
def test_it_is_taken_back_once_and_resolved_by_its_effect_alone(kind, letter):
    assert levers.pull("requeue", [letter.pk], ME, "mended").acted == 1
    action = OperatorAction.objects.get(verb="requeue")
    assert (action.before, action.after) == ({"status": "open"}, {"status": again(letter).status})
    if kind.awaited:
        assert (look(), again(letter).status, again(letter).evidence) == (0, "requeued", "")
        assert counts()[:2] == (0, 1)
        note = again(letter).note
        with transaction.atomic():
            assert redelivery.take_back([letter], database_now()) == {}, "it is not open any more"
        assert broken(kind) == []
        kind.bring()
        assert look() == 1
        assert again(letter).note == note, "what the lever did is not forgotten"
    assert again(letter).status == "resolved"
    assert again(letter).evidence
    assert counts() == (0, 0, "resolved")
    assert broken(kind) == []


# Of a late order and of a hint other files say it: nothing outside them makes them fail again.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in (LateOrders, Hints)], indirect=True)
def test_one_that_fails_again_and_the_next_letter_name_each_other(kind, letter):
    kind.prepare_failure()
    levers.pull("requeue", [letter.pk], ME, "mended")
    if again(letter).status == "requeued":
        kind.bring()
        look()
    before, after = again(letter), DeadLetter.objects.open().get()
    assert (before.status, before.successor, after.predecessor) == ("failed_again", after.pk, letter.pk)
    assert after.business_key == letter.business_key or not letter.business_key
    assert FailureGroup.objects.exclude(state="regressed").count() == FailureGroup.objects.count()
    assert broken(kind) == []


@every_kind
def test_one_that_was_given_up_is_opened_again_and_still_has_its_effect(kind, letter):
    assert levers.pull("discard", [letter.pk], ME, "nobody wants it", code="duplicate").acted == 1
    assert (again(letter).status, again(letter).code, counts()) == ("discarded", "duplicate", (0, 0, "resolved"))
    assert broken(kind) == []
    assert levers.pull("restore", [letter.pk], ME, "somebody does").acted == 1
    assert (again(letter).status, again(letter).code, counts()) == ("open", "", (1, 0, "open"))
    assert levers.pull("restore", [letter.pk], ME, "twice") == LeverOutcome()
    last = OperatorAction.objects.latest("pk")
    assert (last.verb, last.before, last.after) == ("restore", {"status": "discarded"}, {"status": "open"})
    levers.pull("requeue", [letter.pk], ME, "mended")
    kind.bring()
    look()
    assert again(letter).status == "resolved"


@every_kind
@pytest.mark.parametrize("before", ["resolve", "discard"])
def test_one_that_is_closed_is_neither_closed_again_nor_taken_back(kind, letter, before):
    assert levers.pull(before, [letter.pk], ME, "done").acted == 1
    actions, closed, numbers = OperatorAction.objects.count(), again(letter).status, counts()
    for verb in ("resolve", "discard", "requeue"):
        assert levers.pull(verb, [letter.pk], ME, "again") == LeverOutcome()
    with transaction.atomic():
        assert redelivery.take_back([letter], database_now()) == {}
    assert (again(letter).status, counts(), OperatorAction.objects.count()) == (closed, numbers, actions)


@pytest.mark.parametrize("kind", EDITED, indirect=True)
def test_an_edited_copy_has_the_effect_in_its_place(kind, letter):
    assert why_not(letter) == ""
    text = text_of(letter).replace(*kind.change)
    assert faults(letter, text) == []
    requeue_copy(letter.pk, text, 0, ANN, REASON)
    assert (PayloadRevision.objects.get().letter, PayloadRevision.objects.get().editor) == (letter.pk, "ann")
    kind.bring()
    look()
    assert again(letter).status == "resolved"
    assert broken(kind) == []


@pytest.mark.parametrize("kind", EDITED, indirect=True)
def test_a_copy_that_is_about_something_else_is_refused(kind, letter):
    for locked in kind.locked:
        text = text_of(letter).replace(*kind.change).replace(*locked)
        assert len(faults(letter, text)) == 1, locked
        with pytest.raises(Refusal):
            requeue_copy(letter.pk, text, 0, ANN, REASON)
    assert (again(letter).status, PayloadRevision.objects.count()) == ("open", 0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in EDITED], indirect=True)
def test_one_of_which_there_are_no_copies_says_why(kind, letter):
    assert why_not(letter)
