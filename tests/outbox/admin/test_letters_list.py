"""The list of letters by flow, what a replay batch can do to all that it shows, and the batches of one letter."""

import re
import time
from datetime import UTC, datetime
from html import unescape

import pytest
from django.urls import reverse

from config.database.clock import database_now
from config.fields import uuid7_milliseconds
from outbox.letters.filters import Filter
from outbox.letters.models import DeadLetter, ProofRound
from outbox.letters.overview import letter_needs
from outbox.replay_batches.models import ReplayBatch, ReplayItem
from tests.config.admin.conftest import client_with, list_of, page_of
from tests.outbox.replay_batches.conftest import scripted
from tests.outbox.replay_batches.scripted_flow import confirmed, letters, previewed, run_until, step

__all__ = ["scripted"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("scripted")]
LETTERS = list_of(DeadLetter)


def shown(client, **asked):
    response = client.get(LETTERS, asked)
    assert response.status_code == 200
    return response.content.decode()


def keys(html):
    return re.findall(r">(K\d+)</a>", html)


def levers(html):
    """Where the levers on the whole list lead, by their words."""
    found = re.findall(r'<form method="post" action="([^"]+draft[^"]+)".*?</svg>([^<]+)<', html, re.DOTALL)
    return {words.removesuffix("…"): unescape(url) for url, words in found}


def test_a_list_of_one_flow_shows_its_letters_alone(boss):
    letters(2, "swift")
    letters(3, "slow")
    assert keys(shown(boss, source="swift")) == ["K1", "K0"]
    assert len(keys(shown(boss, source="slow"))) == 3
    assert len(keys(shown(boss))) == 5
    assert keys(shown(boss, source="slow", state="resolved")) == []


def test_an_unknown_flow_is_no_filter(boss):
    letters(2)
    assert len(keys(shown(boss, source="nobody's"))) == 2


def test_the_need_of_letters_without_effect_leads_to_them(boss):
    """Once the list refused the address that home led to."""
    letters(1, "slow")
    DeadLetter.objects.update(status="requeued")
    ProofRound.objects.create(source="slow", overdue=1, oldest_at=database_now(), looked_at=database_now())
    [need, *_] = letter_needs(["slow"])
    assert keys(boss.get(need.url).content.decode()) == ["K0"]


def test_the_lever_that_does_harm_stands_last(boss):
    letters(1)
    assert list(levers(shown(boss))) == ["Requeue all of these", "Resolve all of these", "Discard all of these"]


@pytest.mark.parametrize("verb", ["Requeue", "Discard", "Resolve"])
def test_a_lever_drafts_a_batch_of_what_the_list_shows(boss, verb):
    letters(2, "swift")
    letters(3, "slow")
    url = levers(shown(boss, source="slow"))[f"{verb} all of these"]
    assert boss.post(url).status_code == 302
    batch = ReplayBatch.objects.get()
    assert (batch.verb, batch.filter) == (verb.lower(), {"source": "slow"})
    run_until(batch, "previewed")
    batch.refresh_from_db()
    assert batch.pinned == 3


def test_of_a_time_only_what_the_list_shows(boss):
    """From the first millisecond of the start to the last one before the end."""
    ids = []
    for index in range(4):
        letters(1, key=lambda _, index=index: f"K{index}")
        ids.append(DeadLetter.objects.latest("pk").pk)
        time.sleep(0.002)  # ids are ordered by milliseconds
    since, before = (datetime.fromtimestamp(uuid7_milliseconds(pk) / 1000, UTC).isoformat() for pk in (ids[1], ids[3]))
    page = boss.get(list_of(DeadLetter), {"from": since, "to": before}).content.decode()
    assert keys(page) == ["K2", "K1"]
    boss.post(levers(page)["Discard all of these"])
    batch = ReplayBatch.objects.get()
    assert batch.filter == {"since": since, "before": before}
    run_until(batch, "previewed")
    assert list(ReplayItem.objects.order_by("letter").values_list("letter", flat=True)) == ids[1:3]
    assert f"that arrived since {since} and before {before}" in Filter.of(batch.filter).words()


def test_of_yesterday_the_batch_keeps_both_ends(boss):
    letters(1)
    url = levers(boss.get(list_of(DeadLetter), {"when": "day"}).content.decode())["Requeue all of these"]
    boss.post(url)
    assert list(ReplayBatch.objects.get().filter) == ["since"]
    run_until(ReplayBatch.objects.get(), "previewed")
    assert ReplayItem.objects.count() == 1


def test_of_a_group_only_its_letters_and_of_everything_all(boss):
    letters(2)
    group = DeadLetter.objects.first().group_id
    boss.post(levers(shown(boss, group__id__exact=group))["Requeue all of these"])
    boss.post(levers(shown(boss))["Requeue all of these"])
    assert list(ReplayBatch.objects.order_by("pk").values_list("filter", flat=True)) == [
        {"group": group},
        {"all": True},
    ]


def test_what_was_discarded_can_only_be_restored_and_what_is_closed_not_at_all(boss):
    letters(2)
    DeadLetter.objects.update(status="discarded")
    assert set(levers(shown(boss, state="discarded"))) == {"Restore all of these"}
    DeadLetter.objects.update(status="resolved")
    for state in ("resolved", "all"):
        assert levers(shown(boss, state=state)) == {}


def test_hits_of_a_search_and_an_empty_list_offer_nothing(boss):
    letters(2)
    assert levers(shown(boss, q="K1")) == {}
    assert levers(shown(boss, state="discarded")) == {}


def test_without_the_right_they_are_locked_and_say_why():
    letters(1)
    html = shown(client_with("view_deadletter", "view_replaybatch"))
    assert levers(html) == {}
    assert "need the right “bulk requeue”" in html


# -- One letter and its batches -----------------------------------------------------------------------------
def test_a_letter_leads_to_the_batch_that_works_on_it_and_to_those_that_did(boss):
    pk = letters(3, "slow")[0]
    letter = DeadLetter.objects.get(pk=pk)
    first = previewed()
    assert "works on it" not in boss.get(page_of(letter)).content.decode()
    batch = confirmed()
    step(2)
    html = boss.get(page_of(letter)).content.decode()
    assert f"{batch}</a> works on it:" in html
    for one in (first, batch):
        assert reverse("admin:outbox_replaybatch_change", args=[one.pk]) in html.partition("Timeline</h2>")[2]


def test_the_letters_of_a_batch_lead_back_to_it(boss):
    """Once "Show all" led to a list of no batch, which is empty."""
    letters(2)
    batch = confirmed()
    run_until(batch, "done")
    listed = reverse("admin:outbox_replayitem_changelist")
    html = boss.get(f"{listed}?batch__id__exact={batch.pk}&state=verified").content.decode()
    url = reverse("admin:outbox_replaybatch_change", args=[batch.pk])
    assert f'<a href="{url}">Back to the batch</a>' in html
    assert len(keys(html)) == 2


def test_a_batch_that_is_over_works_on_nothing(boss):
    letter = DeadLetter.objects.get(pk=letters(1)[0])
    batch = confirmed()
    run_until(batch, "done")
    html = boss.get(page_of(letter)).content.decode()
    assert "works on it" not in html
    assert "requeue, verified" in html.partition("Timeline</h2>")[2]
