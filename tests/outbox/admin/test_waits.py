"""What a batch waits for that is not its channel: the same words on its page and from the command, of every flow."""

from __future__ import annotations

import html
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from config.admin.levers import Operator
from config.database.clock import database_now
from config.flows import flows
from config.kafka import Replayed, topic_name
from outbox import console_batches
from outbox.bookkeeping.models import Watermark
from outbox.channels import permits
from outbox.console_batches import Standstill
from outbox.letters.burial import Letter, bury
from outbox.models import DeadLetter, OutboxMessage, ReplayBatch, ReplayItem
from outbox.replay_batches import lifecycle
from outbox.workers import change_capture
from tests.outbox.admin.test_batch_pages import page, text
from tests.outbox.processes.test_heartbeat import worker
from tests.outbox.scripted import promise
from throttler.models import Customer

pytestmark = pytest.mark.django_db
NEVER = "(none has reported within a day): start one with `manage.py {0}`, or look at the page Workers."
RELAY = [("relay_outbox", "email, kafka", 0)]
BOTH = [*RELAY, ("run_throttler", "notifications-in 0–3", 0)]
READ, ALARM = {"state": "sent", "receipt": "3/17"}, "offsets 3 to 9 are no longer in the log: start with --accept-reset"
STOPPED = f"run_throttler has stopped at notifications-in, partition 3: {ALARM}."
HELD = "customer acme is {0}: `customers {1}`, or its page, lets go what waits."
MAIL, NOTICE, PROMISE = ("outbox", "email"), ("throttler", "kafka"), ("messages-in", "email")
REFUSED, LATE, STOCK = ("transfer-requests", "publish"), ("transfer-requests", "decode"), ("ledger", "apply")
SENT = ("messages", "email")
MANY = ", ".join(f"stream-{number:03}" for number in range(60))[:500]  # as a report is cut
# (source and channel or step, workers that reported so many seconds ago, what else is so, what the batch waits for)
CASES: dict[str, tuple[tuple[str, str], list[tuple[str, str, int]], dict[str, Any], str]] = {
    "mail, nobody ever": (MAIL, [], {}, f"no relay_outbox runs for email {NEVER.format('relay_outbox')}"),
    "mail, somebody": (MAIL, RELAY, {}, ""),
    "mail, who has not said for what": (MAIL, [("relay_outbox", "", 0)], {}, ""),
    "mail, another channel": (MAIL, [("relay_outbox", "kafka", 0)], {}, f"no relay_outbox runs for email {NEVER.format('relay_outbox')}"),
    "mail, silent": (MAIL, [("relay_outbox", "email", 90), ("relay_outbox", "email", 600)], {}, "no relay_outbox runs for email (silent on app-1, process 7, last seen 1 min ago): start one"),
    "mail, paused, too": (MAIL, [], {"paused": "email"}, "channel email is paused: by hand."),
    "mail, no reports": (MAIL, [], {"HEARTBEAT": ""}, ""),
    "promise, nobody": (PROMISE, [("ingest_messages", "", 0)], {}, "no relay_outbox runs for email "),
    "promise, its topic is stopped": (PROMISE, RELAY, {"stopped": ("outbox-intake", "messages-in", 3)}, ""),
    "promise, paused": (PROMISE, RELAY, {"paused": "email"}, "channel email is paused: by hand."),
    "refused batch, nobody": (REFUSED, BOTH, {}, f"no flush_buffer runs for transfer-requests {NEVER.format('flush_buffer')}"),
    "refused batch, another stream": (REFUSED, [("flush_buffer", "returns", 0)], {}, "no flush_buffer runs for transfer-requests "),
    "refused batch, more streams than a report has room for": (REFUSED, [("flush_buffer", MANY, 0)], {}, ""),
    "refused batch, somebody": (REFUSED, [("flush_buffer", "transfer-requests", 0)], {}, ""),
    "order, stored while full": (LATE, [("flush_buffer", "transfer-requests", 0)], {"BUFFER_HIGH_WATER": 0}, ""),
    "stock, which moves at once": (STOCK, [], {}, ""),
    "message, nobody": (SENT, [], {}, f"no relay_outbox runs for email {NEVER.format('relay_outbox')}"),
    "message, somebody": (SENT, RELAY, {}, ""),
    "message, paused": (SENT, RELAY, {"paused": "email"}, "channel email is paused: by hand."),
    "notification, no relay": (NOTICE, BOTH[1:], {}, f"no relay_outbox runs for kafka {NEVER.format('relay_outbox')}"),
    "notification, no throttler": (NOTICE, RELAY, READ, f"no run_throttler runs {NEVER.format('run_throttler')}"),
    "notification, sent while paused": (NOTICE, BOTH, {**READ, "paused": "kafka"}, ""),
    "notification, not sent while paused": (NOTICE, BOTH, {"paused": "kafka"}, "channel kafka is paused: by hand."),
    "notification, stopped": (NOTICE, RELAY, {**READ, "stopped": ("throttler", "notifications-in", 3)}, STOPPED),
    "notification, another one": (NOTICE, BOTH, {**READ, "stopped": ("throttler", "notifications-in", 4)}, ""),
    "notification, another group": (NOTICE, BOTH, {**READ, "stopped": ("other", "notifications-in", 3)}, ""),
    "notification, all is well": (
        NOTICE,
        BOTH,
        {**READ, "stopped": ("throttler", "notifications-in", 3), "alarm": "", "held": {}},
        "",
    ),
    "notification, on hold": (NOTICE, RELAY, {**READ, "held": {"held": True}}, HELD.format("on hold", "resume")),
    "notification, no rate": (NOTICE, BOTH, {"held": {"rates": "0/s"}}, HELD.format("held by its rate 0/s", "set-rate")),
    "notification, another customer": (NOTICE, BOTH, {**READ, "held": {"pk": "other", "held": True}}, ""),
}  # fmt: skip


