"""PASSWORD_LOGIN=off: no password opens anything but one account's, and that one is seen."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from config.database.clock import database_now
from outbox.sign_in.passwords import break_glass_diagnosis, break_glass_needs
from tests.outbox.sign_in.conftest import actions, log_in

GLASS, RIGHT = "break-glass", "right"


@pytest.fixture
def off(provider, settings):
    settings.PASSWORD_LOGIN = False
    settings.AUTHENTICATION_BACKENDS = [
        *settings.AUTHENTICATION_BACKENDS[:-1], "outbox.sign_in.passwords.BreakGlassBackend",
    ]  # fmt: skip
    User.objects.create_superuser("boss", password="right")
    return provider


def enter(name, password=RIGHT, client=None):
    form = {"username": name, "password": password}
    return (client or Client()).post("/admin/login/", form).status_code == 302


def test_passwords_open_the_break_glass_account_alone(off, caplog, django_capture_on_commit_callbacks):
    staff = User.objects.create_user("eve", password="right", is_staff=True)
    staff.groups.add(Group.objects.get(name="Operator"))
    assert not enter("boss")
    assert not enter("eve")
    assert not enter(GLASS)
    glass = User.objects.create_user(GLASS, password="right", is_staff=True)
    assert not enter(GLASS)  # no superuser
    User.objects.filter(pk=glass.pk).update(is_superuser=True)
    assert not enter(GLASS, "wrong")
    client = Client()
    with django_capture_on_commit_callbacks(execute=True):
        assert enter(GLASS, client=client)
    assert client.get("/admin/").status_code == 200
    assert actions() == [("break_glass", "logged in with the password")]
    assert "break_glass_login" in caplog.text
    assert log_in(off, Client()).status_code == 302


def test_its_use_stands_on_home_for_a_day(off):
    User.objects.create_superuser(GLASS, password="right")
    client = Client()
    assert list(break_glass_needs(database_now())) == []
    enter(GLASS, client=client)
    assert b"The break-glass account was used" in client.get("/admin/").content
    assert list(break_glass_needs(database_now() + timedelta(hours=25))) == []


def test_doctor_says_whether_there_is_a_way_in(off, settings):
    assert list(break_glass_diagnosis()) == [
        ("break-glass account", False, "BREAK_GLASS_ACCOUNT: no superuser is called break-glass")
    ]
    User.objects.create_superuser(GLASS)
    assert not next(break_glass_diagnosis())[1]  # without a password
    settings.BREAK_GLASS_ACCOUNT = "boss"
    assert list(break_glass_diagnosis()) == [("break-glass account", True, "boss is a superuser with a password")]
    assert enter("boss")


def test_sessions_that_a_password_began_end_when_passwords_are_turned_off(off):
    client = Client()
    client.force_login(User.objects.get(username="boss"), "django.contrib.auth.backends.ModelBackend")
    assert client.get("/admin/").status_code == 302


def test_the_login_page_shows_the_provider_and_hides_the_form(off, settings):
    page = Client().get("/admin/login/?next=/admin/outbox/").content.decode()
    assert "/oidc/authenticate/?next=%2Fadmin%2Foutbox%2F" in page
    assert 'name="password"' not in page
    assert 'name="password"' in Client().get("/admin/login/?break-glass").content.decode()
    settings.PASSWORD_LOGIN = True
    page = Client().get("/admin/login/").content.decode()
    assert "/oidc/authenticate/" in page
    assert 'name="password"' in page


def test_no_link_makes_a_password(off):
    boss = Client()
    boss.force_login(User.objects.get(username="boss"), "outbox.sign_in.passwords.BreakGlassBackend")
    eve = User.objects.create_user("eve", is_staff=True)
    assert "link/" not in boss.get(f"/admin/auth/user/{eve.pk}/change/").content.decode()
    assert boss.post(f"/admin/auth/user/{eve.pk}/link/").status_code == 403
    assert boss.get("/admin/auth/user/add/").status_code == 403
    assert boss.get("/admin/auth/user/welcome/MQ/set-password/").status_code == 404


def test_nobody_whom_the_provider_knows_gets_a_link(provider, browser):
    log_in(provider, browser)
    person = User.objects.get()
    boss = Client()
    boss.force_login(User.objects.create_superuser("boss"), "django.contrib.auth.backends.ModelBackend")
    assert "link/" not in boss.get(f"/admin/auth/user/{person.pk}/change/").content.decode()
    assert boss.post(f"/admin/auth/user/{person.pk}/link/").status_code == 404
    assert "at the identity provider" in boss.get("/admin/auth/user/").content.decode()
    assert not enter(person.username, "")
