"""Each state that a notice comes to is a line of the log, once it is committed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from config.database.clock import database_now
from outbox.alerts import matters, sender
from outbox.alerts.addresses import TryResult
from outbox.alerts.models import Notice
from tests.logged import lines
from tests.outbox.alerts.conftest import a_need

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("outcome", "age", "became"),
    [
        (TryResult(sent=True), 0, "sent"),
        (TryResult(sent=False, fault="no"), 0, "waiting"),
        (TryResult(sent=False, fault="no", unsure=True), 0, "unsure"),
        (TryResult(sent=False, fault="no"), 2, "given_up"),
    ],
)
def test_notices_that_are_sent_and_what_became_of_them_are_one_line_each(
    subscribe, needed, caplog, django_capture_on_commit_callbacks, outcome, age, became
):
    row = subscribe()
    needed += [a_need(key="1"), a_need(key="2")]
    matters.look(database_now())
    Notice.objects.update(created_at=database_now() - timedelta(days=age))
    claim = sender.claim_notices(row.pk, database_now())
    with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
        assert sender.begin(claim)
        sender.settle(claim, outcome, database_now())
    ids = [str(pk) for pk in Notice.objects.order_by("pk").values_list("pk", flat=True)]
    said = [line for line in lines(caplog) if line["event"] == "notices_moved"]
    assert [(line["subscription"], line["notices"], line["notice_id"], line["became"]) for line in said] == [
        (row.pk, 2, ids, ["sending"] * 2),
        (row.pk, 2, ids, [became] * 2),
    ]


def test_who_lost_notices_says_of_none_what_became_of_them(
    subscribe, needed, caplog, django_capture_on_commit_callbacks
):
    row = subscribe()
    needed.append(a_need())
    matters.look(database_now())
    claim = sender.claim_notices(row.pk, database_now())
    Notice.objects.update(state="sent")
    with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
        sender.settle(claim, TryResult(sent=True), database_now())
    assert [line["event"] for line in lines(caplog)] == ["notice_fence_lost"]


def test_a_notice_whose_sender_died_is_told_to_be_in_doubt(
    subscribe, needed, caplog, django_capture_on_commit_callbacks
):
    row = subscribe()
    needed.append(a_need())
    matters.look(database_now())
    sender.begin(sender.claim_notices(row.pk, database_now()))
    Notice.objects.update(tried_at=database_now() - timedelta(days=1))
    with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
        matters.look(database_now())
        matters.look(database_now())  # of none it says nothing
    (line,) = (line for line in lines(caplog) if line["event"] == "notices_moved")
    assert (line["subscription"], line["became"]) == ([str(row.pk)], ["unsure"])
