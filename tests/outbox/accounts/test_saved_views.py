"""Named views of lists: who sees, saves, renames and deletes which, where they lead, and that they lead nowhere else."""

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import FieldDoesNotExist
from django.db import connection
from django.test import Client
from django.urls import reverse

from config.admin.levers import operator_of
from config.letters import Refusal
from outbox.accounts.models import SavedView
from outbox.admin import saved_views
from outbox.admin.saved_views import MOST, pages, save
from outbox.audit_log.models import OperatorAction
from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import _plain_http, boss, client_with, list_of  # noqa: F401 (fixtures)
from tests.outbox.race import race

pytestmark = pytest.mark.django_db
LETTERS = "outbox.deadletter"
RIGHTS = ("view_deadletter", "view_savedview", "keep_savedview")


def keep(client, name="late ones", query="state=all&when=week", follow=True, **more):
    url = reverse("admin:outbox_savedview_save")
    return client.post(url, {"list": LETTERS, "name": name, "query": query, **more}, follow=follow)


def seen(client, query=""):
    return client.get(f"{list_of(DeadLetter)}{query}").content.decode()


def person(client):
    return User.objects.get(pk=client.session["_auth_user_id"])


def test_a_view_is_a_link_above_its_list(boss):  # noqa: F811
    assert "Save this view" not in seen(boss)
    assert "Save this view" in seen(boss, "?state=all&when=week")
    response = keep(boss)
    assert response.redirect_chain == [(f"{list_of(DeadLetter)}?state=all&when=week", 302)]
    assert "Saved the view “late ones”." in response.content.decode()
    link = f'<a href="{list_of(DeadLetter)}?state=all&amp;when=week"'
    assert f"{link}>late ones</a>" in seen(boss)
    assert f'{link} aria-current="true">late ones</a>' in seen(boss, "?state=all&when=week")
    action = OperatorAction.objects.get(verb="save_view")
    assert (action.subject, action.detail) == ("View late ones", {"list": LETTERS, "whose": "own"})


def test_it_is_its_owners_alone_unless_it_is_for_everybody(boss):  # noqa: F811
    other = client_with(*RIGHTS)
    keep(boss, "mine")
    keep(boss, "for all", shared="1")
    html = seen(other)
    assert ">mine<" not in html
    assert ">for all <span>M. Okafor</span></a>" in html
    page = other.get(list_of(SavedView)).content.decode()
    assert "for all" in page
    assert "mine" not in page
    assert other.get(reverse("admin:outbox_savedview_change", args=[SavedView.objects.get(name="mine").pk])).status_code == 302  # fmt: skip


@pytest.mark.parametrize(
    ("rights", "shared", "status"),
    [
        (("view_deadletter", "view_savedview"), "", 403),
        (("view_savedview", "keep_savedview"), "", 403),
        (RIGHTS, "1", 403),
        (RIGHTS, "", 302),
        ((*RIGHTS, "share_savedview"), "1", 302),
    ],
)
def test_to_save_asks_for_the_list_the_right_and_for_everybody_another(rights, shared, status):
    client = client_with(*rights)
    assert keep(client, follow=False, shared=shared).status_code == status
    assert SavedView.objects.exists() == (status == 302)


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("state=all&before=019a~1&after=x&e=1", "state=all"),
        ("payload__startswith=a&password=1&state=open", "state=open"),
        ("next=//evil.example&q=A-1", "q=A-1"),
        ("when=nonsense&group__id__exact=x", "when=nonsense&group__id__exact=x"),
        ("%00&&&=", ""),
    ],
)
def test_only_what_the_list_knows_is_kept(boss, query, kept):  # noqa: F811
    response = keep(boss, query=query, follow=False)
    assert SavedView.objects.get().query == kept
    assert response["Location"] == f"{list_of(DeadLetter)}?{kept}"


@pytest.mark.parametrize("query", ["group__id__exact=x", "from=soon", "state=gone&source=gone", "when=gone", "e=1"])
def test_an_old_view_gives_the_usual_message_of_its_list(boss, query):  # noqa: F811
    SavedView.objects.create(owner_number=person(boss).pk, owner_name="x", list=LETTERS, name="old", query=query, created_at="2026-01-01T00:00Z")  # fmt: skip
    response = boss.get(f"{list_of(DeadLetter)}?{query}", follow=True)
    assert response.status_code == 200
    assert ">old<" in response.content.decode()


def test_a_view_of_a_list_that_is_gone_leads_nowhere(boss):  # noqa: F811
    row = SavedView.objects.create(owner_number=person(boss).pk, owner_name="x", list="gone.away", name="old", query="", created_at="2026-01-01T00:00Z")  # fmt: skip
    html = boss.get(reverse("admin:outbox_savedview_change", args=[row.pk])).content.decode()
    assert "a list that is gone" in html
    assert keep(boss, list="gone.away").status_code == 404
    assert keep(boss, list="auth.user").status_code == 404


