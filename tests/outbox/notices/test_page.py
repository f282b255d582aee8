"""The page Subscriptions: who sees and changes what, the form, a test, and that no address is ever shown."""

from __future__ import annotations

from copy import copy
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from config.database.clock import database_now
from config.telemetry import metrics
from outbox.admin import subscriptions
from outbox.audit_log.models import OperatorAction
from outbox.flow import Outbox
from outbox.notices.addresses import seal, unseal
from outbox.notices.models import KINDS, MOST_OF_ONE, Notice, Subscription

pytestmark = pytest.mark.django_db
LIST = "admin:outbox_subscription_changelist"
SECRET = "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7"
FORM = {
    "name": "On-call", "address": SECRET, "kinds": ["worker", "channel"], "urgency": "now", "digest": "0",
    "quiet_from": "22:00", "quiet_to": "07:00", "zone": "Europe/Berlin", "wakes": "1",
}  # fmt: skip


@pytest.fixture(autouse=True)
def looked(monkeypatch):
    """Addresses that were looked at, without a process."""
    seen: list[str] = []
    monkeypatch.setattr(subscriptions, "look_at", lambda address: seen.append(address) or "Slack")
    return seen


def person(name: str, *rights: str) -> User:
    user = User.objects.create_user(name, password="x", is_staff=True)
    user.user_permissions.add(*Permission.objects.filter(codename__in=rights, content_type__app_label="outbox"))
    return user


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def anna():
    return person("anna", "view_subscription")


@pytest.fixture
def boss():
    return person("boss", "view_subscription", "manage_subscription")


def get(user: User, name: str, /, *keys: object):
    return client_of(user).get(reverse(name, args=keys), secure=True)


def post(user: User, name: str, /, *keys: object, **given: object):
    return client_of(user).post(reverse(name, args=keys), given, secure=True)


def add(user: User, /, **changes: object):
    return post(user, "admin:outbox_subscription_add", **{**FORM, **changes})


def test_nobody_is_told_yet_and_the_page_says_what_for(anna):
    html = get(anna, LIST).content.decode()
    assert "Nobody is told yet" in html
    assert "Tell somebody" in html
    assert "No <code>notify_people</code> has reported lately" in html


def test_the_form_begins_with_what_most_people_want(anna, boss):
    html = get(anna, "admin:outbox_subscription_add").content.decode()
    assert '<option value="soon" selected>' in html
    assert '<option value="0" selected>' in html
    assert html.count(' name="kinds" value=') == html.count(" checked>") - 1 == len(KINDS), "and what cannot wait wakes"
    assert 'name="team"' not in html
    assert 'name="team"' in get(boss, "admin:outbox_subscription_add").content.decode()


def test_whoever_may_look_may_subscribe_themselves(anna, looked):
    assert add(anna, team="1").status_code == 302
    row = Subscription.objects.get()
    assert row.owner == anna, "a team's needs the right"
    assert (row.kinds, row.urgency, str(row.quiet_from), row.zone, row.wakes) == (
        ["worker", "channel"], "now", "22:00:00", "Europe/Berlin", True,
    )  # fmt: skip
    assert looked == [SECRET]
    assert unseal(row.address) == SECRET


def test_an_address_is_shown_on_no_page_and_stands_in_no_action(boss):
    add(boss, team="1")
    row = Subscription.objects.get()
    pages = [get(boss, LIST), *(get(boss, f"admin:outbox_subscription_{name}", row.pk) for name in ("change", "edit"))]
    csv = post(boss, "admin:outbox_subscription_csv")
    texts = [page.content.decode() for page in pages] + [b"".join(csv.streaming_content).decode()]
    texts += [f"{one.before} {one.after} {one.detail} {one.subject}" for one in OperatorAction.objects.all()]
    for text in texts:
        for part in ("A1BRTD4JD", "TIiajkdnlazkcOXrIdevi7", row.address):
            assert part not in text
    assert "Slack" in texts[0]


