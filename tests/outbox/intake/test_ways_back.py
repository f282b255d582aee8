"""Every way back in of a letter that is older than its key: what was sent under the key is not sent again, by none."""

import io
from contextlib import suppress
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from config.database.clock import database_now
from config.letters import Refusal
from outbox.letters.filters import Filter
from outbox.letters.levers import pull
from outbox.models import DeadLetter, IdempotencyKey
from outbox.replay_batches import requests
from outbox.replay_batches.models import ReplayBatch
from tests.config.admin.conftest import _plain_http, boss
from tests.outbox.intake.conftest import envelope, record, stored, write
from tests.outbox.intake.test_old_letters import PERSON, buried, days_pass, letter
from tests.outbox.replay_batches.scripted_flow import run_until

__all__ = ["_plain_http", "boss", "buried"]
pytestmark = pytest.mark.django_db(transaction=True)
WHY = "The channel is allowed now"


def by_lever(found, _client):
    pull("requeue", [found.pk], PERSON, WHY)


def by_page(found, client):
    given = {"id": str(found.pk), "reason": WHY, "confirmed": "1"}
    client.post(reverse("admin:outbox_deadletter_lever", args=["requeue"]), given)


def by_batch(chosen):
    batch = run_until(requests.draft("requeue", chosen, PERSON, reason=WHY), "previewed")
    requests.confirm(batch.pk, PERSON, WHY, typed=str(batch.eligible), canary=0)
    ReplayBatch.objects.filter(pk=batch.pk).update(hold_until=database_now())
    run_until(batch, "verifying", "done", "stopped")


def by_command(*chosen):
    call_command(
        "dead_letters", "requeue", *map(str, chosen), "--reason", WHY, stdout=io.StringIO(), stderr=io.StringIO()
    )


WAYS = {
    "a lever": by_lever,
    "a page": by_page,
    "a group": lambda found, _client: by_batch(Filter(group=found.group_id)),
    "a batch": lambda found, _client: by_batch(Filter(all=True)),
    "the command": lambda found, _client: by_command(found.pk),
    "the command for a group": lambda found, _client: by_command("--group", found.group_id),
    "its producer": lambda _found, _client: write(record(envelope())),
}


@pytest.fixture(params=WAYS)
def come_back(request, boss):
    """A way back, whether it is refused or not."""

    def go():
        with suppress(Refusal, CommandError):
            WAYS[request.param](letter(), boss)

    return go


def test_a_letter_whose_key_was_kept_sends_nothing_again(buried, come_back):
    buried(envelope())
    assert days_pass(8) == 0
    come_back()
    assert len(stored()) == 1
    pull("requeue", [letter().pk], PERSON, WHY)
    assert letter().status == "resolved"


def test_a_letter_of_before_keys_were_kept_comes_back_by_no_way(buried, come_back, request):
    if "its producer" in request.node.name:
        pytest.skip("what it promises anew is no letter")
    buried(envelope())
    DeadLetter.objects.update(created_at=database_now() - timedelta(days=9))
    IdempotencyKey.objects.all().delete()
    come_back()
    assert (len(stored()), letter().status) == (1, "open")


def test_each_way_leads_back(settings, come_back):
    """So that the others prove something."""
    settings.MESSAGES_IN = {"messages-in": {"": ["kafka"]}}
    write(record(envelope()))
    settings.MESSAGES_IN = {"messages-in": {"": ["email"]}}
    assert stored() == []
    come_back()
    assert len(stored()) == 1
