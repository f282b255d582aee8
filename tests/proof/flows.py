"""The flows that are killed and frozen: what a case is, who does it, and how one sees that it was done once."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from tests.crash.platform import Platform
from tests.crash.traffic import Sample
from tests.crash.wire import Output, Wire
from tests.notifications.smtp_sink import Sink


def somebody() -> Any:
    from config.admin.levers import Operator

    return Operator("somebody", None)


class Flow(ABC):
    """A worker's work on one database and one prefix of topics; Django is on that database, too."""

    name: ClassVar[str]
    proves: ClassVar[str]  # the flow of `verify`
    command: ClassVar[Sequence[str]]
    topics: ClassVar[Sequence[str]] = ()
    group: ClassVar[str] = ""  # of a consumer: its dead members are thrown out, as the end of their session would
    settings: ClassVar[dict[str, str]] = {}

    def __init__(self, platform: Platform, wire: Wire, sink: Sink) -> None:
        self.platform, self.wire, self.sink = platform, wire, sink
        self.wire.group = self.group

    def begin(self) -> None:  # noqa: B027 (most need nothing)
        """What all cases need."""

    def away(self) -> None:
        if self.group:
            self.wire.evict()

    @abstractmethod
    def arm(self, case: int) -> None:
        """New work, for a worker that is about to start."""

    @abstractmethod
    def unfinished(self, cases: Sequence[int]) -> list[Any]:
        """What nobody has done yet."""

    @abstractmethod
    def faults(self, cases: Sequence[int]) -> Iterable[Any]:
        """What is lost, doubled or wrong."""


class Relay(Flow):
    """Two mails of one aggregate and one of another, to a real mail server."""

    name, proves = "relay", "outbox"
    command = ("relay_outbox", "--channel", "email", "--once")

    def arm(self, case: int) -> None:
        from django.db import transaction

        from outbox.messages.publish import publish

        with transaction.atomic():
            for number, aggregate in enumerate("aab"):
                mail = {"to": "ada@example.com", "subject": f"{case}-{number}", "text": "x"}
                publish("order.paid", f"{aggregate}{case}", mail, idempotency_key=f"{case}-{number}")

    def _rows(self, cases: Sequence[int]) -> list[Any]:
        from outbox.models import OutboxMessage

        return list(
            OutboxMessage.objects.filter(aggregate__in=[f"{letter}{case}" for case in cases for letter in "ab"])
        )

    def unfinished(self, cases: Sequence[int]) -> list[Any]:
        from config.database.clock import database_now
        from outbox.models import OutboxMessage

        left = [row for row in self._rows(cases) if row.state != "sent"]
        OutboxMessage.objects.filter(pk__in=[row.pk for row in left]).update(available_at=database_now())
        return [(row.aggregate, row.state) for row in left]

    def faults(self, cases: Sequence[int]) -> Iterable[Any]:
        accepted = [mail["subject"] for mail in self.sink.accepted]
        times = Counter(accepted)
        for row in self._rows(cases):
            subject = json.loads(row.payload)["subject"]
            if not 1 <= times[subject] <= 1 + row.times_uncertain:
                yield {"mail": subject, "accepted": times[subject], "marked": row.times_uncertain}
        for case in cases:
            both = [f"{case}-0", f"{case}-1"]
            if all(map(times.get, both)) and accepted.index(both[0]) > accepted.index(both[1]):
                yield {"out of order": case}


