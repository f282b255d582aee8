"""Letters that were requeued before effects were proven are closed, with a note that nobody looked."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import pytest
from django.apps import apps
from django.db import connection, transaction

from config.database.clock import database_now
from config.kafka import Replayed
from outbox.letters.burial import Letter, bury
from outbox.letters.models import DeadLetter

pytestmark = pytest.mark.django_db
migration = import_module("outbox.migrations.0008_b_close_what_nobody_looked_after")


def test_requeued_letters_are_closed_chunk_by_chunk_and_the_others_stay(monkeypatch):
    monkeypatch.setattr(migration, "CHUNK", 2)
    records = [Replayed("t", 0, n, 0, None, b"x") for n in range(9)]
    with transaction.atomic():
        bury([Letter("outbox", "decode", "x", "y", record) for record in records], "g", database_now())
    letters = list(DeadLetter.objects.order_by("offset").values_list("pk", flat=True))
    for status, chosen in (("requeued", letters[:5]), ("discarded", letters[5:7])):
        DeadLetter.objects.filter(pk__in=chosen).update(status=status, note="as it was")
    migration.close(apps, SimpleNamespace(connection=connection))
    found = DeadLetter.objects.order_by("offset").values_list("status", "evidence", "note")
    closed = ("resolved", migration.NOBODY, "as it was")
    assert list(found) == [closed] * 5 + [("discarded", "", "as it was")] * 2 + [("open", "", "")] * 2
    assert "nobody looked" in migration.NOBODY
