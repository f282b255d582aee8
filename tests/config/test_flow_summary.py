"""`flow_summary`: what went through every flow, dead letters of all of them among it."""

from __future__ import annotations

import pytest
from django.core.management import call_command

from config.database.clock import database_now
from config.kafka import Replayed
from outbox.letters.burial import Letter, bury
from outbox.letters.models import DeadLetter

pytestmark = pytest.mark.django_db


def letter(source: str, offset: int) -> Letter:
    return Letter(source, "decode", "invalid_json", "no", Replayed("t", 0, offset, 0, None, b"{"))


def test_the_dead_letters_of_every_flow_are_counted(capsys):
    sources = ["transfer-requests", *["ledger"] * 2, *["outbox"] * 3, *["throttler"] * 4, *["messages-in"] * 5]
    bury([letter(source, offset) for offset, source in enumerate(sources)], "g", database_now())
    DeadLetter.objects.all().delete()  # as retention does with old ones
    call_command("flow_summary")
    told = capsys.readouterr().out.splitlines()
    assert len({len(line) for line in told}) == 1  # the numbers stand below each other
    lines = [line.rsplit(maxsplit=1) for line in told]
    assert {name: number for name, number in lines if "dead letters" in name} == {
        "dead letters of orders": "1",
        "dead letters of stock": "2",
        "dead letters of messages": "3",
        "dead letters of notifications": "4",
        "dead letters of promises": "5",
    }
