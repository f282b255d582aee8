"""Many messages sent again from the list: its filter and time range, the preview in words of messages, the rights."""

import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from config.database.clock import database_now
from outbox.admin import replay_batch_page as batch_page
from outbox.channels.handlers import Outcome
from outbox.models import OutboxMessage, ReplayBatch, ReplayItem
from outbox.replay_batches import requests
from tests.config.admin.conftest import client_with
from tests.outbox.admin.test_batch_pages import DRAFT, page, pull, text
from tests.outbox.replay_batches.scripted_flow import ANNA, counts, run_until, step
from tests.outbox.replay_batches.test_resend import carried_out, confirmed, copies_of, previewed, sent
from tests.outbox.scripted import PERMANENT, promise

pytestmark = pytest.mark.django_db(transaction=True)
LIST = reverse("admin:outbox_outboxmessage_changelist")


def link_of(html: str) -> str:
    """The address behind *Resend all of these*; empty where it is not offered."""
    found = re.search(r'href="([^"]+verb=resend[^"]+)"', html)
    return found[1].replace("&amp;", "&") if found else ""


def test_what_the_list_shows_is_sent_again_from_the_list_to_its_proof(boss, memory, go):
    (pk, *_) = sent(12, memory, go)
    promise("order:99")
    link = link_of(boss.get(LIST, {"state": "sent", "when": "day"}).content.decode())
    asked = boss.get(link).content.decode()
    assert "The messages are counted first." in text(asked)
    assert "<option>memory</option>" in asked
    boss.post(DRAFT, {**dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', asked)), "channel": "memory"})
    batch = ReplayBatch.objects.get()
    assert "Counting the messages" in text(page(boss, batch))
    run_until(batch, "previewed")
    shown = text(page(boss, batch))
    assert "Resend 12 messages: look before you start" in shown
    assert "Will be resent 12" in shown
    assert "Canary" in shown
    assert "letter" not in shown.split("Operator actions")[0].partition("look before")[2].lower().replace(
        "dead letters", ""
    )
    assert "12 messages wait for the end of the hold." in text(
        pull(boss, batch, "confirm", reason="a bad template", canary="2", rate="10000")
    )
    pull(boss, batch, "start")
    step(2)
    assert "Sent again, not yet accepted 2" in text(page(boss, batch))
    assert "On its way" in text(page(boss, batch))
    carried_out(batch, memory, go)
    shown = text(page(boss, batch))
    assert "Resent 12 of 12 messages" in shown
    assert "Accepted 12" in shown
    assert "sent, receipt r-1" in shown
    first = boss.get(reverse("admin:outbox_outboxmessage_change", args=[pk])).content.decode()
    copy = boss.get(reverse("admin:outbox_outboxmessage_change", args=copies_of(pk))).content.decode()
    for html in (first, copy):
        assert f"by replay batch {batch.pk}" in text(html)
    assert f"replay batch {batch.pk}" in text(
        boss.get(reverse("admin:outbox_replayitem_changelist"), {"batch__id__exact": batch.pk, "state": "verified"})
    )


def test_the_preview_shows_three_messages_and_why_others_are_refused(boss, memory, go, monkeypatch):
    ids = sent(5, memory, go)
    monkeypatch.setattr(
        memory, "screen", lambda all_: {one.id: Outcome("permanent", "suppressed: bounced") for one in all_ if one.id == ids[0]}
    )  # fmt: skip
    shown = page(boss, previewed())
    assert "Suppressed: bounced. Lift that, or send it again alone to another address." in text(shown)
    table = shown.partition('id="sw-samples"')[2].partition("</section>")[0]
    assert re.findall(r"outboxmessage/([0-9a-f-]+)/", table) == [str(pk) for pk in ids[1:4]]


def test_the_causes_of_copies_that_failed_are_named(boss, memory, go):
    sent(3, memory, go)
    batch = confirmed()
    step(1)
    memory.always = PERMANENT
    carried_out(batch, memory, go)
    assert counts(batch) == {"failed_again": 3}
    shown = text(page(boss, batch))
    assert "Failed, by cause" in shown
    assert re.search(r"New cause Messages .*no such mailbox.* 3 ", shown)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"state": "sent"},
        {"when": "day", "state": "pending"},
        {"when": "day", "state": "dead_lettered"},
        {"when": "day", "q": "order:waiting"},
        {"to": "2090-01-01"},
        {"from": "soon"},
    ],
)
def test_without_a_start_or_for_what_is_not_sent_it_is_not_offered(boss, memory, go, given):
    lost, *_ = sent(2, memory, go)
    OutboxMessage.objects.filter(pk=lost).update(state="dead_lettered", sent_at=None)
    promise("order:waiting")
    shown = boss.get(LIST, given).content.decode()
    assert "from" in given or 'class="action-select"' in shown  # there is something to act on
    assert not link_of(shown)


