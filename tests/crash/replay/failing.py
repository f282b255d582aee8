"""Makes the letters, by the flows themselves: everything fails for a reason that is gone afterwards."""

from __future__ import annotations

from collections.abc import Sequence

from tests.crash.platform import Platform
from tests.crash.replay.cases import IS, WAS, Cases, Record
from tests.crash.wire import BATCHES, Wire
from tests.notifications.smtp_sink import Sink
from tests.prepared import run_python

CHUNK = 2000  # records that are sent at once
LIMIT = "max.message.bytes"
REFUSED = "550 5.7.1 Nobody of that name here"


def make_letters(platform: Platform, wire: Wire, sink: Sink, cases: Cases) -> None:
    """In this order: what is refused of one kind must not meet the trouble of another."""
    for name, text in (("customers", cases.customers_csv()), ("stocks", cases.stocks_csv())):
        (platform.directory / f"{name}.csv").write_text(text)
    platform.manage("import_customers", str(platform.directory / "customers.csv"))
    _old_and_refused_orders(platform, wire, cases)
    _late_orders(platform, wire, cases)
    _payments(platform, wire, cases)
    _mails(platform, sink, cases)
    _notifications(platform, wire, cases)


def _produce(wire: Wire, records: Sequence[Record]) -> None:
    for start in range(0, len(records), CHUNK):
        wire.produce(records[start : start + CHUNK])  # type: ignore[arg-type]


def _old_and_refused_orders(platform: Platform, wire: Wire, cases: Cases) -> None:
    """Outside of what the buffer keeps; and batches, one an order, that the broker finds too large."""
    _produce(wire, [*cases.orders("old"), *cases.orders("big")])
    platform.manage("ingest_events", "--once", BUFFER_RETENTION_MONTHS="1")
    wire.configure(BATCHES, **{LIMIT: "100"})
    platform.manage("flush_buffer", "--until-idle", "4", BUFFER_MAX_BATCH="1")
    wire.configure(BATCHES, **{LIMIT: "1048588"})


def _late_orders(platform: Platform, wire: Wire, cases: Cases) -> None:
    """Sent, and then changed."""
    _produce(wire, cases.orders("late", WAS))
    platform.manage("ingest_events", "--once")
    platform.manage("flush_buffer", "--until-idle", "4")
    _produce(wire, cases.orders("late", IS))
    platform.manage("ingest_events", "--once")


def _payments(platform: Platform, wire: Wire, cases: Cases) -> None:
    """Of stocks that come later."""
    _produce(wire, cases.payments())
    platform.manage("track_inventory", "--once")
    platform.manage("import_stock", str(platform.directory / "stocks.csv"))


def _mails(platform: Platform, sink: Sink, cases: Cases) -> None:
    """To a server that refuses every recipient; so many in a row would pause the channel, and its resumption requeue them."""
    run_python("-m", "tests.crash.replay.people", "buy", str(cases.number), env=platform.environment).check_returncode()
    sink.refuse = lambda recipient: REFUSED
    platform.manage("relay_outbox", "--until-idle", "3", OUTBOX_PAUSE_AFTER_REFUSALS="0")
    sink.refuse = lambda recipient: ""


def _notifications(platform: Platform, wire: Wire, cases: Cases) -> None:
    """Larger than the throttler takes."""
    _produce(wire, cases.notifications())
    platform.manage("run_throttler", "--instance", "a", "--until-idle", "5", THROTTLER_MAX_MESSAGE_BYTES="300")