@pytest.mark.parametrize("name", ["", "   ", "x" * 81])
def test_a_name_that_is_none_is_refused_in_words(boss, name):  # noqa: F811
    assert "needs a name of 1 to 80 characters" in keep(boss, name).content.decode()
    assert not SavedView.objects.exists()


def test_a_name_is_shown_harmlessly_and_once(boss):  # noqa: F811
    keep(boss, "<b>x</b>\u202e  y")
    assert "&lt;b&gt;x&lt;/b&gt;\\u202e y</a>" in seen(boss)
    assert "You have a view" in keep(boss, "<b>x</b>\u202e y").content.decode()
    assert SavedView.objects.count() == 1


def test_a_person_has_so_many_and_no_more(boss):  # noqa: F811
    for number in range(MOST):
        keep(boss, f"v{number}", follow=False)
    assert f"You have {MOST} views" in keep(boss, "one more").content.decode()
    assert SavedView.objects.count() == MOST


def test_filters_that_are_too_long_are_refused(boss):  # noqa: F811
    assert "too long to be kept" in keep(boss, query="q=" + "x" * 1000).content.decode()


def lever(client, name, row, **more):
    url = reverse("admin:outbox_savedview_lever", args=[name])
    return client.post(url, {"id": [row.pk], "reason": "", **more}, follow=True).content.decode()


def test_a_view_that_has_another_name_by_now_is_not_renamed(boss, monkeypatch):  # noqa: F811
    """Somebody else was faster, between the look at the view and the change."""
    keep(boss)
    row = SavedView.objects.get()
    checked = saved_views._checked

    def renamed_meanwhile(name: str) -> str:
        SavedView.objects.update(name="theirs")
        return checked(name)

    monkeypatch.setattr(saved_views, "_checked", renamed_meanwhile)
    assert "“late ones” has another name already." in lever(boss, "rename", row, text="mine")
    assert SavedView.objects.get().name == "theirs"


def test_a_view_is_saved_by_a_post_alone(boss):  # noqa: F811
    address = reverse("admin:outbox_savedview_save")
    assert boss.get(address, {"list": "outbox.deadletter", "name": "x", "query": "state=all"}).status_code == 404


def test_its_owner_renames_and_deletes_it(boss):  # noqa: F811
    keep(boss)
    keep(boss, "taken")
    row = SavedView.objects.get(name="late ones")
    assert "There is a view “taken” of this list already." in lever(boss, "rename", row, text="taken")
    lever(boss, "rename", row, text="later ones")
    row.refresh_from_db()
    assert row.name == "later ones"
    lever(boss, "delete", row)
    assert list(SavedView.objects.values_list("name", flat=True)) == ["taken"]
    assert {"rename_view", "delete_view"} <= set(OperatorAction.objects.values_list("verb", flat=True))


def test_what_is_for_everybody_is_changed_by_who_may_share(boss):  # noqa: F811
    keep(boss, shared="1")
    row = SavedView.objects.get()
    assert "is M. Okafor’s." in lever(client_with(*RIGHTS), "delete", row)
    assert SavedView.objects.exists()
    lever(client_with(*RIGHTS, "share_savedview"), "delete", row)
    assert not SavedView.objects.exists()


def test_nobody_changes_what_they_do_not_see(boss):  # noqa: F811
    keep(boss)
    row = SavedView.objects.get()
    lever(client_with(*RIGHTS, "share_savedview"), "delete", row)
    assert saved_views._delete([row.pk], operator_of(person(client_with(*RIGHTS, "share_savedview"))), "").changed == 0
    assert SavedView.objects.exists()


def test_nothing_of_a_deleted_account_stays(boss):  # noqa: F811
    client = client_with(*RIGHTS)
    keep(client)
    person(client).delete()
    assert not SavedView.objects.exists()


def test_every_list_has_views_and_asks_once_for_them(boss, django_assert_num_queries):  # noqa: F811
    assert LETTERS in pages()
    for label, page in pages().items():
        for name in ("state", "when", "q"):
            try:
                page.lookup_allowed(name, "x")
            except FieldDoesNotExist:
                pytest.fail(label)
    seen(boss)
    with connection.execute_wrapper(counted := Counted()):
        seen(boss)
    assert counted.asked == 1
    for number in range(9):
        keep(boss, f"v{number}", follow=False)
    with connection.execute_wrapper(counted := Counted()):
        seen(boss)
    assert counted.asked == 1


class Counted:
    asked = 0

    def __call__(self, execute, sql, params, many, context):
        self.asked += "outbox_savedview" in sql
        return execute(sql, params, many, context)


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has one writer at a time")
def test_two_at_once_do_not_both_save_the_last_one(monkeypatch):
    monkeypatch.setattr(saved_views, "MOST", 1)
    user = User.objects.create_superuser("boss")

    def one(name):
        try:
            save(pages()[LETTERS], operator_of(user), name, "state=all", shared=False)
        except Refusal:
            return "refused"

    assert race(lambda: one("a"), lambda: one("b")).count("refused") == 1
    assert SavedView.objects.count() == 1


def test_a_stranger_is_sent_to_the_login():
    assert keep(Client(), follow=False)["Location"].startswith(reverse("admin:login"))