def test_people_see_their_own_and_those_of_teams_and_change_their_own(anna, boss):
    add(anna, name="mine")
    add(boss, name="team", team="1")
    add(boss, name="his")
    mine, team, his = (Subscription.objects.get(name=name) for name in ("mine", "team", "his"))
    html = get(anna, LIST).content.decode()
    assert ("mine" in html, "team" in html, ">his<" in html) == (True, True, False)
    assert get(anna, "admin:outbox_subscription_change", his.pk).status_code == 302, "for her it does not exist"
    assert get(anna, "admin:outbox_subscription_edit", his.pk).status_code == 404
    assert get(anna, "admin:outbox_subscription_edit", team.pk).status_code == 403
    assert post(anna, "admin:outbox_subscription_edit", team.pk, **FORM).status_code == 403
    assert "Send a test" not in get(anna, "admin:outbox_subscription_change", team.pk).content.decode()
    for lever in ("test", "remove"):
        post(anna, "admin:outbox_subscription_lever", lever, id=team.pk, reason="because I can")
    assert (Subscription.objects.count(), Notice.objects.count()) == (3, 0)
    assert get(boss, "admin:outbox_subscription_edit", mine.pk).status_code == 200
    nobody = person("nobody")
    assert get(nobody, LIST).status_code == 403
    assert add(nobody).status_code == 403


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"name": ""}, "A name of 1 to 100"), ({"address": ""}, "Where should it go?"), ({"kinds": []}, "Choose at least one"),
        ({"kinds": ["nonsense"]}, "Choose at least one"), ({"urgency": "never"}, "Choose one"), ({"digest": "7"}, "Choose one"),
        ({"zone": "Mars/North"}, "That is no time zone"), ({"zone": "../etc/passwd"}, "That is no time zone"),
        ({"quiet_to": ""}, "Both ends"), ({"quiet_to": "22:00"}, "The two ends are the same"), ({"quiet_from": "late"}, "Both ends"),
        ({"address": "file:ops"}, "only who manages|Only who manages"), ({"address": "x" * 2001}, "too long"),
    ],
)  # fmt: skip
def test_the_form_says_what_is_wrong_at_its_field_and_keeps_the_rest(anna, changes, fault):
    response = add(anna, **changes)
    html = response.content.decode()
    assert response.status_code == 200
    assert any(words in html for words in fault.split("|"))
    assert SECRET not in html, "not even what was just typed"
    assert "Error: " in html
    assert not Subscription.objects.exists()


def test_one_person_has_ten_at_most_and_a_team_as_many_as_it_needs(anna, boss):
    for number in range(MOST_OF_ONE):
        add(anna, name=f"mine {number}")
    page = add(anna, name="one more").content.decode()
    assert f"You have {MOST_OF_ONE} already" in page
    add(boss, name="of a team", team="1")
    assert Subscription.objects.filter(owner=anna).count() == MOST_OF_ONE
    assert Subscription.objects.filter(owner=None).count() == 1


def test_two_of_one_name_are_refused(anna, boss):
    add(anna)
    assert "There is one of this name already" in add(boss).content.decode()


def test_a_secret_file_is_named_by_who_manages_them(boss, settings, tmp_path, looked):
    settings.NOTIFY_SECRETS_DIR = str(tmp_path)
    (tmp_path / "ops").write_text(SECRET)
    add(boss, address="file:ops")
    row = Subscription.objects.get()
    assert (row.address, row.shown, looked) == ("file:ops", "Slack, from file:ops", [SECRET])
    assert "letters, digits" in add(boss, name="other", address="file:../ops").content.decode()


def test_an_address_that_is_left_empty_is_kept(anna, looked):
    add(anna)
    row = Subscription.objects.get()
    Subscription.objects.update(failures=4, error="HTTP 404")
    post(anna, "admin:outbox_subscription_edit", row.pk, **{**FORM, "address": "", "name": "Renamed"})
    row.refresh_from_db()
    assert (row.name, unseal(row.address), row.failures, len(looked)) == ("Renamed", SECRET, 4, 1)
    post(anna, "admin:outbox_subscription_edit", row.pk, **{**FORM, "address": "slack://a/b/c"})
    row.refresh_from_db()
    assert (unseal(row.address), row.failures) == ("slack://a/b/c", 0)
    verbs = list(OperatorAction.objects.order_by("pk").values_list("verb", "after__address"))
    assert verbs == [("add_subscription", "new"), ("change_subscription", "kept"), ("change_subscription", "new")]


def test_what_others_change_while_a_form_is_saved_stays(anna):
    """The sender writes failures, somebody else may give another address; and one name is taken by whoever is first."""
    add(anna)
    row = Subscription.objects.get()
    form = subscriptions.SubscriptionForm({**FORM, "address": "", "name": "Mine"}, instance=copy(row), may_manage=False)
    assert form.is_valid()
    Subscription.objects.update(address=seal("slack://a/b/c"), shown="Another", failures=4, error="HTTP 404")
    assert subscriptions.save(form, row, anna)
    row.refresh_from_db()
    assert (row.name, row.shown, row.failures, row.error) == ("Mine", "Another", 4, "HTTP 404")
    assert unseal(row.address) == "slack://a/b/c"
    late = subscriptions.SubscriptionForm(FORM, may_manage=False)
    assert late.is_valid()
    add(anna)
    assert not subscriptions.save(late, None, anna)
    assert late.errors["name"] == ["There is one of this name already."]
    assert OperatorAction.objects.count() == 3


