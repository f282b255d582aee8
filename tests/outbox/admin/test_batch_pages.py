"""The pages of replay batches: one page from the preview to the proof, its levers, rights, and who was faster."""

import re

import pytest
from django.urls import reverse

from config.database.clock import database_now
from config.letters import Refusal
from outbox.admin import replay_batch_page as batch_page
from outbox.admin.replay_batch_page import gauge
from outbox.groups.models import FailureGroup
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter
from outbox.models import OperatorAction
from outbox.replay_batches import requests
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from tests.config.admin.conftest import client_with
from tests.outbox.replay_batches.conftest import scripted
from tests.outbox.replay_batches.scripted_flow import ANNA, confirm, confirmed, letters, previewed, run_until, step

__all__ = ["scripted"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("scripted")]
DRAFT = reverse("admin:outbox_replaybatch_draft")
LIST = reverse("admin:outbox_replaybatch_changelist")


def page(client, batch, **more):
    return client.get(reverse("admin:outbox_replaybatch_change", args=[batch.pk]), more).content.decode()


def pull(client, batch, action, follow=True, **given):
    return client.post(reverse("admin:outbox_replaybatch_deed", args=[batch.pk, action]), given, follow=follow)


def text(response):
    content = response if isinstance(response, str) else response.content.decode()
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", content))


def test_a_group_is_requeued_from_draft_to_done(boss):
    letters(30)
    group = FailureGroup.objects.get()
    shown = boss.get(reverse("admin:outbox_failuregroup_change", args=[group.pk])).content.decode()
    action = re.search(r'<form method="post" action="([^"]+verb=requeue[^"]+)"', shown)[1].replace("&amp;", "&")
    response = boss.post(action, {"id": group.pk})
    batch = ReplayBatch.objects.get()
    assert response.url == reverse("admin:outbox_replaybatch_change", args=[batch.pk])
    assert "Counting the letters" in page(boss, batch)
    run_until(batch, "previewed")
    assert "Requeue 30 letters: look before you start" in page(boss, batch)
    response = pull(boss, batch, "confirm", reason="the cause is mended", canary="0")
    assert "30 letters wait for the end of the hold. Nothing has left yet." in text(response)
    assert "Undo" in page(boss, batch)
    pull(boss, batch, "start")
    run_until(batch, "done")
    shown = text(page(boss, batch))
    assert "Requeued 30 of 30 letters" in shown
    assert "M. Okafor" in shown
    assert OperatorAction.objects.filter(verb="requeue").get().rows == 30
    assert "Requeue" in text(boss.get(LIST))


def test_the_preview_names_the_reasons_and_leads_to_the_letters(boss, scripted):
    letters(12)
    scripted.ineligible["K3"] = "Already sent."
    batch = previewed()
    shown = page(boss, batch)
    assert "Already sent." in shown
    url = re.search(r'href="([^"]+state=skipped)"', shown)[1].replace("&amp;", "&")
    listed = boss.get(url).content.decode()
    assert re.findall(r">(K\d+)</a>", listed) == ["K3"]
    assert "refresh.js" not in shown  # what is being typed must not be overwritten


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"reason": ""}, "A reason is required"),
        ({"reason": "the cause is mended", "rate": "fast"}, "is no number"),
        ({"reason": "the cause is mended", "rate": "0"}, "A rate of 0/s: between"),
        ({"reason": "the cause is mended", "canary": "9999"}, "A canary of 9999: between"),
        ({"reason": "the cause is mended", "canary": "9" * 5000}, "is no number"),
    ],
)
def test_what_is_wrong_is_said_and_what_was_typed_is_kept(boss, given, problem):
    letters(3)
    batch = previewed()
    response = pull(boss, batch, "confirm", **given)
    assert response.status_code == 400
    assert problem in text(response)
    assert given["reason"] in response.content.decode()
    batch.refresh_from_db()
    assert batch.state == "previewed"


def test_each_fault_of_a_confirmation_stands_at_its_field_and_the_rest_is_kept(boss):
    letters(3)
    html = pull(boss, previewed(), "confirm", rate="fast", canary="9999", reason="").content.decode()
    for name in ("rate", "canary", "reason"):
        assert f'href="#id_{name}"' in html
        assert re.search(rf'id="id_{name}"[^>]* aria-describedby="id_{name}_helptext id_{name}_error"|'
                         rf'name="{name}"[^>]+aria-describedby="id_{name}_helptext id_{name}_error"', html)  # fmt: skip
    html = pull(boss, previewed("discard"), "confirm", code="outdated", reason="short").content.decode()
    assert '<option value="outdated" selected>' in html
    assert 'name="canary"' not in html


def test_more_than_a_thousand_are_typed(boss, monkeypatch):
    monkeypatch.setattr(requests, "TYPED_ABOVE", 2)
    letters(3)
    batch = previewed()
    assert 'name="typed"' in page(boss, batch)
    assert "You typed 2; the set has 3 letters." in text(pull(boss, batch, "confirm", reason="mended", typed="2"))
    assert "3 letters wait" in text(pull(boss, batch, "confirm", reason="mended", typed="3"))


