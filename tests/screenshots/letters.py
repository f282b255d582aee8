"""Letters of every flow, in every state, and replay batches from the draft to the end; by the flows' own functions."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import count, islice

from django.contrib.auth.models import User
from django.db import transaction

from buffer.ledger.flow import stock_traffic
from buffer.ledger.handler import Track
from config.admin.levers import Operator
from config.database.clock import database_now
from config.kafka import RecordBatch, Replayed
from notifications.channels.local import Memory
from notifications.orders import changes
from outbox.channels.handlers import Outcome, handlers
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.groups import levers as groups
from outbox.groups.models import FailureGroup
from outbox.letters import levers
from outbox.letters.burial import bury
from outbox.letters.field_changes import FieldChange
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.replay_batches import requests
from outbox.replay_batches.models import ReplayBatch
from outbox.replay_batches.run import BatchWorker
from throttler.engine.decisions import decode
from throttler.messages import gate

ANNA, OKAFOR = Operator("A. Petrov"), Operator("M. Okafor")
MENDED = "Hotfix 4471 is out"
REFUSED = [
    "550 5.1.1 <{}>: Recipient address rejected: User unknown in virtual mailbox table",
    "550-5.7.1 [192.0.2.{}] Our system has detected that this message is likely unsolicited mail. {}-si - gsmtp",
]
OFFSETS = count(500)
NOTICES = [b"{not json", b'{"customer_id": "C-01"}', b"[]"]


def fill_letters() -> None:
    """Letters of mails, stock and notifications; then what people do about them."""
    _mails(70)
    _ledger(12)
    _notices(18)
    people_work()
    batches()


def _mails(number: int) -> None:
    """Paid orders whose mail is refused for good, half of them in another provider's words."""
    for at in range(number):
        order = changes.create(f"ada.{at}@example.com", 1999 + at, "EUR", database_now())
        changes.change(order.pk, "pay")
    _relay([Outcome("permanent", _refusal(at)) for at in range(number)])


def _refusal(at: int) -> str:
    """Of one provider for even numbers, of the other for odd ones, with an id of their own."""
    return REFUSED[1].format(at, f"{at}bf{at}") if at % 2 else REFUSED[0].format(f"ada.{at}@example.com")


def _relay(outcomes: Sequence[Outcome]) -> None:
    """Try what is due, with these outcomes first."""
    email = handlers()["email"]
    Memory.script[:] = outcomes
    while (found := claim(email, "poll", 100)).messages:
        deliver(found, email, threading.Event())
    Memory.script.clear()


def _ledger(number: int) -> None:
    poison = (sample for sample in stock_traffic(5, poison=0.5) if sample.key == "poison")
    at = int(database_now().timestamp() * 1000)
    records = [
        Replayed(sample.topic, 0, 9_000 + offset, at, b"poison", sample.value)
        for offset, sample in enumerate(islice(poison, number))
    ]
    handler = Track()
    batch = RecordBatch(records, {record.topic: "b7Sh-9zWR2yT4m0pKc7n1A" for record in records})
    batch.prepared = handler.prepare(batch)
    with transaction.atomic():
        handler.write(batch, database_now())


def _notices(number: int) -> None:
    now = database_now()
    at = int(now.timestamp() * 1000)
    records = [
        Replayed("notifications-in", 3, next(OFFSETS), at, b"C-01", NOTICES[number % 3]) for number in range(number)
    ]
    letters = [found.letter for record in records if (found := decode(record, gate(), "t1")).letter]
    with transaction.atomic():
        bury([letter for letter in letters if letter], "throttler", now)


# -- What people do -----------------------------------------------------------------------------------------
def people_work() -> None:
    """One letter in each state, and groups with an owner and words."""
    notices = list(DeadLetter.objects.filter(source="throttler").open().values_list("pk", flat=True)[:3])
    levers.pull("discard", notices[:1], ANNA, "A test of the training shop", "test")
    levers.pull("resolve", notices[1:2], OKAFOR, "The customer was called instead")
    mails = list(DeadLetter.objects.filter(source="outbox").open().values_list("pk", flat=True)[:3])
    levers.pull("requeue", mails, OKAFOR, MENDED)
    _relay([Outcome("permanent", _refusal(0))])
    BatchWorker(threading.Event()).tick()  # looks for the proof
    levers.pull(
        "requeue", DeadLetter.objects.filter(source="outbox").open().values_list("pk", flat=True)[:1], OKAFOR, MENDED
    )
    group = FailureGroup.objects.filter(source="outbox").order_by("-open_count")[0]
    ito = User.objects.get(username="ito")
    groups.take([group.pk], Operator("S. Ito", ito))
    words = {
        "note": "The provider looks at our reputation, answer expected by noon.",
        "ticket": "https://tickets.example/4471",
        "hint": "Look whether our address is on a block list.\nAfter it is off, requeue all: the mails are unchanged.",
    }
    groups.write_words(group.pk, words, groups.mark_of(group), Operator("S. Ito", ito))
    ignored = FailureGroup.objects.filter(source="transfer-requests").order_by("open_count")[0]
    groups.ignore([ignored.pk], ANNA, "Known, the shop is being mended", "week")