def on_its_way(source: str, step: str, given: dict[str, Any]) -> ReplayBatch:
    """A running batch with one letter or message taken back, without proof."""
    now = database_now()
    sent = source == "messages"
    channel = step if step in ("email", "kafka") else "email"
    carrier = promise("customer/acme", channel=channel, payload=BODIES[channel])
    OutboxMessage.objects.filter(pk=carrier).update(
        **{name: given[name] for name in ("state", "receipt") if name in given}
    )
    record = Replayed(topic_name("somewhere"), 0, 0, 1_900_000_000_000, b"k", b"{}")
    bury([Letter(source, step, "reason", "text", record, business_key=str(uuid4()))], "g", now)
    topic = "" if source == "outbox" else "somewhere"
    DeadLetter.objects.update(status="requeued", requeued_at=now, carrier=carrier, topic=topic)
    batch = ReplayBatch.objects.create(
        verb="resend" if sent else "requeue", state="running", pinned=2, eligible=1, requeued=1, requested_by="Anna",
        created_at=now, pinned_at=now, started_at=now, kinds=[[source, step, True]], filter={} if sent else {"all": True},
    )  # fmt: skip
    about = {"letter": carrier, "successor": carrier} if sent else {"letter": DeadLetter.objects.get().pk}
    ReplayItem.objects.create(batch=batch, source=source, step=step, business_key="k", state="requeued", **about)
    return batch


BODIES: dict[str, dict[str, Any]] = {
    "email": {"to": "a@example.com", "from": "b@example.com", "subject": "s", "text": "t", "html": "", "headers": {}},
    "kafka": {"topic": "notifications-in", "key": "acme", "value": "{}"},
}


@pytest.mark.parametrize(("what", "reporting", "given", "said"), CASES.values(), ids=CASES)
def test_what_holds_a_batch_up_is_said_at_once_and_alike(boss, settings, monkeypatch, what, reporting, given, said):
    settings.HEARTBEAT = given.get("HEARTBEAT", "outbox.processes.heartbeat.Heartbeat")
    settings.BUFFER_HIGH_WATER = given.get("BUFFER_HIGH_WATER", settings.BUFFER_HIGH_WATER)
    monkeypatch.setattr(console_batches, "EVERY", 0.0)
    now = database_now()
    for command, holds, ago in reporting:
        worker(command, ago, holds=holds)
    permits.ensure(["email", "kafka"])
    if channel := given.get("paused"):
        permits.pause(channel, Operator("Anna"), "by hand")
    if place := given.get("stopped"):
        group, topic, number = place
        names = {"group": topic_name(group), "topic": topic_name(topic), "partition": number}
        Watermark.objects.create(**names, next_offset=3, alarm=given.get("alarm", ALARM), updated_at=now)
    if (held := given.get("held")) is not None:
        Customer.objects.create(**{"pk": "acme", "rates": "5/s", "created_at": now, "updated_at": now} | held)
    batch = on_its_way(*what, given)
    why = lifecycle.why_it_waits(batch, now)
    expected = f"Waits: {said}" if said else ""
    assert (why[: len(expected)], bool(why)) == (expected, bool(said))
    standstill = Standstill()
    standstill.why_none(batch)
    assert standstill.why == why
    shown = html.unescape(text(page(boss, batch)))
    assert (why in shown) if why else "Waits: " not in shown


def test_it_is_asked_of_what_is_on_its_way_and_only_then(settings, monkeypatch):
    settings.HEARTBEAT = "outbox.processes.heartbeat.Heartbeat"
    batch = on_its_way(*MAIL, {})
    with CaptureQueriesContext(connection) as asked:
        assert lifecycle.why_it_waits(batch, database_now()).startswith("Waits: no relay_outbox runs")
    assert not [query["sql"] for query in asked if '"payload"' in query["sql"] or "`payload`" in query["sql"]]
    for changes in ({"state": "paused"}, {"requeued": 0}, {"verb": "resolve"}):
        other = ReplayBatch.objects.get()
        for name, value in changes.items():
            setattr(other, name, value)
        assert lifecycle.why_it_waits(other, database_now()) == ""
    batch.note = "Waits: for the note."
    assert lifecycle.why_it_waits(batch, database_now()) == batch.note


def test_a_command_asks_every_two_seconds_and_leaves_after_ten(settings, monkeypatch):
    settings.HEARTBEAT = "outbox.processes.heartbeat.Heartbeat"
    batch, progress = on_its_way(*MAIL, {}), Standstill()
    assert [progress.why_none(batch), progress.why] == ["", ""]
    progress.at -= 3
    progress.asked_at -= 3
    assert progress.why_none(batch) == ""
    assert progress.why.startswith("Waits: no relay_outbox runs for email")
    monkeypatch.setattr(lifecycle, "why_it_waits", lambda *_: pytest.fail("asked again"))
    assert progress.why_none(batch) == ""
    progress.at -= 8
    assert progress.why_none(batch) == progress.why
    batch.verified += 1
    assert [progress.why_none(batch), progress.why] == ["", ""]


def test_every_source_with_awaited_letters_says_which_workers_bring_their_effect():
    kinds = [letters for flow in flows() for letters in flow.letters() if not letters.required_workers([])]
    assert {(letters.source, *letters.steps) for letters in kinds} == {("ledger",), ("outbox", *change_capture.STEPS)}
    assert not any(letters.awaited() for letters in kinds)