def test_a_test_is_asked_for_once_in_half_a_minute_and_its_result_stands_on_the_page(anna):
    add(anna)
    row = Subscription.objects.get()
    post(anna, "admin:outbox_subscription_lever", "test", id=row.pk)
    answer = client_of(anna).post(
        reverse("admin:outbox_subscription_lever", args=["test"]), {"id": row.pk}, secure=True, follow=True
    )
    assert "had a test less than 30 seconds ago" in answer.content.decode()
    (notice,) = Notice.objects.all()
    assert (notice.phase, notice.state) == ("test", "waiting")
    assert OperatorAction.objects.filter(verb="test_subscription").count() == 1
    assert "The test is on its way" in answer.content.decode()
    Notice.objects.update(state="given_up", error="HTTP 404")
    html = get(anna, "admin:outbox_subscription_change", row.pk).content.decode()
    assert "The test failed.</b> HTTP 404" in html
    Notice.objects.update(state="sent", sent_at=database_now())
    assert "The test was accepted there" in get(anna, "admin:outbox_subscription_change", row.pk).content.decode()


def test_removing_it_is_an_action_and_forgets_the_address(anna):
    add(anna)
    row = Subscription.objects.get()
    post(anna, "admin:outbox_subscription_lever", "test", id=row.pk)
    post(anna, "admin:outbox_subscription_lever", "remove", id=row.pk, reason="no longer on call")
    assert (Subscription.objects.count(), Notice.objects.count()) == (0, 0)
    assert OperatorAction.objects.get(verb="remove_subscription").before["name"] == "On-call"


def test_the_page_says_that_it_does_not_get_there_and_what_was_said(anna):
    now = database_now()
    row = Subscription.objects.create(
        name="x", owner=anna, address=seal(SECRET), shown="Slack", kinds=["worker"], created_at=now, failures=3,
        failing_since=now - timedelta(minutes=5), error="HTTP 404", next_try_at=now + timedelta(seconds=40),
    )  # fmt: skip
    Notice.objects.create(
        subscription=row, phase="opened", title="Dead: x", state="unsure", error="no answer", due_at=now, created_at=now
    )
    html = get(anna, "admin:outbox_subscription_change", row.pk).content.decode()
    for words in ("It does not get there", "HTTP 404", "3 tries", "May have arrived", "Dead: x"):
        assert words in html


def test_the_list_asks_as_much_for_many_as_for_few(boss, django_assert_num_queries, django_assert_max_num_queries):
    add(boss)
    client = client_of(boss)
    client.get(reverse(LIST), secure=True)
    with django_assert_max_num_queries(40) as few:
        client.get(reverse(LIST), secure=True)
    for number in range(20):
        owner = person(f"p{number}")
        Subscription.objects.create(
            name=f"s{number}", owner=owner, address="", shown="Slack", created_at=database_now()
        )
    with django_assert_num_queries(len(few)):
        client.get(reverse(LIST), secure=True)


# -- Doctor and /metrics -------------------------------------------------------------------------------------
def diagnosis() -> tuple[bool, str]:
    return {name: (ok, words) for name, ok, words in Outbox().diagnose()}["notices"]


def test_doctor_says_who_is_told_and_that_nobody_sends(subscribe, settings):
    assert diagnosis() == (True, "nobody has subscribed to anything")
    row = subscribe()
    assert diagnosis() == (True, "1 subscription; without links, SITE_URL is empty")
    settings.SITE_URL = "https://ops.example.com"
    assert diagnosis() == (True, "1 subscription")
    now = database_now()
    Notice.objects.create(subscription=row, phase="opened", due_at=now - timedelta(minutes=3), created_at=now)
    ok, words = diagnosis()
    assert not ok
    assert "is notify_people running?" in words


def test_metrics_say_how_long_a_notice_waits_and_how_many_fail(subscribe):
    row = subscribe()
    now = database_now()
    Notice.objects.create(subscription=row, phase="opened", due_at=now - timedelta(seconds=90), created_at=now)
    Subscription.objects.update(failures=1)
    found = {one.gauge: one.value for one in Outbox().gauges(now)}
    assert found[metrics.NOTICES_OLDEST] == pytest.approx(90, abs=1)
    assert found[metrics.NOTICES_FAILING] == 1
