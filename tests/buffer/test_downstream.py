"""What a consumer of the batches adds up is what the producer said last, whatever was refused, discarded, restored or edited."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from buffer.events.models import Batch, BufferedEvent
from buffer.flush import supplement
from buffer.flush.flusher import Flusher
from config.admin.levers import Operator
from config.database.clock import database_now
from config.database.retry import Stale
from config.kafka import Refused
from config.payload import digest
from outbox.letters import redelivery
from outbox.letters.edits import requeue_copy
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from outbox.letters.verify import what_failed_again_is_linked
from tests.buffer.flush.test_flusher import urge
from tests.conftest import order

pytestmark = pytest.mark.django_db
ME = Operator("test")
SKUS = ("S1", "S2")


@pytest.fixture(autouse=True)
def _letters_add_up(everything_adds_up):
    yield
    assert what_failed_again_is_linked().ok


class Shop:
    """A producer of one order's versions, an operator, and the warehouse that adds up what it is sent."""

    def __init__(self, ingest, records, stream, producer) -> None:
        self.ingest, self.records, self.stream, self.producer = ingest, records, stream, producer

    def say(self, **items: int) -> None:
        self.ingest(self.records(order("A1", items=items)))

    def flush(self, *, refused: bool = False) -> None:
        urge()
        self.producer.outcomes = [Refused("too large")] * 5 if refused else []
        for _ in range(3):
            Flusher([self.stream], self.producer).tick()
        self.producer.outcomes = []

    @property
    def downstream(self) -> dict[str, int]:
        total: Counter[str] = Counter()
        for message in self.producer.values:
            for item in message["items"]:
                total[item["sku"]] += item["quantity"]
        return {sku: number for sku, number in total.items() if number}

    def letters(self, step: str, status: str = "open") -> list[DeadLetter]:
        return list(DeadLetter.objects.filter(step=step, status=status).order_by("offset", "pk"))

    def requeue(self, step: str, place: int = 0) -> DeadLetter:
        letter = self.letters(step)[place]
        assert pull("requeue", [letter.pk], ME, "as it should be").acted == 1
        letter.refresh_from_db()
        return letter

    def edit(self, **items: int) -> None:
        (letter,) = self.letters("late")
        requeue_copy(letter.pk, order("A1", items=items).decode(), 0, ME, "a wrong number")

    def discard(self, step: str = "publish") -> None:
        (letter,) = self.letters(step)
        assert pull("discard", [letter.pk], ME, "never mind").acted == 1
        redelivery.look_after(database_now())

    def restore(self, step: str) -> tuple[int, list[str]]:
        (letter,) = self.letters(step, "discarded")
        outcome = pull("restore", [letter.pk], ME, "after all")
        return outcome.acted, [why for _letter, why in outcome.refused]

    def refuse_and_discard(self) -> None:
        """The supplement that waits."""
        self.flush(refused=True)
        self.discard()


@pytest.fixture
def shop(ingest, records, stream, producer):
    """Five were sent."""
    found = Shop(ingest, records, stream, producer)
    found.say(S1=5)
    found.flush()
    assert found.downstream == {"S1": 5}
    return found