def test_whoever_is_slower_is_told_who_was_faster(boss):
    letters(3)
    batch = previewed()
    requests.confirm(batch.pk, ANNA, "the cause is mended")
    said = text(pull(boss, batch, "confirm", reason="mended, too"))
    assert f"Replay batch {batch.pk} of Anna is holding already. Nothing was changed." in said
    assert OperatorAction.objects.count() == 1


def test_levers_of_a_running_batch(boss):
    letters(100)
    batch = confirmed()
    step(2)
    shown = page(boss, batch)
    assert 'data-refresh="1"' in shown
    assert "data-live" in page(boss, batch, part=1)
    assert "<html" not in page(boss, batch, part=1)
    assert "Paused." in text(pull(boss, batch, "pause", reason="a look"))
    assert "Resume" in page(boss, batch)
    assert "It goes on." in text(pull(boss, batch, "resume"))
    assert "The rate is 7.5 letters a second." in text(pull(boss, batch, "rate", rate="7.5"))
    assert "Cancelled." in text(pull(boss, batch, "cancel"))
    assert "Nothing was changed." in text(pull(boss, batch, "pause"))


def test_failures_are_shown_by_their_new_cause(boss, scripted):
    letters(60)
    scripted.fails.update(f"K{n}" for n in range(60))
    batch = run_until(confirmed(), "stopped")
    shown = text(page(boss, batch))
    assert "Stopped by its rule: 20 of the last 20 failed (limit 5 %)." in shown
    assert "40 letters remain." in shown
    assert "Go on" in shown
    assert "100 % of the last 20 failed" in shown


def test_every_state_has_its_page(boss):
    letters(3)
    batch = previewed()
    for state in ReplayBatch.State.values:
        ReplayBatch.objects.filter(pk=batch.pk).update(state=state)
        assert text(page(boss, batch))
        assert boss.get(LIST).status_code == 200


def test_without_the_rights_nothing_happens():
    letters(3)
    batch = previewed()
    for rights in (["bulk_replay"], ["requeue_deadletter"]):
        client = client_with("view_replaybatch", *rights)
        assert "needs the right “bulk requeue”" in page(client, batch)
        assert pull(client, batch, "confirm", reason="mended", follow=False).status_code == 403
        assert client.post(DRAFT, {"verb": "requeue", "all": "1"}).status_code == 403
    assert ReplayBatch.objects.count() == 1
    allowed = client_with("view_replaybatch", "bulk_replay", "requeue_deadletter")
    assert (
        client_with("bulk_replay", "requeue_deadletter").post(DRAFT, {"verb": "requeue", "all": "1"}).status_code == 403
    )
    assert allowed.post(DRAFT, {"verb": "discard", "all": "1"}).status_code == 403
    assert allowed.post(DRAFT, {"verb": "requeue", "all": "1"}).status_code == 302


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"group": "x"},
        {"group": "99"},
        {"source": "nob\x00dy"},
        {"ids": "x"},
        {"before": "soon"},
        {"status": "gone"},
    ],
)
def test_a_draft_of_nothing_is_refused_in_words(boss, given):
    response = boss.post(DRAFT, {"verb": "requeue", **given})
    assert response.status_code == 400
    assert 'role="alert"' in response.content.decode()
    assert not ReplayBatch.objects.exists()


def test_a_link_asks_before_it_drafts(boss):
    letters(2)
    shown = boss.get(DRAFT, {"verb": "discard", "source": "swift"}).content.decode()
    assert 'name="source" value="swift"' in shown
    assert not ReplayBatch.objects.exists()
    assert boss.get(DRAFT, {"verb": "explode"}).status_code == 404


@pytest.mark.parametrize("path", ["9/deed/confirm/", "99999999999999999999999/deed/pause/", "1/deed/explode/"])
def test_what_does_not_exist_is_not_found(boss, path):
    assert boss.post(f"{LIST}{path}").status_code == 404


def test_pages_cost_the_same_queries_however_large_the_batch(boss, django_assert_max_num_queries, scripted):
    letters(300)
    scripted.fails.update(f"K{n}" for n in range(290, 300))
    batch = confirmed()
    step(6)
    for url in (reverse("admin:outbox_replaybatch_change", args=[batch.pk]), LIST):
        with django_assert_max_num_queries(25):
            assert boss.get(url).status_code == 200
    assert DeadLetter.objects.count() == 300


def test_the_gauge_has_its_limit_in_the_middle_and_is_red_behind_it(boss):
    filled = [re.search(r'x="0.00%" width="([\d.]+)%"|$', gauge(share, 5.0))[1] for share in (0, 2.5, 5, 33)]
    assert filled == [None, "25.00", "50.00", "100.00"]
    letters(3)
    batch = confirmed()
    for ring, tone in (("x" + "." * 24, "ok"), ("xx" + "." * 18, "bad")):
        ReplayBatch.objects.update(state="paused", ring=ring, started_at=database_now())
        assert re.search(
            rf'<rect class="sw-{tone}" x="0.00%" width="[\d.]+%" height="8"/><rect class="sw-limit" x="50%"',
            page(boss, batch),
        )


