"""The pages of failure groups: filters with their numbers, the order, the page of one, its words, and who may do what."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from config.database.clock import database_now
from outbox.audit_log.models import OperatorAction
from outbox.groups.levers import mark_of
from outbox.groups.models import FailureGroup, GroupHour, hour_of
from outbox.letters.burial import bury
from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import client_with, lever_of, list_of, page_of, queries_of, seen, walk
from tests.outbox.groups.test_arrivals import letter

pytestmark = pytest.mark.django_db
State = FailureGroup.State
LIST = list_of(FailureGroup)
TITLES = r'change/[^"]*">([a-z ]+)<span'


def make(title, state=State.OPEN, minutes=0, source="transfer-requests", **more):
    when = database_now() - timedelta(minutes=minutes)
    more = {"open_count": 1, "total_count": 1, "first_seen": when, "last_seen": when, "state_since": when, **more}
    return FailureGroup.objects.create(
        fingerprint=title[:32], source=source, step="decode", reason="r", title=title, state=state, **more
    )


@pytest.fixture
def groups():
    """One in each state, and two whose rest is over."""
    now = database_now()
    return [
        make("seen", State.OPEN, 3), make("fresh", State.NEW, 9), make("back", State.REGRESSED, 20),
        make("mine", State.ACKNOWLEDGED, 1, owner_name="Ada"), make("quiet", State.IGNORED, 2, ignored_total=5),
        make("late", State.IGNORED, 4, ignored_until=now - timedelta(seconds=1)),
        make("many", State.IGNORED, 5, ignored_total=7, total_count=7, owner_name="Ada"),
        make("done", State.RESOLVED, 6, open_count=0), make("way", State.OPEN, 7, open_count=0, requeued_count=3),
        make("gone", State.IGNORED, 8, open_count=0, ignored_until=now - timedelta(seconds=1)),
    ]  # fmt: skip


def listed(client, query=""):
    return re.findall(r'change/[^"]*">([a-z ]+)<span class="sw-second"><code>r<', seen(client, f"{LIST}{query}"))


def test_what_needs_work_is_listed_most_urgent_first(boss, groups):
    assert listed(boss) == ["back", "fresh", "seen", "late", "mine", "many"]


@pytest.mark.parametrize(
    ("state", "titles"),
    [
        ("new", ["fresh"]), ("regressed", ["back"]), ("open", ["seen", "late"]), ("acknowledged", ["mine", "many"]),
        ("resolving", ["way"]), ("ignored", ["quiet"]), ("resolved", ["done", "gone"]),
    ],
)  # fmt: skip
def test_each_state_lists_what_a_page_shows_in_it(boss, groups, state, titles):
    assert listed(boss, f"?state={state}") == titles
    now = database_now()
    assert [group.title for group in groups if group.shown_state(now) == state] == titles


def test_states_carry_their_numbers(boss, groups):
    html = seen(boss, LIST)
    numbers = dict(re.findall(r">([A-Z][a-z ]+) <span>(\d+)</span></a>", html))
    assert numbers == {
        "Needs work": "6", "New": "1", "Regressed": "1", "Open": "2", "Acknowledged": "2", "Resolving": "1", "Ignored": "1",
    }  # fmt: skip


def test_all_of_them_page_by_page_in_both_directions(boss, groups, monkeypatch):
    monkeypatch.setattr("outbox.admin.groups.pages.FailureGroupAdmin.list_per_page", 3)
    pages, last = walk(boss, f"{LIST}?state=all", "next", TITLES)
    assert [title for page in pages for title in page] == [
        "back", "fresh", "seen", "late", "way", "mine", "many", "quiet", "done", "gone"
    ]  # fmt: skip
    assert walk(boss, last, "prev", TITLES)[0] == pages[::-1]


@pytest.mark.parametrize(
    "cursor", ["x", "1~2~3", "9999~2026-01-01T00:00:00+00:00~1", "0~2026-01-01T00:00:00+00:00~9e9"]
)
def test_a_broken_place_starts_again(boss, groups, cursor):
    assert boss.get(f"{LIST}?before={cursor}", follow=True).status_code == 200


@pytest.mark.parametrize(("url", "most"), [("/admin/", 90), (LIST, 25)])
def test_home_and_list_ask_as_much_for_many_groups_as_for_few(boss, groups, url, most):
    boss.get(url)
    few = len(queries_of(boss, url))
    for number in range(40):
        make(f"more {number}", source=("outbox", "ledger", "throttler")[number % 3])
    assert len(queries_of(boss, url)) == few <= most


def test_filters_by_flow_owner_and_time(boss, groups):
    make("mail", source="outbox", minutes=90)
    assert listed(boss, "?flow=outbox") == ["mail"]
    assert "mail" not in listed(boss, "?flow=buffer")
    assert listed(boss, "?flow=nobody") == listed(boss)
    assert listed(boss, "?owner=nobody&state=acknowledged") == []
    assert listed(boss, "?owner=me") == []
    FailureGroup.objects.filter(title="mine").update(owner_id=User.objects.get(username="boss").pk)
    assert listed(boss, "?owner=me") == ["mine"]
    assert "mail" not in listed(boss, "?when=hour")
    assert "mail" in listed(boss, "?when=day")


def test_the_figures_count_from_what_groups_keep(boss, groups):
    now = database_now()
    for back, came, went in ((0, 7, 4), (1, 3, 9)):
        GroupHour.objects.create(group_id=groups[0].pk, hour=hour_of(now) - back, arrived=came, closed=went)
    html = " ".join(re.sub(r"<[^>]+>", " ", seen(boss, LIST)).split())
    assert "Groups that need work 6 4 without an owner" in html
    assert "Arriving 7 this hour up from 3 the hour before" in html
    assert "Leaving 4 this hour" in html
    assert re.search(r"Longest without an owner 20 min back, 1 letter", html)


# -- One group ---------------------------------------------------------------------------------------------
@pytest.fixture
def group(db):
    bury([letter(offset, business_key=f"A{offset}") for offset in range(14)], "g", database_now())
    return FailureGroup.objects.get()


def test_fourteen_open_letters_are_said_to_be_fourteen(boss, group):
    html = seen(boss, page_of(group))
    assert re.search(r"Newest open letters</h2><a [^>]+>All 14 letters</a>", html)


def test_the_page_says_where_its_letters_come_from(boss, group):
    html = " ".join(re.sub(r"<[^>]+>", " ", seen(boss, page_of(group))).split())
    assert "Where it comes from 14 letters transfer-requests/0 14" in html
    assert "Letters per hour" in html
    assert "14 letters this hour, 0 in the hour before." in html
    assert seen(boss, f"{page_of(group)}?hours=168").count("7 days, UTC") == 1


def test_take_it_is_one_click_and_the_second_is_told_who_was_faster(boss, group):
    url = lever_of(FailureGroup, "take", group).partition("?")[0]
    assert f'action="{url}?id={group.pk}"' in seen(boss, page_of(group))
    boss.post(url, {"id": group.pk})
    group.refresh_from_db()
    assert (group.state, group.owner_name) == (State.ACKNOWLEDGED, "M. Okafor")
    other = client_with("view_failuregroup", "take_failuregroup")
    html = other.post(url, {"id": group.pk}, follow=True).content.decode()
    assert "M. Okafor has it. Nothing was changed." in html
    assert OperatorAction.objects.get().verb == "take"


def test_a_group_is_ignored_until_a_time_with_a_reason(boss, group):
    url = lever_of(FailureGroup, "ignore", group).partition("?")[0]
    assert "Until its open letters have doubled" in seen(boss, f"{url}?id={group.pk}")
    assert "choose one" in boss.post(url, {"id": group.pk, "reason": "known", "choice": "nonsense"}).content.decode()
    assert "A reason is required" in boss.post(url, {"id": group.pk, "choice": "week"}).content.decode()
    boss.post(url, {"id": group.pk, "reason": "the shop knows", "choice": "week"})
    group.refresh_from_db()
    assert group.state == State.IGNORED
    assert group.ignored_until > database_now() + timedelta(days=6)
    assert "Ignored" in seen(boss, page_of(group))


def test_resolve_closes_every_open_letter_and_is_one_deed(boss, group):
    url = lever_of(FailureGroup, "resolve", group).partition("?")[0]
    boss.post(url, {"id": group.pk, "reason": "sent by hand"})
    group.refresh_from_db()
    assert (group.state, group.open_count) == (State.RESOLVED, 0)
    assert not DeadLetter.objects.open().exists()
    action = OperatorAction.objects.get()
    assert (action.verb, action.rows, action.reason) == ("resolve", 14, "sent by hand")


def test_a_locked_lever_stays_and_names_its_right(reader, group):
    html = seen(reader, page_of(group))
    assert html.count('aria-disabled="true"') >= 2
    assert "needs the right “take groups”" in html
    said = "<b>Assign</b>, <b>Resolve</b>, <b>Ignore until</b> need the right “manage groups”. The role Senior support has it."
    assert said in html, "one line a right; nobody ignores the group, so nobody stops ignoring it"


def test_a_group_is_assigned_to_somebody_who_may_take_groups(boss, group):
    client_with("view_failuregroup", "take_failuregroup")
    ada = User.objects.get(username="user1")
    User.objects.create_user("nobody", is_staff=True)
    User.objects.create_user("gone", is_staff=True, is_superuser=True, is_active=False)
    url = lever_of(FailureGroup, "assign", group).partition("?")[0]
    html = seen(boss, f"{url}?id={group.pk}")
    assert re.findall(r'<option value="\d+">([^<]+)<', html) == ["M. Okafor (boss)", "user1"]
    stranger = User.objects.get(username="nobody").pk
    assert "choose one" in boss.post(url, {"id": group.pk, "choice": stranger}).content.decode()
    for owner in (ada, User.objects.get(username="boss")):
        boss.post(url, {"id": group.pk, "choice": owner.pk})
        group.refresh_from_db()
        assert (group.state, group.owner_id) == (State.ACKNOWLEDGED, owner.pk)
    assert "Nothing was changed" in boss.post(url, {"id": group.pk, "choice": owner.pk}, follow=True).content.decode()
    found = list(OperatorAction.objects.order_by("pk").values_list("verb", "before", "after"))
    assert found == [
        ("assign", {"owner": ""}, {"owner": "user1"}), ("assign", {"owner": "user1"}, {"owner": "M. Okafor"}),
    ]  # fmt: skip


# -- Words -------------------------------------------------------------------------------------------------
def words_of(group):
    return f"{LIST}{group.pk}/words/"


def test_words_are_written_and_signed(boss, group):
    given = {"seen": mark_of(group), "note": "asked", "ticket": "https://t.example/7", "hint": "wait\nthen requeue"}
    assert boss.post(words_of(group), given).status_code == 302
    html = seen(boss, page_of(group))
    assert "Written by M. Okafor" in html
    assert '<a href="https://t.example/7" rel="noreferrer">' in html
    action = OperatorAction.objects.get()
    assert (action.subject_type, action.subject_id) == ("outbox.failuregroup", str(group.pk))
    assert (action.before["note"], action.after["note"]) == ("", "asked")


@pytest.mark.parametrize("ticket", ["javascript:alert(1)", "T-17", "//evil.example", "https://a.example/ b"])
def test_a_ticket_that_is_no_address_is_no_link(boss, group, ticket):
    FailureGroup.objects.update(ticket=ticket)
    assert b"noreferrer" not in boss.get(page_of(group)).content


def test_whoever_comes_second_keeps_the_text_and_is_told(boss, group):
    stale = mark_of(group)
    FailureGroup.objects.update(note="theirs")
    html = boss.post(words_of(group), {"seen": stale, "note": "mine"}).content.decode()
    assert "Somebody else changed these words" in html
    assert "\nmine</textarea>" in html
    assert "Theirs: theirs" in html
    assert FailureGroup.objects.get().note == "theirs"


def test_who_may_only_take_groups_writes_no_hint(group):
    client = client_with("view_failuregroup", "take_failuregroup")
    client.post(words_of(group), {"seen": mark_of(group), "note": "asked", "hint": "do it"})
    found = FailureGroup.objects.get()
    assert (found.note, found.hint) == ("asked", "")
    assert client_with("view_failuregroup").post(words_of(group), {"note": "x"}).status_code == 403
    assert Client().get(words_of(group)).status_code == 302


def test_words_that_are_too_long_are_said_to_be_and_kept(boss, group):
    html = boss.post(words_of(group), {"seen": mark_of(group), "note": "x" * 2001}).content.decode()
    assert "At most 2,000 characters; it has 2001." in html
    assert "x" * 2001 in html
    assert boss.get(f"{LIST}99999999999999999999/words/").status_code == 404
