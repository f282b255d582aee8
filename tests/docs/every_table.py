"""Run by test_backup.py: makes rows in every table, as the flows would have left them, or looks whether all were restored."""

import sys
from datetime import timedelta
from pathlib import Path

import django

django.setup()

from axes.models import AccessAttempt, AccessAttemptExpiration  # noqa: E402 (after django.setup, as all below)
from django.apps import apps  # noqa: E402
from django.conf import settings  # noqa: E402
from django.contrib.admin.models import CHANGE, LogEntry  # noqa: E402
from django.contrib.auth.models import Permission, User  # noqa: E402
from django.contrib.sessions.backends.db import SessionStore  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import models, transaction  # noqa: E402

from buffer.events.models import Bucket, BufferedEvent  # noqa: E402
from buffer.flush.flusher import Flusher  # noqa: E402
from buffer.ingest.handler import Ingest  # noqa: E402
from buffer.streams import streams  # noqa: E402
from config.admin.levers import Operator  # noqa: E402
from config.database.clock import database_now  # noqa: E402
from config.kafka import RecordBatch, Replayed, topic_name  # noqa: E402
from config.processes.alive import identity_of  # noqa: E402
from notifications.orders import changes  # noqa: E402
from outbox.accounts.models import SavedView, ViewerZone  # noqa: E402
from outbox.audit_log.actions import record  # noqa: E402
from outbox.audit_log.hash_chain import seal  # noqa: E402
from outbox.bookkeeping.models import JobLease, Watermark  # noqa: E402
from outbox.delivery.levers import resend  # noqa: E402
from outbox.letters.edits import requeue_copy  # noqa: E402
from outbox.letters.models import DeadLetter  # noqa: E402
from outbox.messages.models import OutboxMessage  # noqa: E402
from outbox.processes.heartbeat import Heartbeat  # noqa: E402
from outbox.sign_in.models import SignIn  # noqa: E402
from tests.conftest import TOPIC_ID, MemoryProducer, move_on, order  # noqa: E402
from tests.screenshots import flows, letters, others  # noqa: E402
from tests.throttler.worked import Worked  # noqa: E402
from throttler.models import Lane, LanePartition, OutputDivision, OverflowMessage  # noqa: E402

ANYTHING = "東京 “…” 🧾 'it''s' \\ \x01"


def orders() -> None:
    """Some wait, some are sent, some could not be read."""
    values = [order(f"A{number}", note=ANYTHING, location_id=f"WH-{number % 3}") for number in range(30)]
    ingest(values + [b"{not json"] * 8 + [b"{}"] * 9, 0)
    now = database_now()
    Bucket.objects.filter(location_id="WH-1").update(urged="manual", due_at=now - timedelta(seconds=1))
    Flusher([streams()["transfer-requests"]], MemoryProducer()).tick()


def ingest(values: list[bytes], first: int) -> None:
    """As records from this offset on."""
    stream = streams()["transfer-requests"]
    records = [
        Replayed("transfer-requests", 0, offset, 1_700_000_000_000, b"k", value)
        for offset, value in enumerate(values, first)
    ]
    handler = Ingest(stream)
    batch = RecordBatch(records, {"transfer-requests": TOPIC_ID})
    batch.prepared = handler.prepare(batch)
    with transaction.atomic():
        now = database_now()
        handler.write(batch, now)
        move_on(handler.group, batch, now)


def resent() -> None:
    resend(OutboxMessage.objects.filter(state="sent").latest("pk").pk, Operator("me"), ANYTHING)


def stocks() -> None:
    flows._stock()
    now = database_now()
    for topic in settings.MOVEMENTS:
        mark = {"next_offset": 1_000, "topic_id": TOPIC_ID, "caught_up_at": now, "updated_at": now}
        Watermark.objects.create(group=topic_name("buffer-track"), topic=topic_name(topic), partition=0, **mark)


def notices() -> None:
    """Without the lanes of the pictures, whose numbers are invented."""
    Lane.objects.all().delete()
    LanePartition.objects.all().delete()
    OverflowMessage.objects.all().delete()
    Worked()
    OutputDivision.objects.create(version=1, entries={"one": [1_000_000, 12, 3.5]})


def edited() -> None:
    letter = DeadLetter.objects.filter(source="transfer-requests").open()[0]
    requeue_copy(letter.pk, order("A99").decode(), 0, Operator("me"), "The producer told us on the telephone")


def people() -> None:
    """What stands in the tables of Django and of the logins."""
    user = User.objects.get(username="ito")
    user.user_permissions.add(Permission.objects.first())
    AccessAttemptExpiration.objects.create(access_attempt=AccessAttempt.objects.first(), expires_at=database_now())
    LogEntry.objects.log_actions(user.pk, User.objects.all(), CHANGE, ANYTHING)
    session = SessionStore()
    session["what"] = ANYTHING
    session.save()
    both = {"subject_type": "auth.user", "subject_ids": [user.pk, user.pk + 1]}
    record(Operator("me"), "look", "2 accounts", reason=ANYTHING, **both)


def fill() -> None:
    User.objects.create_superuser("ito", password="x")
    orders()
    letters.fill_letters()
    stocks()
    flows._mails()
    others.fill_others()
    resent()
    notices()
    edited()
    people()
    JobLease.objects.create(job="rotate", until=database_now())
    ViewerZone.objects.create(person=1, zone="Europe/Berlin")
    SignIn.begin(1, {"access_token": ANYTHING}, database_now())
    SavedView.objects.create(owner_number=1, owner_name="me", list="outbox.deadletter", name="n", query="", created_at=database_now())  # fmt: skip
    Heartbeat(identity_of("relay_outbox")).report(database_now())
    seal(database_now())
    tables = [model for model in apps.get_models(include_auto_created=True) if model._meta.managed]
    empty = [model._meta.label for model in tables if not models.QuerySet(model).exists()]
    assert not empty, empty


def go_on() -> None:
    """New rows get numbers that nobody has."""
    first = BufferedEvent.objects.count()
    ingest([order(f"B{number}") for number in range(5)], 1_000)
    paid = changes.create("later@example.com", 1999, "EUR", database_now())
    changes.change(paid.pk, "pay")
    record(Operator("me"), "look", "the restored rows", reason=ANYTHING)
    assert BufferedEvent.objects.count() == first + 5


def main(verb: str, rows: str) -> None:
    """`fill` an empty database and write all its rows to this file, or tell that those are in a `restored` one."""
    if verb == "fill":
        call_command("migrate", verbosity=0)
        fill()
        call_command("dumpdata", use_base_manager=True, output=rows)
        return
    call_command("check", databases=["default"])
    call_command("dumpdata", use_base_manager=True, output=f"{rows}.restored")
    assert Path(f"{rows}.restored").read_text() == Path(rows).read_text()
    go_on()
    call_command("verify")


if __name__ == "__main__":
    main(*sys.argv[1:])
