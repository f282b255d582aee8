"""Change capture: how soon a mail leaves by Debezium, Kafka and two listeners, a relay beside them, leg by leg."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from django.db import transaction

from config.database.clock import database_now
from config.fields import uuid7
from outbox.bookkeeping.models import Watermark
from outbox.messages.publish import publish
from outbox.models import DeliveryAttempt, OutboxMessage
from outbox.workers.change_capture import read_change
from tests.bench.events import forget
from tests.bench.figures import at, number
from tests.bench.leg import Plan
from tests.bench.outbox.promises import at_rate, wait_until_sent
from tests.crash.platform import Platform
from tests.crash.wire import wait_for
from tests.debezium.connector import PARTITIONS, Connector, create_publication
from tests.services import supervisor

VARIABLE = "TEST_CONNECT_URL"
MAIL = {
    "to": "ada@example.com", "from": "orders@spillway.example", "subject": "Hello", "text": "a", "html": "b",
    "headers": {},
}  # fmt: skip
LEGS = ("commit → record", "record → try", "try → settled", "whole")


def rows(plan: Plan) -> list[dict[str, str]]:
    url = os.environ.get(VARIABLE) or supervisor.addresses(["connect"]).get(VARIABLE, "")
    if not url:
        print(f"    capture: no {VARIABLE}", flush=True)
        return []
    seconds = 5 if plan.quick else 20
    with connecting(url, plan.servers) as connector, working(connector):
        at_rate(3, promise)  # everything warms up
        wait_until_sent()
        first = uuid7()
        began = time.monotonic()
        at_rate(seconds, promise)
        reached = 167 * seconds / (time.monotonic() - began)
        wait_until_sent()
        return [{"messages/s": number(reached), **figures(legs(connector, first)), "sent by": by_path(first)}]


def promise(turn: int) -> None:
    with transaction.atomic():
        publish("order.paid", f"order:{turn}", MAIL, idempotency_key=uuid7().hex)


@contextmanager
def connecting(url: str, servers: str) -> Iterator[Connector]:
    """A connector of its own on this database, taken away without a trace."""
    create_publication()
    connector = Connector(url, servers)
    try:
        connector.start()
        yield connector
    finally:
        connector.delete()


@contextmanager
def working(connector: Connector) -> Iterator[None]:
    """Two listeners that share the partitions, and a relay; mails go into memory."""
    environment = {
        "KAFKA_BOOTSTRAP_SERVERS": connector.servers, "KAFKA_TOPIC_PREFIX": connector.prefix,
        "EMAIL_CHANNEL": "memory", "EMAIL_WINDOW": "20", "LOG_LEVEL": "WARNING",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as directory, Platform(Path(directory), environment) as platform:
        began = database_now()
        for name in ("first", "second"):
            platform.start("listen_outbox", name=name)
        platform.start("relay_outbox", "--channel", "email")
        heard = Watermark.objects.filter(caught_up_at__gt=began)
        wait_for(lambda: heard.count() >= PARTITIONS, 90, "the listeners")
        yield
        for worker in platform.workers:
            worker.stop(60)
    forget(connector.servers, [f"{connector.prefix}outbox-listen"])


def legs(connector: Connector, first: Any) -> dict[str, list[float]]:
    """Milliseconds of each leg of every message from id `first` on, sorted; by the clock of this machine."""
    sent = {
        pk: times
        for pk, *times in OutboxMessage.objects.filter(id__gte=first).values_list("id", "created_at", "sent_at")
    }
    tried = dict(DeliveryAttempt.objects.filter(message_id__in=sent).values_list("message_id", "started_at"))
    reader = connector.reader()
    reader.consumer.seek_to_beginning()
    heard = {}
    while not sent.keys() <= heard.keys():
        reader.poll()
        heard = {read_change(record.value).id: record.timestamp for record in reader.records}
    reader.close()
    found = []
    for pk, (created, settled) in sent.items():
        moments = [created.timestamp() * 1000, heard[pk], tried[pk].timestamp() * 1000, settled.timestamp() * 1000]
        found.append([end - begin for begin, end in pairwise(moments)] + [moments[3] - moments[0]])
    return {name: sorted(values) for name, values in zip(LEGS, zip(*found, strict=True), strict=True)}


def figures(found: dict[str, list[float]]) -> dict[str, str]:
    return {
        f"{name} {word}, ms": number(at(values, share))
        for name, values in found.items()
        for word, share in (("p50", 0.5), ("p99", 0.99))
    }


def by_path(first: Any) -> str:
    paths = list(DeliveryAttempt.objects.filter(id__gte=first).values_list("path", flat=True))
    return ", ".join(f"{paths.count(path)} {path}" for path in sorted(set(paths)))
