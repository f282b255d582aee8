"""The whole CDC path: a commit, Debezium, Kafka, a running `listen_outbox`, a mail; and what happens without it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.bookkeeping.counters import totals
from outbox.bookkeeping.models import Watermark
from outbox.channels import permits
from outbox.messages.publish import publish
from outbox.models import DeliveryAttempt, OutboxMessage
from outbox.workers.change_capture import cdc_lag, is_healthy
from tests.bench.events import forget
from tests.crash.platform import Platform
from tests.crash.wire import wait_for
from tests.debezium.connector import PARTITIONS, Connector, server
from tests.notifications.conftest import _plain_http, caller, new_order  # noqa: F401 (fixtures)
from tests.notifications.smtp_sink import Sink
from tests.otlp import exported
from tests.processes.conftest import database_url
from tests.tree import ROOT

RATE, SECONDS, GRACE = 167, 5, 5
OPERATOR = Operator("test")
MAIL = {
    "to": "ada@example.com", "from": "orders@spillway.example", "subject": "Hello", "text": "a", "html": "b",
    "headers": {},
}  # fmt: skip


@contextmanager
def listening(connector: Connector, folder: Path, **more: str) -> Iterator[Platform]:
    """A listener that has heard every partition; mails go into memory."""
    environment = {
        "DATABASE_URL": database_url(), "KAFKA_BOOTSTRAP_SERVERS": connector.servers,
        "KAFKA_TOPIC_PREFIX": connector.prefix, "EMAIL_CHANNEL": "memory", "EMAIL_WINDOW": "20",
        "OUTBOX_GRACE_SECONDS": str(GRACE), "LOG_LEVEL": "WARNING", **more,
    }  # fmt: skip
    with Platform(folder, environment) as platform:
        began = database_now()
        platform.start("listen_outbox")
        wait_for(lambda: Watermark.objects.filter(caught_up_at__gt=began).count() >= PARTITIONS, 90, "the listener")
        yield platform
        # With a farewell: a group that still has a member cannot be deleted.
        assert not any([worker.stop(60) for worker in platform.workers])
    forget(connector.servers, [f"{connector.prefix}outbox-listen"])


@pytest.fixture
def workers(connector: Connector, tmp_path: Path) -> Iterator[Platform]:
    """A listener, and a relay beside it."""
    with listening(connector, tmp_path) as platform:
        platform.start("relay_outbox", "--channel", "email")
        yield platform


def promise(number: int) -> Any:
    with transaction.atomic():
        return publish("order.paid", f"order:{number}", MAIL, idempotency_key=f"{number}")


def at_rate(numbers: range, rate: float = RATE) -> float:
    """Publish them; the rate that was reached."""
    began = time.monotonic()
    for turn, number in enumerate(numbers, 1):
        promise(number)
        time.sleep(max(0.0, began + turn / rate - time.monotonic()))
    return len(numbers) / (time.monotonic() - began)


def all_sent(seconds: float = 60) -> None:
    wait_for(lambda: not OutboxMessage.objects.unfinished().exists(), seconds, "every message to be sent")


def by_path() -> dict[str, int]:
    found = list(DeliveryAttempt.objects.filter(outcome="sent").values_list("path", flat=True))
    return {path: found.count(path) for path in sorted(set(found))}


def percentiles() -> tuple[float, float]:
    """Milliseconds from the transaction to the call that sends, by the database's clock."""
    made = dict(OutboxMessage.objects.values_list("id", "created_at"))
    began = DeliveryAttempt.objects.values_list("message_id", "started_at")
    late = sorted((at - made[pk]).total_seconds() * 1000 for pk, at in began)
    return late[len(late) // 2], late[int(len(late) * 0.99)]


def test_a_mail_leaves_soon_after_the_commit(workers, capsys):
    at_rate(range(RATE))  # everything warms up
    all_sent()
    OutboxMessage.objects.all().delete()
    DeliveryAttempt.objects.all().delete()
    reached = at_rate(range(1000, 1000 + RATE * SECONDS))
    all_sent()
    p50, p99 = percentiles()
    with capsys.disabled():
        print(f"\n{server()}: commit → send p50 {p50:.0f} ms, p99 {p99:.0f} ms at {reached:.0f}/s, "
              f"sent by {by_path()}")  # fmt: skip
    assert DeliveryAttempt.objects.count() == RATE * SECONDS
    # A figure to read, not to judge: on a machine that does other things it is any number.
    assert by_path().get("cdc", 0) > 0


def test_one_trace_leads_from_the_request_through_the_connector_to_the_mail_server(connector, tmp_path, caller):  # noqa: F811
    pytest.importorskip("opentelemetry", reason="the extra `otel` is not installed: no trace is tested")
    with exported() as traces, Sink() as sink:
        to_sink = {"EMAIL_CHANNEL": "smtp", "EMAIL_URL": f"smtp://127.0.0.1:{sink.port}"}
        with listening(connector, tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=traces.url, **to_sink):
            assert caller.change(new_order().pk, "pay").status_code == 200
            all_sent()
        assert (by_path(), len(sink.accepted)) == ({"cdc": 1}, 1)
        [request] = [span for span in traces.spans() if span.name.startswith("POST")]
        delivery, sending = traces.one("deliver email"), traces.one("send smtp")
    assert (delivery.trace, delivery.parent) == (request.trace, request.id)
    assert (sending.trace, sending.parent) == (request.trace, delivery.id)


def threshold() -> float:
    """Seconds of lag from which the alert for operators counts."""
    text = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
    found = re.search(r"spillway_cdc_lag_seconds\)? > ([\d.]+)", text)
    assert found, "no alert looks at spillway_cdc_lag_seconds"
    return float(found[1])


def test_without_debezium_the_poller_takes_over_and_the_alert_is_true(connector, workers, settings):
    settings.KAFKA_TOPIC_PREFIX = connector.prefix  # we look with the relay's eyes
    promise(1)
    all_sent()
    wait_for(lambda: cdc_lag(database_now()) == 0, 30, "the listener to store how far CDC has come")
    connector.stop()
    began = time.monotonic()
    promise(2)
    all_sent(GRACE + 30)
    took = time.monotonic() - began
    assert DeliveryAttempt.objects.latest("id").path == "poll"
    assert took < GRACE + 20, took
    # Nothing lies about, and yet it is known to be dead: nobody waits for it.
    wait_for(lambda: not is_healthy("email", database_now()), 30, "the poller to wait no more")
    promise(3)
    all_sent()
    assert cdc_lag(database_now() + timedelta(seconds=threshold() + 1)) > threshold()
    connector.start()
    wait_for(lambda: cdc_lag(database_now()) == 0, 90, "CDC to catch up")
    assert set(DeliveryAttempt.objects.values_list("outcome", flat=True)) == {"sent"}
    assert is_healthy("email", database_now())
    assert DeliveryAttempt.objects.count() == 3


def test_from_scratch_with_a_snapshot_nothing_is_sent_twice(connector, workers):
    at_rate(range(30))
    all_sent()
    permits.pause("email", OPERATOR, "so that something is pending when the snapshot is taken")
    for number in range(100, 120):
        promise(number)
    hinted = wait_for(lambda: (n := totals("outbox").get("hinted", 0)) >= 50 and n, 60, "the hints")
    connector.restart_from_scratch()
    promise(200)
    wait_for(lambda: totals("outbox").get("hinted", 0) >= hinted + 20, 90, "the snapshot's hints")
    permits.resume("email", OPERATOR, "it is taken")
    all_sent()
    assert OutboxMessage.objects.count() == 51
    assert set(OutboxMessage.objects.values_list("state", "attempts")) == {("sent", 1)}
    assert DeliveryAttempt.objects.count() == 51