class Flush(Flow):
    """Three orders of one warehouse that are due."""

    name, proves = "flush", "buffer"
    command = ("flush_buffer", "--once")
    topics = ("transfer-requests", "transfer-batches")
    settings = {"BUFFER_IDLE_SECONDS": "0.1", "BUFFER_CAP_SECONDS": "0.1", "BUFFER_MAX_BATCH": "2"}
    ORDERS = 3

    def begin(self) -> None:
        self.output = Output(self.wire, "transfer-batches")

    def arm(self, case: int) -> None:
        from django.db import transaction

        from buffer.ingest.handler import Ingest
        from buffer.models import Bucket
        from buffer.streams import streams
        from config.database.clock import database_now
        from config.kafka import RecordBatch, Replayed, topic_name
        from tests.conftest import TOPIC_ID, move_on, order

        topic = topic_name("transfer-requests")
        values = [order(f"{case}-{number}", f"WH-{case}") for number in range(self.ORDERS)]
        records = [
            Replayed(topic, 0, case * self.ORDERS + number, 1_700_000_000_000, b"k", value)
            for number, value in enumerate(values)
        ]
        handler = Ingest(streams()["transfer-requests"])
        batch = RecordBatch(records, {topic: TOPIC_ID})
        batch.prepared = handler.prepare(batch)
        with transaction.atomic():
            now = database_now()
            handler.write(batch, now)
            move_on(handler.group, batch, now)
            Bucket.objects.filter(location_id=f"WH-{case}").urge(now)

    def unfinished(self, cases: Sequence[int]) -> list[Any]:
        from buffer.models import Batch, Bucket

        names = [f"WH-{case}" for case in cases]
        waiting = (
            Batch.objects.filter(location_id__in=names).exclude(status="sent").values_list("location_id", "status")
        )
        return [
            *waiting,
            *Bucket.objects.filter(location_id__in=names, open_count__gt=0).values_list("location_id", flat=True),
        ]

    def faults(self, cases: Sequence[int]) -> Iterable[Any]:
        copies: dict[str, set[bytes]] = {}
        for record in self.output.read():
            copies.setdefault(json.loads(record.value)["batch_id"], set()).add(record.value)
        yield from ({"other bytes": batch} for batch, values in copies.items() if len(values) > 1)
        bodies = [json.loads(next(iter(values))) for values in copies.values()]
        times = Counter(order for body in bodies for order in body["order_ids"])
        for case in cases:
            wrong = {name: times[name] for number in range(self.ORDERS) if times[name := f"{case}-{number}"] != 1}
            if wrong:
                yield {"orders": wrong}


class Ingest(Flow):
    """Two orders, one of them repeated, and one record that is no JSON."""

    name, proves = "ingest", "buffer"
    command = ("ingest_events", "--until-idle", "0.5")
    topics = ("transfer-requests", "transfer-batches")
    group = "buffer-ingest"

    def arm(self, case: int) -> None:
        from tests.conftest import order

        values = [order(f"{case}-0", f"WH-{case}"), order(f"{case}-1", f"WH-{case}"), order(f"{case}-0", f"WH-{case}")]
        values.append(f"no json {case}".encode())
        self.wire.produce([Sample(f"WH-{case}", "", 0, value) for value in values])

    def _done(self, case: int) -> tuple[list[str], int]:
        from buffer.models import BufferedEvent
        from outbox.models import DeadLetter

        orders = BufferedEvent.objects.filter(location_id=f"WH-{case}").order_by("order_id")
        letters = DeadLetter.objects.filter(payload=f"no json {case}".encode()).count()
        return list(orders.values_list("order_id", flat=True)), letters

    def unfinished(self, cases: Sequence[int]) -> list[Any]:
        return [case for case in cases if len(self._done(case)[0]) < 2 or self._done(case)[1] < 1]

    def faults(self, cases: Sequence[int]) -> Iterable[Any]:
        for case in cases:
            if self._done(case) != ([f"{case}-0", f"{case}-1"], 1):
                yield {case: self._done(case)}


class Track(Flow):
    """A receipt, a sale and a transfer between two stocks, and a sale of a stock that nobody knows."""

    name, proves = "track", "ledger"
    command = ("track_inventory", "--until-idle", "0.5")
    topics = ("PAYMENT_SUCCESS", "PURCHASE_ORDER_RECEIVED", "KITCHEN_TICKET_ITEM_STATUS_CHANGED", "MATERIAL_TRANSFERRED",
              "merchant-cdc", "product-variant-cdc")  # fmt: skip
    group = "buffer-track"

    def arm(self, case: int) -> None:
        from buffer.models import InventoryStock
        from tests.buffer.ledger.conftest import moved, paid, received

        one, other = f"S{case}", f"T{case}"
        InventoryStock.objects.bulk_create(InventoryStock(id=name, quantity=0) for name in (one, other))
        messages = [received(f"R{case}", **{one: 10}), paid(f"P{case}", **{one: 3}), moved(f"M{case}", one, other, 2)]
        messages.append(paid(f"Q{case}", **{f"nobody{case}": 1}))
        self.wire.produce([Sample(one, "", 0, json.dumps(value).encode(), topic) for topic, value in messages])

    def _done(self, case: int) -> tuple[int, int, int]:
        from buffer.models import InventoryStock
        from outbox.models import DeadLetter

        quantities = dict(InventoryStock.objects.filter(pk__in=[f"S{case}", f"T{case}"]).values_list("pk", "quantity"))
        return (
            quantities[f"S{case}"],
            quantities[f"T{case}"],
            DeadLetter.objects.filter(business_key=f"Q{case}").count(),
        )

    def unfinished(self, cases: Sequence[int]) -> list[Any]:
        return [case for case in cases if self._done(case) != (5, 2, 1)]

    def faults(self, cases: Sequence[int]) -> Iterable[Any]:
        return [{case: self._done(case)} for case in cases if self._done(case) != (5, 2, 1)]


