"""A mail server refuses every recipient for a while: from home to the last receipt, in a real browser."""

from __future__ import annotations

import pytest

from notifications.mail.content import short
from outbox import verify
from outbox.letters.models import DeadLetter
from outbox.models import FailureGroup, OperatorAction, OutboxMessage
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from tests.config.admin.test_browser import CHROMIUM
from tests.outbox.scenarios.conftest import LETTERS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium"),
]
REASON = "the server accepts again"


@pytest.fixture
def refused(two_databases, shop):
    """Orders whose mails the server refused, and takes from now on."""
    shop.sells(LETTERS)
    shop.server_refuses()
    shop.relay()
    shop.server_accepts()
    return shop


def faults():
    return [check.name for check in verify.checks() if not check.ok]


def test_a_server_that_does_not_answer_makes_no_letter_and_one_that_refuses_few_groups(shop):
    shop.sells(LETTERS)
    shop.server_is_away()
    for _ in range(3):
        shop.relay()
    assert not DeadLetter.objects.exists()
    assert not FailureGroup.objects.exists()
    assert OutboxMessage.objects.pending().count() == LETTERS
    shop.server_refuses()
    shop.relay()
    assert sorted(FailureGroup.objects.values_list("open_count", flat=True)) == [LETTERS // 3] * 3
    assert DeadLetter.objects.open().count() == LETTERS
    assert len(set(DeadLetter.objects.values_list("error", flat=True))) > LETTERS // 2  # most with ids of their own


def test_each_cause_is_solved_in_three_clicks_from_home_and_each_letter_by_its_receipt(refused, person):
    anna = person("anna")
    for _ in range(FailureGroup.objects.count()):
        anna.clicks = 0
        anna.goes_to("/admin/")
        anna.clicks_on(".sw-needs .sw-line .sw-what a")
        anna.clicks_on("button:has-text('Requeue all')")
        batch = refused.count()
        anna.confirms(batch.eligible, REASON)
        anna.sees("Nothing has left yet")
        assert anna.clicks <= 3
        refused.work(batch, "done")
    assert set(DeadLetter.objects.values_list("status", flat=True)) == {"resolved"}
    receipts = {f"sent, receipt queued as {number}" for number in range(1, LETTERS + 1)}
    assert set(DeadLetter.objects.values_list("evidence", flat=True)) == receipts
    assert set(refused.sink.counts().values()) == {1}
    assert len(refused.sink.accepted) == LETTERS
    assert set(FailureGroup.objects.values_list("state", flat=True)) == {"resolved"}
    anna.goes_to("/admin/")
    assert not anna.page.locator(".sw-needs .sw-line").count()
    assert faults() == []


def test_one_order_is_found_and_requeued_in_two_clicks(shop, person):
    (order,) = shop.sells()
    shop.server_refuses()
    shop.relay()
    shop.server_accepts()
    anna = person("anna")
    anna.searches(short(order.pk))
    anna.clicks_on("a:has-text('Requeue')")
    anna.page.fill("#id_reason", REASON)
    anna.clicks_on("button:has-text('Requeue')")
    anna.sees("Requeued 1 letter.")
    assert anna.clicks == 2
    shop.relay()
    assert [mail["to"] for mail in shop.sink.accepted] == [order.user_email]


def test_undo_in_the_hold_leaves_no_trace_on_a_letter(refused, person):
    def everything():
        letters = list(DeadLetter.objects.order_by("pk").values())
        groups = list(FailureGroup.objects.order_by("pk").values())
        return letters, groups, list(OutboxMessage.objects.order_by("pk").values())

    before = everything()
    anna = person("anna")
    anna.goes_to(FailureGroup.objects.first().url)
    anna.clicks_on("button:has-text('Requeue all')")
    batch = refused.count()
    anna.confirms(batch.eligible, REASON)
    anna.sees("Nothing has left yet")
    anna.clicks_on("button:has-text('Undo')")
    anna.sees("Undone. Nothing was touched, and the preview is kept.")
    ReplayBatch.objects.update(hold_until=batch.previewed_at)  # long over, had nobody undone it
    for _ in range(3):
        refused.worker.due.clear()
        refused.worker.tick()
        refused.relay()
    batch.refresh_from_db()
    assert (batch.state, batch.eligible) == ("previewed", LETTERS // 3)
    assert everything() == before
    assert refused.sink.accepted == []
    assert list(OperatorAction.objects.order_by("pk").values_list("verb", flat=True)) == ["requeue", "undo"]
    assert set(OperatorAction.objects.values_list("subject_type", flat=True)) == {"outbox.replaybatch"}


# -- Two people ------------------------------------------------------------------------------------------
def test_of_two_browsers_at_one_batch_one_confirms_and_the_other_is_told_who(refused, person):
    anna, bela = person("anna"), person("bela")
    anna.goes_to(FailureGroup.objects.first().url)
    anna.clicks_on("button:has-text('Requeue all')")
    batch = refused.count()
    bela.goes_to(anna.page.url)
    for one in (anna, bela):
        one.sees("look before you start")
        one.page.fill("#id_rate", "10000")
        one.page.fill("#id_reason", REASON)
        if one.page.locator("#id_typed").count():
            one.page.fill("#id_typed", str(batch.eligible))
    anna.clicks_on(".sw-ask button:has-text('Requeue')")
    anna.sees("Nothing has left yet")
    bela.clicks_on(".sw-ask button:has-text('Requeue')")
    bela.sees(f"Replay batch {batch.pk} of anna is holding already. Nothing was changed.")
    refused.work(batch, "done")
    assert OperatorAction.objects.filter(verb="requeue").count() == 1
    assert set(refused.sink.counts().values()) == {1}


def test_of_two_browsers_at_one_letter_one_requeues_it_and_the_other_is_told_who(refused, person):
    anna, bela = person("anna"), person("bela")
    letter = DeadLetter.objects.first()
    for one in (anna, bela):
        one.goes_to(f"/admin/outbox/deadletter/lever/requeue/?id={letter.pk}")
        one.page.fill("#id_reason", REASON)
    anna.clicks_on(".sw-form button:has-text('Requeue')")
    anna.sees("Requeued 1 letter.")
    bela.clicks_on(".sw-form button:has-text('Requeue')")
    bela.sees("anna was faster. Nothing was changed.")
    refused.relay()
    assert len(refused.sink.accepted) == 1
    assert list(OperatorAction.objects.values_list("verb", "actor_name")) == [("requeue", "anna")]


def test_of_two_batches_over_one_set_one_does_it_and_the_other_says_who_did(refused, person):
    anna, bela = person("anna"), person("bela")
    group = FailureGroup.objects.first()
    batches = []
    for one in (anna, bela):
        one.goes_to(group.url)
        one.clicks_on("button:has-text('Requeue all')")
        batches.append(refused.count())
    for one, batch in zip((anna, bela), batches, strict=True):
        one.confirms(batch.eligible, REASON)
        one.sees("Nothing has left yet")
    first, second = batches
    ReplayBatch.objects.filter(pk=second.pk).update(hold_until=first.previewed_at)
    ReplayBatch.objects.filter(pk=first.pk).update(hold_until=first.previewed_at)
    refused.worker.due.clear()
    refused.worker.tick()
    bela.sees(f"Held behind Replay batch {first.pk} of anna: one batch of a source at a time.")
    refused.work(first, "done")
    refused.work(second, "done")
    assert second.skipped_why == {f"It is resolved already: Replay batch {first.pk} of anna.": LETTERS // 3}
    assert set(ReplayItem.objects.of(second).values_list("state", flat=True)) == {"skipped"}
    assert set(refused.sink.counts().values()) == {1}
    assert len(refused.sink.accepted) == LETTERS // 3
    bela.sees(f"It is resolved already: Replay batch {first.pk} of anna.")
    assert faults() == []