def test_it_takes_both_rights(memory, go):
    sent(1, memory, go)
    given = {"state": "sent", "when": "day"}
    for right, lacks in (("bulk_replay", "resend what was sent"), ("resend_outboxmessage", "bulk requeue")):
        client = client_with("view_outboxmessage", "view_replaybatch", right)
        shown = client.get(LIST, given).content.decode()
        assert not link_of(shown)
        assert f"need the right “{lacks}”" in text(shown).replace("needs", "need")
        assert client.post(DRAFT, {"verb": "resend", "since": "2020-01-01"}).status_code == 403
    both = client_with("view_outboxmessage", "view_replaybatch", "bulk_replay", "resend_outboxmessage")
    assert link_of(both.get(LIST, given).content.decode())
    assert both.post(DRAFT, {"verb": "resend", "since": "2020-01-01"}).status_code == 302
    batch = ReplayBatch.objects.get()
    letters_only = client_with("view_replaybatch", "bulk_replay", "requeue_deadletter")
    assert pull(letters_only, batch, "cancel", follow=False).status_code == 403
    assert both.post(DRAFT, {"verb": "resend", "state": "sent"}).status_code == 400


def test_it_reaches_no_failure_group(boss, memory, go):
    """Its filter has no group and no source: a batch of letters with such a one would work on every group."""
    sent(2, memory, go)
    OutboxMessage.objects.filter(aggregate="order:0").update(state="dead_lettered")
    confirmed()
    response = boss.get(reverse("admin:outbox_failuregroup_changelist"))
    assert response.status_code == 200


# -- What a batch measures, and what it waits for -------------------------------------------------------------
def running(**columns) -> ReplayBatch:
    ReplayBatch.objects.update(state="running", promoted_at=database_now(), **columns)
    return ReplayBatch.objects.get()


def test_a_batch_says_how_fast_it_goes_and_when_it_ends(boss, memory, go, monkeypatch):
    sent(1, memory, go)
    confirmed()
    now = database_now()
    monkeypatch.setattr(batch_page, "database_now", lambda: now)
    marks = [
        [now.timestamp() - seconds, 100 - 4 * seconds] for seconds in (300, 20, 10)
    ]  # 4 a second, and a mark that is too old
    batch = running(pinned=2500, eligible=2400, marks=marks, rate=50)
    said = re.search(r"Ends about (\d\d):(\d\d), at 4 a second\.", text(page(boss, batch)))
    assert said
    end = now + timedelta(seconds=600)
    assert abs(int(said[1]) * 60 + int(said[2]) - (end.hour * 60 + end.minute)) <= 1
    for unknown in ([], marks[:1], [[now.timestamp() - 1, 96]], [[now.timestamp() - 30, 100]]):
        ReplayBatch.objects.update(marks=unknown)
        shown = text(page(boss, batch))
        assert "Ends" not in shown
    ReplayBatch.objects.update(marks=marks, state="paused")
    assert "Ends about" not in text(page(boss, batch))


def test_the_worker_marks_how_many_had_their_turn(memory, go, settings):
    settings.REPLAY_CHUNK = 5
    sent(30, memory, go)
    batch = confirmed()
    step(2)
    batch.refresh_from_db()
    ((_at, turns),) = batch.marks
    assert turns == 5
    ReplayBatch.objects.update(marks=[[database_now().timestamp() - 6, 5], [database_now().timestamp() - 5.5, 5]])
    step(1)
    batch.refresh_from_db()
    assert [turns for _at, turns in batch.marks] == [5, 5, batch.turns]
    assert batch.turns == 30 - batch.eligible > 5


def test_it_says_in_numbers_what_it_waits_for(boss, memory, go, monkeypatch):
    sent(60, memory, go)
    batch = confirmed()
    while ReplayItem.objects.filter(state="requeued").count() < 50:
        step(1)
    assert "50 messages are on their way, the most allowed: waiting for their proof." in text(page(boss, batch))
    assert "Behind" not in text(page(boss, batch))
    OutboxMessage.objects.filter(pk=promise("order:late")).update(available_at=database_now() - timedelta(hours=1))
    OutboxMessage.objects.filter(pk=promise("order:later")).update(available_at=database_now() + timedelta(hours=1))
    promise("order:now")  # due, but behind these
    assert "Behind 1 message of the channel memory." in text(page(boss, batch))
    monkeypatch.setattr("outbox.delivery.message_letters.MOST_AHEAD", 1)
    for n in range(2):
        OutboxMessage.objects.filter(pk=promise(f"late:{n}")).update(available_at=database_now() - timedelta(hours=1))
    assert "Behind more than 1 messages of the channel memory." in text(page(boss, batch))
    with CaptureQueriesContext(connection) as asked:
        page(boss, batch)
    (counting,) = [query["sql"] for query in asked if "available_at" in query["sql"] and "COUNT" in query["sql"]]
    assert "LIMIT 52" in counting  # these 50, the one that may be, and one that is too many
    requests.pause(batch.pk, ANNA)
    assert "Behind" not in text(page(boss, batch))
