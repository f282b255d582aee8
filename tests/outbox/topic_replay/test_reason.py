"""`replay_topic` in a terminal: the trail says who asked for it, and why."""

from __future__ import annotations

import getpass
import io

import pytest
from django.core.management import CommandError, call_command

from config.letters import Refusal
from outbox.audit_log.models import OperatorAction
from outbox.topic_replay import requests

pytestmark = pytest.mark.django_db
FRAME = {"from": "2026-02-12T10:00:00Z", "to": "2026-02-12T14:00:00Z"}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What the command says; nothing is read from Kafka."""

    def nothing(*_: object) -> bool:
        raise Refusal("no broker here")

    monkeypatch.setattr(requests, "carry_out", nothing)
    return io.StringIO()


def replay(said: io.StringIO, **options: str) -> None:
    with pytest.raises(CommandError):
        call_command("replay_topic", "transfer-requests", stdout=said, stderr=said, **FRAME, **options)


def test_without_a_reason_the_trail_says_so_and_who_it_was(said: io.StringIO) -> None:
    replay(said)
    assert 'no --reason "…"' in said.getvalue()
    asked = OperatorAction.objects.earliest("pk")
    assert (asked.reason, asked.actor_name) == ("no reason was given", f"{getpass.getuser()}, by command")


def test_a_reason_is_kept(said: io.StringIO) -> None:
    replay(said, reason="release 7 lost rows")
    assert OperatorAction.objects.earliest("pk").reason == "release 7 lost rows"
    assert said.getvalue() == ""


def test_a_reason_as_short_as_the_admin_refuses_starts_nothing(said: io.StringIO) -> None:
    with pytest.raises(CommandError, match="--reason: At least 10 characters"):
        call_command("replay_topic", "transfer-requests", stdout=said, stderr=said, **FRAME, reason="x")
    assert not OperatorAction.objects.exists()
