"""A new person by e-mail: a link that works once, a role that lets them in, and words about what it allows."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client

from notifications.channels.local import Memory
from outbox.audit_log.models import OperatorAction
from outbox.channels.handlers import Outcome

pytestmark = pytest.mark.django_db
NEW = "/admin/auth/user/add/"
SECRET = "gre4t-secret-of-ann"


@pytest.fixture(autouse=True)
def _setting(settings):
    settings.SECURE_SSL_REDIRECT = False
    settings.EMAIL_CHANNEL = "memory"
    Memory.clear()


@pytest.fixture
def boss():
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    return client


@pytest.fixture
def support():
    return Group.objects.get(name="Support")


def person(boss, **given):
    answer = boss.post(NEW, {"email": "ann@example.com", "first_name": "Ann", "last_name": "Lee", **given})
    assert answer.status_code == 200, answer.url
    return answer


def link_in(text: str) -> str:
    return re.search(r"http://testserver(/admin/auth/user/welcome/[\w/-]+)", text)[1]


def set_password(client: Client, link: str, password: str = SECRET):
    return client.post(client.get(link).url, {"new_password1": password, "new_password2": password})


def test_a_new_person_gets_a_link_and_gets_in(boss, support):
    page = person(boss, groups=[support.pk]).content.decode()
    ((_, mail),) = Memory.sent
    assert (mail.to, mail.subject) == ("ann@example.com", "Your account at testserver")
    link = link_in(mail.text)
    assert link in page
    assert link in mail.html
    assert "was sent to ann@example.com" in page
    ann = User.objects.get(username="ann")
    assert (ann.is_staff, ann.is_superuser, ann.has_usable_password()) == (True, False, False)
    theirs = Client()
    assert set_password(theirs, link).url == "/admin/"
    home = theirs.get("/admin/")
    assert home.wsgi_request.user == ann
    assert b"may not see the platform" not in home.content
    verbs = list(OperatorAction.objects.order_by("pk").values_list("verb", "actor_name"))
    assert verbs == [("add_user", "boss"), ("make_password_link", "boss"), ("set_password", "Ann Lee")]
    assert link not in str(list(OperatorAction.objects.values()))


def test_a_link_works_once_and_a_wrong_one_never(boss, support):
    person(boss, groups=[support.pk])
    link = link_in(Memory.sent[0][1].text)
    set_password(Client(), link)
    for dead in (link, "/admin/auth/user/welcome/MQ/never-was/", "/admin/auth/user/welcome/x/set-password/"):
        assert b"does not work any more" in Client().get(dead).content


def test_a_weak_password_is_refused_and_said(boss, support):
    person(boss, groups=[support.pk])
    client, link = Client(), link_in(Memory.sent[0][1].text)
    page = set_password(client, link, "ann").content.decode()
    assert "too short" in page
    assert not User.objects.get(username="ann").has_usable_password()


def test_without_mail_the_link_is_handed_over(boss, support):
    Memory.script.append(Outcome("unreachable", "nobody answers at mail.example:25"))
    page = person(boss, groups=[support.pk]).content.decode()
    assert "No mail was sent: nobody answers at mail.example:25." in page
    assert set_password(Client(), link_in(page)).url == "/admin/"
    page = person(boss, email="", username="bot").content.decode()
    assert "No mail was sent: the account has no e-mail address." in page


def test_an_address_that_no_mail_can_have_is_said(boss, support):
    page = person(boss, email='"ab"@example.com', username="odd", groups=[support.pk]).content.decode()
    assert "No mail was sent: it is not one bare address" in page


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"email": "ANN@example.com"}, "The account ann has this address."),
        ({"email": "", "username": ""}, "Give an e-mail address, or a user name."),
        ({"email": "no address"}, "one is like anna@example.com"),
        ({"email": "eve@example.com", "username": "Ann"}, "Somebody has this user name."),
    ],
)
def test_a_fault_is_named_and_no_link_is_made(boss, given, words):
    User.objects.create_user("ann", "ann@example.com")
    page = boss.post(NEW, {"first_name": "Ann", **given})
    assert words in page.content.decode()
    assert User.objects.count() == 2
    assert not Memory.sent
    assert not OperatorAction.objects.exists()


def test_a_name_is_made_that_nobody_has(boss):
    User.objects.create_user("Ann")
    User.objects.create_user("ann2")
    person(boss)
    assert User.objects.get(email="ann@example.com").username == "ann3"


def test_the_least_role_is_chosen_and_none_lets_nobody_in(boss, support):
    form = boss.get(NEW).content.decode()
    checked = re.findall(r'name="groups" value="(\d+)"[^>]*checked', form)
    assert checked == [str(support.pk)]
    person(boss)
    assert not User.objects.get(username="ann").is_staff


def change(boss, user, **given):
    fields = {"username": user.username, "is_active": "on"}
    return boss.post(f"/admin/auth/user/{user.pk}/change/", {**fields, **given})


def test_a_role_gives_staff_status(boss, support):
    ann = User.objects.create_user("ann")
    assert change(boss, ann, groups=[support.pk]).status_code == 302
    ann.refresh_from_db()
    assert ann.is_staff
    assert OperatorAction.objects.get().after["staff"] is True
    change(boss, ann)
    ann.refresh_from_db()
    assert not ann.is_staff


def test_the_page_says_what_each_role_allows_as_it_is_now(boss, support):
    page = boss.get(NEW).content.decode()
    assert (
        "May look at everything but the trail; requeue dead letters, take groups, save views, lift suppressions."
        in page
    )
    assert re.search(r"May do what Support may, and [^.]*see payloads[^.]*\.", page)
    assert re.search(
        r"May do what Senior support may, and look at operator actions; [^.]*pause and resume channels[^.]*\.", page
    )
    assert "May look at everything, and at the trail; save views." in page
    support.permissions.set(Permission.objects.filter(codename="pause_channel"))
    page = boss.get(NEW).content.decode()
    assert "May pause and resume channels." in page
    support.permissions.clear()
    assert "Nothing: it has no rights." in boss.get(NEW).content.decode()


def test_the_account_says_what_all_that_adds_up_to(boss, support):
    ann = User.objects.create_user("ann", is_staff=True)
    url = f"/admin/auth/user/{ann.pk}/change/"
    assert "Nothing yet: without a role there is nothing to see." in boss.get(url).content.decode()
    ann.groups.add(support)
    ann.user_permissions.add(Permission.objects.get(codename="withdraw_bufferedevent"))
    page = boss.get(url).content.decode()
    assert re.search(r"May look at everything but the trail; [^.]*withdraw an order before it is claimed", page)
    User.objects.filter(pk=ann.pk).update(is_active=False)
    assert "Nothing: the account is not active." in boss.get(url).content.decode()


def test_single_rights_are_folded_away(boss):
    page = boss.get(f"/admin/auth/user/{User.objects.get().pk}/change/").content.decode()
    folded = page[page.index("<details") :]
    assert "Single rights, beside the roles" in folded
    assert 'name="user_permissions"' in folded
    assert 'name="groups"' not in folded[: folded.index("</details>")]


def test_a_new_link_for_somebody_who_is_there(boss):
    ann = User.objects.create_user("ann", "ann@example.com", SECRET, is_staff=True)
    page = boss.post(f"/admin/auth/user/{ann.pk}/link/")
    assert page.status_code == 200
    assert page["Cache-Control"].startswith("max-age=0")
    assert set_password(Client(), link_in(page.content.decode()), "another-gre4t-one").url == "/admin/"
    ann.refresh_from_db()
    assert ann.check_password("another-gre4t-one")
    assert boss.get(f"/admin/auth/user/{ann.pk}/link/").status_code == 302
    assert boss.post("/admin/auth/user/4711/link/").status_code == 404


def test_nobody_but_a_superuser_makes_links(boss):
    helper = User.objects.create_user("helper", is_staff=True)
    helper.user_permissions.set(Permission.objects.filter(content_type__app_label="auth"))
    client = Client()
    client.force_login(helper)
    boss_account = User.objects.get(username="boss")
    assert client.post(f"/admin/auth/user/{boss_account.pk}/link/").status_code == 403
    assert OperatorAction.objects.get().verb == "refused"
    assert not Memory.sent


def test_a_link_is_in_no_log(boss, support, caplog):
    person(boss, groups=[support.pk])
    link = link_in(Memory.sent[0][1].text)
    with caplog.at_level("INFO"):
        Client().get(link)
    assert link.split("/")[-2] not in caplog.text
    assert "welcome/<uidb64>/<token>/" in caplog.text


def test_the_list_says_who_can_get_in(boss, support):
    ann = User.objects.create_user("ann", is_staff=True)
    ann.groups.add(support)
    User.objects.create_user("eve", password=SECRET)
    page = boss.get("/admin/auth/user/").content.decode()
    for words in ("not before a password is set", "no, without a role", "Superuser", "Support"):
        assert words in page
    assert "Look at everything but the trail; requeue" in boss.get("/admin/auth/group/").content.decode()
