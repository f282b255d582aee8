"""What to do about a reason: on the page of the group and the letter, on home, in the notice; and before a requeue in vain."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse
from django.utils import timezone

from config.environment.env import BadSetting, Env
from notifications.channels.local import Memory
from notifications.mail import suppression
from outbox.channels.handlers import Outcome
from outbox.groups.models import FailureGroup
from outbox.groups.reasons import advice_on
from outbox.letters.models import DeadLetter
from outbox.letters.overview import letter_needs
from outbox.notices.incidents import _words
from outbox.replay_batches.models import ReplayBatch
from tests.config.admin.conftest import _plain_http, boss, page_of  # noqa: F401 (fixtures)
from tests.notifications.post import email, go, paid
from tests.outbox.replay_batches.scripted_flow import run_until

__all__ = ["email"]
pytestmark = pytest.mark.django_db(transaction=True)
DO = "Remove the cause, requeue; or tell the person another way, then resolve."
IN_VAIN = "550 5.1.1 is for good. It fails again unless the address works now."
REFUSED = Outcome("permanent", "RCPT: 550 5.1.1 no such mailbox", of_recipient=True)


@pytest.fixture
def letter(email) -> DeadLetter:
    paid()
    Memory.script.append(REFUSED)
    go(email)
    return DeadLetter.objects.get()


def text(client, url: str) -> str:
    html = client.get(url).content.decode()
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html))


def test_what_to_do_is_said_before_anybody_has_written_it(boss, letter, settings):  # noqa: F811
    group = FailureGroup.objects.get()
    for page in (page_of(group), page_of(letter)):
        shown = text(boss, page)
        assert DO in shown
        assert "Nobody has written it yet" not in shown
        assert "docs/letters.md#reasons" in shown
    settings.RUNBOOK_URL = "https://git.example.com/docs"
    for page in (page_of(group), page_of(letter)):
        assert 'href="https://git.example.com/docs/letters.md#reasons"' in boss.get(page).content.decode()


def test_home_and_the_notice_say_it_with_the_runbook(boss, letter, settings):  # noqa: F811
    settings.RUNBOOK_URL = "https://git.example.com/docs"
    (need,) = letter_needs(["outbox"])
    assert need.why.endswith(DO)
    assert _words(need)["why"].endswith(f"{DO} Runbook: https://git.example.com/docs/letters.md#reasons")
    home = boss.get(reverse("admin:index")).content.decode()
    assert f'{DO}"><a href="' in home, "what to do is the tooltip of the group's line"


def test_what_a_person_wrote_stands_above_it(boss, letter):  # noqa: F811
    group = FailureGroup.objects.get()
    FailureGroup.objects.update(hint="Call the shop.\nThen requeue.", hint_by="Ada", hint_at=timezone.now())
    for page in (page_of(group), page_of(letter)):
        shown = text(boss, page)
        assert 0 < shown.index("Call the shop.") < shown.index(DO)
    (need,) = letter_needs(["outbox"])
    assert need.why.endswith("Call the shop.")


def test_of_a_source_and_a_step_the_nearer_row_counts():
    def said(source, step, reason):
        return advice_on(FailureGroup(source=source, step=step, reason=reason))

    assert said("throttler", "decode", "too_large").cause.startswith("longer than THROTTLER_MAX_MESSAGE_BYTES")
    assert said("transfer-requests", "decode", "too_large").cause.startswith("larger than BUFFER_MAX_EVENT_BYTES")
    assert said("transfer-requests", "cut", "database_refused").do.startswith("mend the database")
    assert said("transfer-requests", "store", "database_refused").do.startswith("this is a bug")
    assert said("transfer-requests", "store", "unheard_of") is None


def test_a_refusal_for_good_is_said_before_the_requeue(boss, letter):  # noqa: F811
    confirmation = f"{reverse('admin:outbox_deadletter_lever', args=['requeue'])}?id={letter.pk}"
    for page in (page_of(FailureGroup.objects.get()), page_of(letter), confirmation):
        assert IN_VAIN in text(boss, page), page


def test_a_suppressed_address_is_said_before_the_requeue_and_not_when_it_is_lifted(boss, email):  # noqa: F811
    suppression.suppress({"ada@example.com": ("hard_bounce", "")}, timezone.now())
    paid()
    go(email)
    letter = DeadLetter.objects.get()
    assert letter.reason == "suppressed"
    confirmation = f"{reverse('admin:outbox_deadletter_lever', args=['requeue'])}?id={letter.pk}"
    pages = [page_of(FailureGroup.objects.get()), page_of(letter), confirmation]
    said = "The address is suppressed (bounced for good). It fails again until that is lifted."
    assert all(said in text(boss, page) for page in pages)
    suppression.Suppression.objects.all().delete()
    assert not any("It fails again" in text(boss, page) for page in pages)


def test_a_refusal_that_may_end_warns_of_nothing(boss, email):  # noqa: F811
    paid()
    Memory.script.append(Outcome("permanent", "RCPT: 550 5.7.1 something about a policy"))
    go(email)
    assert "is for good" not in text(boss, page_of(DeadLetter.objects.get()))


def test_a_batch_says_it_in_its_preview(boss, letter, settings):  # noqa: F811
    draft = reverse("admin:outbox_replaybatch_draft")
    group = FailureGroup.objects.get()
    boss.post(f"{draft}?verb=requeue&group={group.pk}", {"id": group.pk})
    batch = ReplayBatch.objects.get()
    run_until(batch, "previewed")
    shown = text(boss, reverse("admin:outbox_replaybatch_change", args=[batch.pk]))
    assert f"{IN_VAIN} So do 1 of the 1 oldest." in shown


@pytest.mark.parametrize("url", ["ftp://docs.example.com", "//docs.example.com", "javascript:alert(1)", "docs"])
def test_a_runbook_is_read_by_http_or_https(monkeypatch, url):
    monkeypatch.setenv("RUNBOOK_URL", url)
    with pytest.raises(BadSetting, match="RUNBOOK_URL"):
        Env().site("RUNBOOK_URL")