class Intake(Flow):
    """Two promises, one of them twice, and one that nobody can send."""

    name, proves = "intake", "messages-in"
    command = ("ingest_messages", "--until-idle", "0.5")
    topics = ("messages-in", "messages-refused")
    group = "outbox-intake"
    settings = {"MESSAGES_IN": "messages-in=email"}

    def arm(self, case: int) -> None:
        def promise(number: int, to: str = "ada@example.com") -> bytes:
            mail = {"to": to, "subject": "s", "text": "x"}
            about = {
                "channel": "email",
                "event_type": "paid",
                "aggregate": f"i{case}",
                "idempotency_key": f"{case}/{number}",
            }
            return json.dumps({**about, "payload": mail}).encode()

        values = [promise(0), promise(1), promise(0), promise(2, "no address")]
        self.wire.produce([Sample(f"i{case}", "", 0, value, "messages-in") for value in values])

    def _done(self, case: int) -> tuple[int, int]:
        from outbox.models import DeadLetter, OutboxMessage

        letters = DeadLetter.objects.filter(business_key=f"i{case}").count()
        return OutboxMessage.objects.filter(aggregate=f"i{case}").count(), letters

    def unfinished(self, cases: Sequence[int]) -> list[Any]:
        return [case for case in cases if self._done(case) != (2, 1)]

    def faults(self, cases: Sequence[int]) -> Iterable[Any]:
        return [{case: self._done(case)} for case in cases if self._done(case) != (2, 1)]


class Replay(Flow):
    """A batch that takes back two sales of a stock which is there by now."""

    name, proves = "replay", "ledger"
    command = ("replay_letters", "--until-idle", "1.5")  # a batch waits a second for another one of its source

    def arm(self, case: int) -> None:
        from buffer.models import InventoryStock
        from outbox.letters.filters import Filter
        from outbox.models import DeadLetter
        from outbox.replay_batches import requests
        from tests.buffer.ledger.conftest import PAID, paid, record, write

        sales = [paid(f"P{case}-{number}", **{f"U{case}": 1})[1] for number in range(2)]
        write(*[record((self.wire.name(PAID), sale)) for sale in sales])
        InventoryStock.objects.create(id=f"U{case}", quantity=0)
        letters = DeadLetter.objects.filter(business_key__in=[f"P{case}-{number}" for number in range(2)])
        chosen = Filter(ids=[str(pk) for pk in letters.values_list("pk", flat=True)])
        requests.draft("requeue", chosen, somebody(), reason=f"case {case}", automatic=True)

    def _done(self, case: int) -> tuple[int, list[str], list[tuple[str, int]]]:
        from buffer.models import InventoryStock
        from outbox.models import DeadLetter, ReplayBatch

        letters = DeadLetter.objects.filter(business_key__startswith=f"P{case}-").order_by("pk")
        batches = ReplayBatch.objects.filter(reason=f"case {case}")
        return (
            InventoryStock.objects.get(pk=f"U{case}").quantity, list(letters.values_list("status", flat=True)),
            list(batches.values_list("state", "verified")),
        )  # fmt: skip

    def unfinished(self, cases: Sequence[int]) -> list[Any]:
        return [(case, self._done(case)) for case in cases if self._done(case)[2] != [("done", 2)]]

    def faults(self, cases: Sequence[int]) -> Iterable[Any]:
        done = -2, ["resolved"] * 2, [("done", 2)]
        return [{case: self._done(case)} for case in cases if self._done(case) != done]


