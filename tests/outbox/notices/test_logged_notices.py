"""Each state that a notice comes to is a line of the log, once it is committed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from config.database.clock import database_now
from outbox.notices import incidents, sender
from outbox.notices.addresses import NoticeOutcome
from outbox.notices.models import Incident, Notice
from tests.logged import lines
from tests.outbox.notices.conftest import a_need

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("outcome", "age", "became"),
    [
        (NoticeOutcome(ok=True), 0, "sent"),
        (NoticeOutcome(ok=False, error="no"), 0, "waiting"),
        (NoticeOutcome(ok=False, error="no", unsure=True), 0, "unsure"),
        (NoticeOutcome(ok=False, error="no"), 2, "given_up"),
    ],
)
def test_notices_that_are_sent_and_what_became_of_them_are_one_line_each(
    due, caplog, django_capture_on_commit_callbacks, outcome, age, became
):
    row = due(needs=[a_need(key="1"), a_need(key="2")])
    Notice.objects.update(created_at=database_now() - timedelta(days=age))
    claimed = sender.claim(row.pk, database_now())
    with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
        assert sender.open_attempts(claimed)
        sender.settle(claimed, outcome, database_now())
    ids = [str(pk) for pk in Notice.objects.order_by("pk").values_list("pk", flat=True)]
    said = [line for line in lines(caplog) if line["event"] == "notices_moved"]
    assert [(line["subscription"], line["notices"], line["notice_id"], line["became"]) for line in said] == [
        (row.pk, 2, ids, ["sending"] * 2),
        (row.pk, 2, ids, [became] * 2),
    ]


def test_who_lost_notices_says_of_none_what_became_of_them(due, caplog, django_capture_on_commit_callbacks):
    row = due()
    claimed = sender.claim(row.pk, database_now())
    Notice.objects.update(state="sent")
    with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
        sender.settle(claimed, NoticeOutcome(ok=True), database_now())
    (line,) = lines(caplog)
    ids = [str(Notice.objects.get().pk)]
    assert (line["event"], line["notices"], line["notice_id"]) == ("notice_fence_lost", 1, ids)


def test_who_is_to_be_told_of_what_is_one_line_of_a_look_and_none_when_nobody_is(
    subscribe, needed, caplog, django_capture_on_commit_callbacks
):
    rows = [subscribe(), subscribe(name="More")]
    needed += [a_need(key="1"), a_need(key="2")]

    def look():
        caplog.clear()
        with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
            incidents.look(database_now())
        return lines(caplog)

    (line,) = look()
    assert (line["event"], line["notices"], line["more"]) == ("notices_planned", 4, 0)
    assert sorted(zip(line["subscription"], line["incident"], strict=True)) == sorted(
        (str(row.pk), str(incident.pk)) for row in rows for incident in Incident.objects.all()
    )
    assert (line["kind"], line["phase"]) == (["worker"] * 4, ["opened"] * 4)
    assert look() == []


def test_an_end_that_nobody_has_heard_of_and_that_is_none_is_told_to_be_withdrawn(
    due, caplog, django_capture_on_commit_callbacks
):
    row = due()
    notice = Notice.objects.get()
    Notice.objects.update(phase="resolved")
    with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
        assert sender.claim(row.pk, database_now()) is None
    (line,) = lines(caplog)
    assert (line["event"], line["subscription"], line["notice_id"]) == ("notices_withdrawn", row.pk, [str(notice.pk)])
    assert not Notice.objects.exists()


def test_a_notice_whose_sender_died_is_told_to_be_in_doubt(due, caplog, django_capture_on_commit_callbacks):
    row = due()
    sender.open_attempts(sender.claim(row.pk, database_now()))
    Notice.objects.update(tried_at=database_now() - timedelta(days=1))
    with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
        incidents.look(database_now())
        incidents.look(database_now())  # of none it says nothing
    (line,) = (line for line in lines(caplog) if line["event"] == "notices_moved")
    assert (line["subscription"], line["became"]) == ([str(row.pk)], ["unsure"])