def test_a_discard_has_no_canary_and_nothing_on_its_way(boss):
    letters(200)
    batch = previewed("discard")
    shown = text(page(boss, batch))
    assert "Canary" not in shown
    assert "canary" not in shown
    with pytest.raises(Refusal, match="is done at once"):
        requests.confirm(batch.pk, ANNA, "the shop is gone", typed="200", canary=5)
    with pytest.raises(Refusal, match="is done at once"):
        requests.draft("resolve", Filter(all=True), ANNA, canary=5)
    batch = run_until(confirm(batch, canary=None), "done")
    assert not ReplayItem.objects.filter(canary=True).exists()
    shown = text(page(boss, batch))
    assert "Discarded 200 of 200 letters" in shown
    for word in ("Canary", "No canary", "taken back", "Verified", "failed again"):
        assert word not in shown


def test_a_batch_that_is_over_still_says_how_many_went_first(boss):
    letters(20)
    batch = run_until(confirmed(canary=3), "done")
    assert "Canary of 3" in text(page(boss, batch))


def test_what_a_batch_discarded_is_restored_from_its_page(boss):
    mine, others = letters(5), letters(3)
    first, _ = [
        run_until(confirmed("discard", ids=tuple(map(str, ids)), canary=None), "done") for ids in (mine, others)
    ]
    run_until(confirmed("restore", ids=(str(mine[0]),), canary=None), "done")  # before somebody restores the rest
    link = re.search(r'href="([^"]+)">[^<]*<svg[^>]*>.*?</svg>Restore these…', page(boss, first))[1].replace(
        "&amp;", "&"
    )
    asked = text(boss.get(link))
    assert f"Restore letters that replay batch {first.pk} has discarded?" in asked
    boss.post(DRAFT, {"verb": "restore", "batch": first.pk})
    restore = ReplayBatch.objects.latest("pk")
    run_until(restore, "previewed")
    assert restore.eligible == 4
    run_until(confirm(restore, canary=None), "done")
    assert set(DeadLetter.objects.open().values_list("pk", flat=True)) == set(mine)
    assert "Restore these…" not in page(boss, restore)


def test_only_a_discard_can_be_restored_as_a_whole(boss):
    letters(1)
    requeue = run_until(confirmed(), "done")
    assert "Restore these…" not in page(boss, requeue)
    for number, problem in (
        (requeue.pk, "no replay batch that has discarded"),
        ("x", "not the number of a replay batch"),
    ):
        response = boss.post(DRAFT, {"verb": "restore", "batch": number})
        assert response.status_code == 400
        assert problem in text(response)


def test_a_preview_shows_the_three_oldest_letters_it_would_act_on(boss, scripted):
    letters(6)
    scripted.ineligible.update(K0="It waits.")
    DeadLetter.objects.filter(business_key="K1").update(error="no such user ada@example.com")
    shown = page(boss, previewed())
    table = text(shown.partition('id="sw-samples"')[2].partition("</section>")[0])
    assert re.findall(r"K\d", table) == ["K1", "K2", "K3"]
    assert "no such user" in table
    assert "ada@example.com" not in shown


def test_a_batch_of_a_cause_tells_what_came_meanwhile(boss, monkeypatch):
    letters(3)
    group = FailureGroup.objects.get().pk
    batch = previewed(group=group)
    assert "came meanwhile" not in page(boss, batch)
    letters(1)
    assert "1 new letter of this cause came meanwhile and is not in it" in text(page(boss, batch))
    letters(2)
    assert "3 new letters of this cause came meanwhile and are not in it" in text(page(boss, batch))
    monkeypatch.setattr(batch_page, "MOST_NEW", 2)
    assert "More than 2 new letters of this cause" in text(page(boss, batch))
    assert "came meanwhile" not in page(boss, previewed(source="swift"))


def test_a_full_window_says_what_the_batch_waits_for(boss):
    letters(60, "slow")
    batch = confirmed(rate=10_000)
    ReplayBatch.objects.update(state="running", promoted_at=database_now(), requeued=batch.window, eligible=10)
    batch.refresh_from_db()
    assert f"{batch.window} letters are on their way, the most allowed: waiting for their proof." in text(
        page(boss, batch)
    )
    ReplayBatch.objects.update(requeued=batch.window - 1)
    assert "the most allowed" not in text(page(boss, batch))


def test_what_people_did_is_drawn_anew_with_the_rest(boss):
    letters(3)
    batch = previewed()
    requests.confirm(batch.pk, ANNA, "the cause is mended", canary=0)
    assert "the cause is mended" in text(page(boss, batch, part=1))
    requests.undo(batch.pk, ANNA, "a second look")
    assert "a second look" in text(page(boss, batch, part=1))
    assert page(boss, batch).count("a second look") == 1