# -- Replay batches -----------------------------------------------------------------------------------------
def batches() -> None:
    """One in each state. Those that run go first: a live one makes others of its source wait."""
    worker = BatchWorker(threading.Event())
    done = _previewed(worker, "discard", group=_group("throttler").pk)
    _confirmed(worker, done, "A test of the training shop", "done")
    first, second = FailureGroup.objects.filter(source="outbox").order_by("-open_count")[:2]
    _stopped(worker, second)
    one_each = FieldChange("set", "$.items[0].quantity", "1", other_type=True)
    edit = requests.draft("edit", Filter(source="transfer-requests"), OKAFOR, change=one_each)
    _until(worker, edit, "previewed")
    _previewed(worker, "requeue", source="transfer-requests")
    held = _previewed(worker, "resolve", group=_group("transfer-requests").pk)
    requests.confirm(held.pk, OKAFOR, "Supplier sent them again by hand")
    thrown = _previewed(worker, "discard", source="ledger")
    requests.cancel(thrown.pk, ANNA)
    _running(worker, first)
    for batch_id in worker.held:
        worker.steps.leave(batch_id)
    requests.draft("requeue", Filter(all=True), ANNA)


def _stopped(worker: BatchWorker, group: FailureGroup) -> None:
    """Its canary is refused once more."""
    batch = _previewed(worker, "requeue", group=group.pk)
    requests.confirm(batch.pk, OKAFOR, MENDED)
    requests.start_now(batch.pk, OKAFOR)
    _step(worker, 4)
    _relay([Outcome("permanent", _refusal(1))] * 2)
    _until(worker, batch, "stopped")


def _running(worker: BatchWorker, group: FailureGroup) -> None:
    """A replay of mails on its way: most arrive, a few are refused again, the rest waits for its turn."""
    batch = _previewed(worker, "requeue", group=group.pk)
    requests.confirm(batch.pk, OKAFOR, MENDED, canary=2, rate=20)
    requests.start_now(batch.pk, OKAFOR)
    _step(worker, 4)
    _relay([])
    _step(worker, 3)
    _relay([Outcome("permanent", _refusal(0))])
    _step(worker, 1)
    # At least one letter waits for its proof, however far the batch came: on a busy machine all of it is proven by now.
    levers.pull(
        "requeue", DeadLetter.objects.filter(source="outbox").open().values_list("pk", flat=True)[:1], OKAFOR, MENDED
    )


def _group(source: str) -> FailureGroup:
    return FailureGroup.objects.filter(source=source).exclude(state="ignored").order_by("-open_count")[0]


def _previewed(worker: BatchWorker, verb: str, **narrowed: object) -> ReplayBatch:
    batch = requests.draft(verb, Filter(**narrowed), OKAFOR)
    return _until(worker, batch, "previewed")


def _confirmed(worker: BatchWorker, batch: ReplayBatch, reason: str, end: str) -> None:
    requests.confirm(batch.pk, OKAFOR, reason, canary=0)
    requests.start_now(batch.pk, OKAFOR)
    _until(worker, batch, end)


def _until(worker: BatchWorker, batch: ReplayBatch, state: str) -> ReplayBatch:
    for _ in _step_by_step(worker, 200):
        batch.refresh_from_db()
        if batch.state == state:
            return batch
    raise AssertionError(f"{batch}: {batch.state}, not {state}: {batch.note}")


def _step(worker: BatchWorker, times: int) -> None:
    list(_step_by_step(worker, times))


def _step_by_step(worker: BatchWorker, times: int) -> Iterator[None]:
    """Steps of a worker that waits for nothing."""
    for _ in range(times):
        worker.due.clear()
        worker.steps.looked_at.clear()
        live = ReplayBatch.objects.filter(state__in=["canary", "running"])
        live.update(ramp_from=None, tokens=10_000, tokens_at=database_now())
        worker.tick()
        yield


def hold_on() -> None:
    """The hold of a picture is always half over."""
    end = database_now() + timedelta(seconds=21)
    ReplayBatch.objects.filter(state="holding").update(hold_until=end)
