"""The page of a dead letter: what an older version stored of an error, and who may read it."""

import re
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from buffer.events.models import BufferedEvent
from config.database.clock import database_now
from config.kafka import Replayed
from outbox.groups.models import FailureGroup
from outbox.letters.burial import Letter, bury
from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import client_with, list_of, page_of, queries_of, reveal

pytestmark = pytest.mark.django_db
ROW = "value too long\nDETAIL:  Failing row contains (ada@example.com)."


def test_the_row_in_an_old_error_is_hidden_until_it_is_revealed(boss, rows):
    DeadLetter.objects.filter(pk=rows.late.pk).update(error=ROW, traceback=f"Traceback\nDataError: {ROW}")
    for client in (boss, client_with("view_deadletter")):
        html = client.get(page_of(rows.late)).content.decode()
        assert "value too long" in html
        assert "ada@" not in html
    reveal(boss, rows.late)
    assert boss.get(page_of(rows.late)).content.decode().count("ada@example.com") == 2


# -- Where its links lead, and what it says of others ------------------------------------------------------
def letter_of_mail(number=1, **more):
    """Buried as the relay does it; its message is gone, or never was."""
    pk = str(UUID(int=number, version=4))
    record = Replayed("", -1, 1, 1000, b"order:1", b"{}", [])
    return Letter("outbox", "deliver", "refused", "550 no", record, topic_id=pk, business_key=f"order:{number}", **more)


def test_a_mail_has_no_place_in_a_topic_and_leads_to_its_message_and_its_order(boss):
    bury([letter_of_mail()], "outbox", database_now())
    letter = DeadLetter.objects.get()
    html = boss.get(page_of(letter)).content.decode()
    assert f'<a href="/admin/outbox/outboxmessage/{letter.topic_id}/change/">{letter.topic_id}</a>' in html
    assert f'<a href="/admin/find/?q=order%3A1&amp;beside={letter.pk}">order:1</a>' in html
    origin = html.partition("Origin</h2>")[2].partition("</section>")[0]
    assert "-1" not in re.sub(r"[0-9a-f-]{36}", "", origin)  # an id may hold it


def test_a_batch_on_its_way_has_no_position_either(boss, rows):
    origin = boss.get(page_of(rows.refused)).content.decode().partition("Origin</h2>")[2].partition("</section>")[0]
    assert "/-1/" not in origin


def test_the_key_of_a_letter_never_leads_back_to_itself(boss, rows):
    html = boss.get(page_of(rows.late)).content.decode()
    found = re.search(r'<dt>About</dt><dd><a href="([^"]+)"', html)
    there = boss.get(found[1].replace("&amp;", "&"))
    assert there.status_code == 302
    assert "/bufferedevent/" in there.url
    BufferedEvent.objects.all().delete()
    nothing = boss.get(found[1].replace("&amp;", "&"))
    assert nothing.status_code == 200


def test_a_letter_leads_to_the_newer_and_the_older_of_its_group(boss):
    for number in range(1, 4):
        bury([letter_of_mail(number)], "outbox", database_now())
    oldest, middle, newest = DeadLetter.objects.order_by("pk")
    bury([replace(letter_of_mail(9), error="421 busy")], "outbox", database_now())
    sides = [
        tuple(boss.get(page_of(row)).context[side] for side in ("newer", "older")) for row in (oldest, middle, newest)
    ]
    assert sides == [(page_of(middle), ""), (page_of(newest), page_of(oldest)), ("", page_of(middle))]


def test_a_letter_alone_may_not_fail_again_because_of_itself(boss):
    now = database_now()
    bury([letter_of_mail(1)], "outbox", now - timedelta(seconds=5))
    first = DeadLetter.objects.get()
    FailureGroup.objects.update(last_seen=now)  # by whatever was counted since
    assert boss.get(page_of(first)).context["again"] is None
    bury([letter_of_mail(2)], "outbox", now)
    assert boss.get(page_of(first)).context["again"] == now
    last = DeadLetter.objects.newest_first().first()
    assert boss.get(page_of(last)).context["again"] is None


def test_a_search_in_the_list_finds_letters_of_every_state(boss, rows):
    for state in ("open", "requeued", "resolved", "discarded"):
        DeadLetter.objects.filter(pk=rows.late.pk).update(status=state)
        for query in ("", "&state=open", "&state=resolved"):
            html = boss.get(f"{list_of(DeadLetter)}?q={rows.late.business_key}{query}").content.decode()
            assert page_of(rows.late) in html, (state, query)
            assert re.search(r'aria-current="true">All<', html)


def test_only_keys_are_asked_for_with_a_limit(boss, rows):
    """A planner that sees LIMIT and whole rows walks the primary key: 4 s for an old group on MySQL."""
    group = page_of(FailureGroup.objects.get(pk=rows.late.group_id))
    letters = list_of(DeadLetter)
    for url in (letters, f"{letters}?state=all&group__id__exact={rows.late.group_id}", group, page_of(rows.late)):
        asked = [sql for sql in queries_of(boss, url) if "outbox_deadletter" in sql and "LIMIT" in sql]
        limited = [sql for sql in asked if "pk" not in sql.partition("FROM")[0] and "ORDER BY" in sql]
        several = [
            sql
            for sql in limited
            if not sql.endswith(("LIMIT 21", "LIMIT 1")) or "group_id" in sql.partition("WHERE")[2]
        ]
        assert not several, url