# After five were sent: a number is said by the producer, several in one poll (`8,5`), `12+1` of two articles; `late`
# requeues the letter of it, and so on; `=8` is what the warehouse has then.
STORIES = {
    "a discarded supplement is made up for by the next": "8 late refuse discard 10 late flush =10",
    "several of them are made up for at once and once":
        "8 late refuse discard 4 late refuse discard 12+1 late flush =12+1 13+1 late flush =13+1",
    "nothing is sent where the discarded one was taken back by the producer":
        "8 late refuse discard 5 late 6 late flush =6 two-messages",
    "one that was discarded after the next was made is missing in the one after":
        "8 late refuse 10 late flush =7 discard 11 late flush =11",
    "one that is restored counts as sent": "8 late refuse discard restore publish 10 late flush =10",
    "taken back and said again it is late again": "8 5 8 newest flush late flush =8",
    "taken back in the same poll it is not sent": "8,5 late flush =5",
    "taken back after a supplement it is taken back by one": "8 late flush 5 8 5 newest newest flush =5",
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_the_last_word_arrives(shop, story):
    steps = {
        "late": lambda: shop.requeue("late"),
        "newest": lambda: shop.requeue("late", -1),
        "publish": lambda: shop.requeue("publish"),
        "refuse": lambda: shop.flush(refused=True),
        "flush": shop.flush,
        "discard": shop.discard,
        "restore": lambda: shop.restore("publish"),
    }
    for step in STORIES[story].split():
        if step == "two-messages":
            assert len(shop.producer.sent) == 2
        elif step.startswith("="):
            assert shop.downstream == articles(step[1:]), step
        elif step in steps:
            steps[step]()
        else:
            shop.ingest(shop.records(*(order("A1", items=articles(version)) for version in step.split(","))))


def articles(text: str) -> dict[str, int]:
    return dict(zip(SKUS, map(int, text.split("+")), strict=False))


def test_one_that_was_made_up_for_is_not_restored(shop):
    shop.say(S1=8)
    shop.requeue("late")
    shop.refuse_and_discard()
    shop.say(S1=10)
    shop.requeue("late")
    assert shop.restore("publish") == (0, ["a later supplement has sent what it would have said"])
    shop.flush()
    assert shop.downstream == {"S1": 10}


def test_one_that_somebody_else_makes_up_for_meanwhile_is_not_made_up_for_again(shop, monkeypatch):
    shop.say(S1=8)
    shop.requeue("late")
    shop.refuse_and_discard()
    shop.say(S1=10)

    def meanwhile(payload):
        Batch.objects.filter(status="discarded").update(made_up_at=database_now())
        return digest(payload)

    monkeypatch.setattr(supplement, "digest", meanwhile)
    with pytest.raises(Stale, match="a discarded supplement has changed"):
        shop.requeue("late")
    monkeypatch.undo()
    shop.requeue("late")
    shop.flush()
    assert shop.downstream == {"S1": 10}


def test_the_late_letter_of_a_discarded_supplement_sends_it_anew_when_it_is_restored(shop):
    shop.say(S1=8)
    shop.requeue("late")
    shop.refuse_and_discard()
    assert shop.restore("late") == (1, [])
    letter = shop.requeue("late")
    shop.flush()
    assert shop.downstream == {"S1": 8}
    redelivery.look_after(database_now())
    letter.refresh_from_db()
    assert letter.status == "resolved"


def test_an_edited_copy_of_it_says_its_own_number(shop):
    shop.say(S1=8)
    shop.edit(S1=7)
    shop.refuse_and_discard()
    assert shop.restore("late") == (1, [])
    (letter,) = shop.letters("late")
    requeue_copy(letter.pk, order("A1", items={"S1": 9}).decode(), 1, ME, "another number")
    shop.flush()
    assert shop.downstream == {"S1": 9}


def test_a_version_that_the_producer_took_back_is_not_sent(shop):
    """A-B-A: the last word is what was sent."""
    shop.say(S1=8)
    shop.say(S1=5)
    letter = shop.requeue("late")
    shop.flush()
    assert shop.downstream == {"S1": 5}
    assert (letter.status, "newer version" in letter.evidence) == ("resolved", True)


def test_taken_back_while_its_batch_waits_it_is_not_sent(ingest, records, stream, producer):
    shop = Shop(ingest, records, stream, producer)
    shop.say(S1=5)
    shop.flush(refused=True)
    shop.say(S1=8)
    shop.say(S1=5)
    shop.requeue("publish")
    shop.flush()
    shop.requeue("late")
    shop.flush()
    assert shop.downstream == {"S1": 5}


def test_of_a_discarded_order_only_the_last_word_opens_it_again(ingest, records, stream, producer):
    shop = Shop(ingest, records, stream, producer)
    shop.say(S1=5)
    shop.refuse_and_discard()
    shop.say(S1=8)
    shop.say(S1=5)
    shop.requeue("late")
    shop.flush()
    assert shop.downstream == {}
    assert BufferedEvent.objects.get().status == "discarded"


def believed(event: BufferedEvent) -> dict[str, int]:
    return {item["sku"]: item["quantity"] for item in msgspec.json.decode(event.payload)["items"]}


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_on_the_way_the_last_word_arrives(ingest, records, stream, producer, seed):
    """A model: when all is decided, the warehouse has what the newest version says."""
    chance = random.Random(seed)
    shop = Shop(ingest, records, stream, producer)
    shop.say(S1=5)
    shop.flush()

    def speak() -> None:
        shop.say(**{sku: chance.randint(1, 4) for sku in SKUS[: chance.randint(1, 2)]})

    def of_one(step: str, status: str, act) -> None:
        if letters := shop.letters(step, status):
            act([chance.choice(letters).pk])

    def give_back(ids) -> None:
        pull("requeue", ids, ME, "as it should be")

    def put_back(ids) -> None:
        for _letter, why in pull("restore", ids, ME, "after all").refused:
            assert "a later supplement" in why

    actions = [
        speak,
        speak,
        lambda: of_one("late", "open", give_back),
        lambda: of_one("late", "open", give_back),
        lambda: shop.flush(refused=True),
        shop.flush,
        lambda: of_one("publish", "open", give_back),
        lambda: of_one("publish", "open", lambda ids: pull("discard", ids, ME, "never mind")),
        lambda: of_one("publish", "open", lambda ids: pull("discard", ids, ME, "never mind")),
        lambda: of_one("publish", "discarded", put_back),
        lambda: of_one("late", "discarded", put_back),
        lambda: redelivery.look_after(database_now()),
    ]
    for _ in range(40):
        chance.choice(actions)()
    last = {sku: chance.randint(5, 9) for sku in SKUS}
    shop.say(**last)
    while shop.letters("late") or shop.letters("publish") or Batch.objects.claimed().exists():
        for step in ("publish", "late"):
            of_one(step, "open", give_back)
        shop.flush()
    assert shop.downstream == last == believed(BufferedEvent.objects.get())