class Resend(Relay):
    """A batch that sends a mail again which has left; its copy has to leave once, too."""

    name = "resend"
    command = ("replay_letters", "--until-idle", "1.5")  # a batch waits a second for another one of its source

    def arm(self, case: int) -> None:
        from outbox.messages.filters import MessageFilter
        from outbox.replay_batches import requests

        super().arm(case)
        self.platform.manage(*Relay.command)
        ids = [str(row.pk) for row in self._rows([case])[:1]]
        requests.draft("resend", MessageFilter(ids=ids), somebody(), reason=f"case {case}", automatic=True)

    def unfinished(self, cases: Sequence[int]) -> list[Any]:
        from outbox.models import ReplayBatch

        if len(self._rows(cases)) > 3 * len(cases):
            self.platform.manage(*Relay.command)
        batches = ReplayBatch.objects.filter(reason__in=[f"case {case}" for case in cases]).exclude(state="done")
        return [*super().unfinished(cases), *batches.values_list("reason", "state")]

    def faults(self, cases: Sequence[int]) -> Iterable[Any]:
        times = Counter(mail["subject"] for mail in self.sink.accepted)
        for case in cases:
            rows = self._rows([case])
            marked = sum(row.times_uncertain for row in rows)
            if len(rows) != 4 or not 2 <= times[f"{case}-0"] <= 2 + marked:
                yield {"case": case, "messages": len(rows), "accepted": times[f"{case}-0"], "marked": marked}


class TopicReplay(Flow):
    """Two sales in Kafka that nobody has read, in a timeframe that is replayed."""

    name, proves = "topic-replay", "ledger"
    command = ("replay_topic", "--pending", "--until-idle", "0.5")
    topics = Track.topics

    def arm(self, case: int) -> None:
        from datetime import timedelta

        from buffer.models import InventoryStock
        from config.database.clock import database_now
        from outbox.topic_replay import requests
        from tests.buffer.ledger.conftest import PAID, paid

        InventoryStock.objects.create(id=f"V{case}", quantity=0)
        sales = [paid(f"P{case}-{number}", **{f"V{case}": 1})[1] for number in range(2)]
        self.wire.produce([Sample(f"V{case}", "", 0, json.dumps(sale).encode(), PAID) for sale in sales])
        now = database_now()
        frame = now - timedelta(hours=1), now + timedelta(seconds=1)
        requests.request(PAID, *frame, timedelta(0), somebody(), f"case {case}", dry_run=False)

    def _done(self, case: int) -> tuple[int, str]:
        from buffer.models import InventoryStock
        from outbox.topic_replay.models import TopicReplay

        state = TopicReplay.objects.get(reason=f"case {case}").state
        return InventoryStock.objects.get(pk=f"V{case}").quantity, str(state)

    def unfinished(self, cases: Sequence[int]) -> list[Any]:
        return [case for case in cases if self._done(case)[1] != "done"]

    def faults(self, cases: Sequence[int]) -> Iterable[Any]:
        return [{case: self._done(case)} for case in cases if self._done(case) != (-2, "done")]


class Throttle(Flow):
    """Four notices of a customer at two a second: two leave at once, two wait in the overflow buffer."""

    name, proves = "throttle", "throttler"
    command = ("run_throttler", "--instance", "a", "--until-idle", "1.5")
    topics = ("notifications-in", "notifications-out", "notifications-expired", "notifications-changelog")
    settings = {"THROTTLER_DEFAULT_RATE": "2/s"}
    NOTICES = 4

    def begin(self) -> None:
        self.output = Output(self.wire, "notifications-out")

    def arm(self, case: int) -> None:
        from datetime import UTC, datetime

        def notice(number: int) -> bytes:
            about = {"notification_id": f"N{case}-{number}", "customer_id": f"C{case}", "recipient": "ada@example.com"}
            return json.dumps({**about, "message": {"text": "x"}, "created_at": datetime.now(UTC).isoformat()}).encode()

        self.wire.produce([Sample(f"C{case}", "", 0, notice(n), "notifications-in") for n in range(self.NOTICES)])

    def _left(self) -> dict[str, list[str]]:
        left: dict[str, list[str]] = {}
        for record in self.output.read():
            left.setdefault((record.key or b"").decode(), []).append(json.loads(record.value)["notification_id"])
        return left

    def unfinished(self, cases: Sequence[int]) -> list[Any]:
        left = self._left()
        return [case for case in cases if len(set(left.get(f"C{case}", []))) < self.NOTICES]

    def faults(self, cases: Sequence[int]) -> Iterable[Any]:
        left = self._left()
        for case in cases:
            if left.get(f"C{case}") != [f"N{case}-{number}" for number in range(self.NOTICES)]:
                yield {case: left.get(f"C{case}")}


FLOWS: dict[str, type[Flow]] = {
    flow.name: flow for flow in (Relay, Flush, Ingest, Track, Intake, Replay, Resend, TopicReplay, Throttle)
}
