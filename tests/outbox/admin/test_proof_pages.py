"""A letter's page tells what became of it, leads to its revisions, and restores what was discarded."""

from __future__ import annotations

import re

import pytest

from config.admin.levers import Operator
from config.database.clock import database_now
from outbox.letters import levers, redelivery
from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import list_of, page_of
from tests.outbox.scripted import PERMANENT, promise

pytestmark = pytest.mark.django_db
ME = Operator("me")


@pytest.fixture
def letter(memory, go) -> DeadLetter:
    promise()
    memory.answers = [PERMANENT]
    go(memory)
    return DeadLetter.objects.get()


def text(client, letter: DeadLetter) -> str:
    return client.get(page_of(letter)).content.decode()


def look() -> None:
    redelivery.look_after(database_now())


def pull(client, lever: str, letter: DeadLetter, **more: str) -> str:
    """The message after a lever was pulled."""
    given = {"id": str(letter.pk), "confirmed": "1", "reason": "as was agreed on", **more}
    answer = client.post(f"{list_of(DeadLetter)}lever/{lever}/", given, follow=True)
    return " ".join(str(message) for message in answer.context["messages"])


def test_a_requeued_letter_is_on_its_way_until_it_is_proven(boss, letter, memory, go):
    levers.pull("requeue", [letter.pk], ME, "try")
    html = text(boss, letter)
    assert "On its way." in html
    assert "No proof of its effect yet." in html
    go(memory)
    look()
    html = text(boss, letter)
    assert "sent, receipt r-1" in html
    assert "What proves it" in html


def test_revisions_lead_to_each_other(boss, letter, memory, go, django_assert_max_num_queries):
    chain = [letter]
    for _ in range(3):
        levers.pull("requeue", [chain[-1].pk], ME, "try")
        memory.answers = [PERMANENT]
        go(memory)
        look()
        chain.append(DeadLetter.objects.open().get())
    chain = list(DeadLetter.objects.order_by("revision"))
    assert [row.revision for row in chain] == [0, 1, 2, 3]
    with django_assert_max_num_queries(25):
        html = text(boss, chain[1])
    assert html.count("Later letter") == 2
    assert html.count("Earlier letter") == 1
    assert all(page_of(row) in html for row in chain if row != chain[1])


def test_the_timeline_has_the_tries_of_the_message(boss, letter, memory, go):
    html = text(boss, letter)
    tries = re.findall(r"<b>(Try \d+: [^<]*)</b>", html)
    assert tries == ["Try 1: refused"]
    assert html.index("Became a dead letter") < html.index("Try 1: refused"), "newest first"
    levers.pull("requeue", [letter.pk], ME, "try")
    go(memory)
    tries = re.findall(r"<b>(Try \d+: [^<]*)</b>", text(boss, letter))
    assert tries == ["Try 1: sent", "Try 1: refused"]  # it has all its tries again


def test_what_fails_again_at_once_is_not_called_a_success(boss, letter, monkeypatch):
    from config.letters import Effect
    from outbox.delivery.message_letters import MessageLetters

    failing = {letter.pk: Effect("failed_again", "no such mailbox")}
    monkeypatch.setattr(MessageLetters, "take_back", lambda *_: failing)
    assert "1 of 1 letter failed again." in pull(boss, "requeue", letter)
    assert DeadLetter.objects.get().status == "failed_again"


def test_what_failed_again_is_not_said_to_be_on_its_way(boss, letter, memory, go):
    """Its note tells how its requeue began; what became of it stands in the evidence."""
    levers.pull("requeue", [letter.pk], ME, "try")
    assert "Already requeued 0" in pull(boss, "requeue", letter)
    assert "the message is pending again." in pull(boss, "requeue", letter)
    memory.answers = [PERMANENT]
    go(memory)
    look()
    said = pull(boss, "requeue", letter)
    assert said.startswith("Already failed again")
    assert "pending" not in said
    assert DeadLetter.objects.get(pk=letter.pk).evidence in said


def test_a_discard_keeps_its_code_and_is_restored_on_the_page(boss, letter):
    assert "Restore" not in text(boss, letter)
    assert pull(boss, "discard", letter, choice="duplicate") == "Discarded 1 letter."
    assert (DeadLetter.objects.get().status, DeadLetter.objects.get().code) == ("discarded", "duplicate")
    html = text(boss, letter)
    assert "Restore it to requeue it." in html
    assert "lever/restore/" in html
    assert "lever/requeue/" not in html
    assert pull(boss, "restore", letter) == "Restored 1 letter."
    assert DeadLetter.objects.get().status == "open"


def test_the_list_knows_every_state(boss, letter):
    html = boss.get(list_of(DeadLetter)).content.decode()
    for word in ("Requeued", "Failed again", "Resolved", "Discarded"):
        assert word in html
