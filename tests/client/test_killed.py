"""A Django project that is not ours, with a real broker: its relay is killed, and each invoice is one mail in Spillway."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outbox.bookkeeping import counters
from outbox.intake.handler import NAME
from outbox.models import DeadLetter, IdempotencyKey, OutboxMessage
from tests.client.conftest import Foreign, promise
from tests.crash.platform import Platform
from tests.crash.wire import Output, Wire
from tests.processes.conftest import assert_verified, database_url, own_wire

pytestmark = pytest.mark.processes
TOPIC = "messages-in"
KILLS = 20


@pytest.fixture
def wire(settings: Any) -> Iterator[Wire]:
    with own_wire(Wire, settings, TOPIC) as found:
        found.create(TOPIC, 3)
        yield found


def client_of(wire: Wire, **more: Any) -> dict[str, Any]:
    return {"BOOTSTRAP_SERVERS": wire.servers, "TOPIC": wire.name(TOPIC), "PRODUCER": "billing", **more}


def records_of(wire: Wire) -> list[Any]:
    output = Output(wire, TOPIC)
    try:
        return output.read()
    finally:
        output.close()


@pytest.mark.kafka
def test_each_invoice_is_one_mail_although_the_relay_dies_between_sending_and_commit(
    wire: Wire, foreign: Foreign, tmp_path: Path
) -> None:
    foreign.client = client_of(wire)
    for turn in range(KILLS):
        done = foreign.manage("bill", str(turn * 3), "3", f"--die={('sending', 'sent', 'noted')[turn % 3]}")
        assert done.returncode == -9, done.stderr
    last = foreign.manage("bill", str(KILLS * 3), "3")
    assert (last.returncode, last.stderr) == (0, "")
    assert "refused" in last.stdout
    billed = [number for number in range(KILLS * 3 + 3) if number % 3 != 2]
    expected = {f"{TOPIC}@billing/{number}/{event}" for number in billed for event in ("issued", "reminded")}
    assert len(records_of(wire)) > len(expected), "nobody was killed behind a record"

    environment = {**wire.environment, "DATABASE_URL": database_url(), "EMAIL_CHANNEL": "memory"}
    with Platform(tmp_path, {**environment, "MESSAGES_IN": f"{TOPIC}@billing=email"}) as platform:
        platform.manage("ingest_messages", "--until-idle", "2")
        platform.manage("relay_outbox", "--channel", "email", "--once")
    assert set(IdempotencyKey.objects.values_list("key", flat=True)) == expected
    assert set(OutboxMessage.objects.values_list("state", flat=True)) == {"sent"}
    assert OutboxMessage.objects.count() == len(expected)
    for number in billed:
        events = OutboxMessage.objects.filter(aggregate=f"invoice:{number}").order_by("id")
        assert list(events.values_list("event_type", flat=True)) == ["invoice.issued", "invoice.reminded"]
    assert counters.totals(NAME)["repeated"] > 0
    assert not DeadLetter.objects.exists()
    assert_verified()


@pytest.mark.kafka
def test_what_the_broker_refuses_for_good_is_known_and_its_neighbours_leave(wire, promises, settings):
    from spillway_client.relay import relay_promises

    wire.configure(TOPIC, **{"max.message.bytes": "20000"})
    settings.SPILLWAY_CLIENT = client_of(wire)
    mail = {"to": "ada@example.com", "subject": "s", "text": "x" * 30_000}
    large = promise(1, payload=mail)
    pks = [promise(number) for number in range(2, 8)]
    assert relay_promises(threading.Event(), until_idle=0) == {"sent": 6, "refused": 1}
    assert "MessageSizeTooLarge" in promises.get(pk=large).error
    assert sorted(promises.filter(state="sent").values_list("pk", flat=True)) == pks
    # What was on its way when the client ended may be there twice.
    assert {record.key for record in records_of(wire)} == {b"invoice:%d" % number for number in range(2, 8)}
    assert dict(records_of(wire)[0].headers) == {"producer": b"billing"}


@pytest.mark.kafka
def test_without_the_topic_promises_wait_and_the_reason_is_said(wire, promises, settings):
    from spillway_client.relay import RelayStuck, relay_promises

    settings.SPILLWAY_CLIENT = {**client_of(wire, LEASE_SECONDS=3), "TOPIC": wire.name("not-there")}
    promise(1)
    with pytest.raises(RelayStuck, match=r"not-there at .*is there the topic\?"):
        relay_promises(threading.Event(), until_idle=0)
    assert promises.get().state == "pending"


def test_a_foreign_project_uses_its_own_packages_and_hears_what_is_wrong_in_one_line(foreign: Foreign) -> None:
    assert foreign.manage("check").returncode == 0
    assert foreign.manage("makemigrations", "--check", "--dry-run").returncode == 0
    assert foreign.manage("check", WITH_ZONES="0").returncode == 0
    where = foreign.manage(
        "shell", "--verbosity=0", "-c", "import config, notifications; print(config.__file__, notifications.__file__)"
    )
    assert where.stdout.split() == [str(foreign.folder / name / "__init__.py") for name in ("config", "notifications")]
    no_broker = foreign.manage("relay_promises", "--once")
    assert no_broker.returncode == 1
    assert no_broker.stderr.splitlines() == [
        'CommandError: SPILLWAY_CLIENT["BOOTSTRAP_SERVERS"]: where is Kafka? Or set DEBEZIUM'
    ]
    assert "With DEBEZIUM" in foreign.manage("relay_promises", "--help").stdout.replace(
        "with DEBEZIUM", "With DEBEZIUM"
    )
    foreign.client = {"DEBEZIUM": True}
    swept = foreign.manage("relay_promises", "--once")
    assert (swept.returncode, swept.stdout) == (0, "0 sent, 0 refused\n")
