"""A database that is away or locked is 503 with a sentence, at a page and at its session; a login leads home."""

from __future__ import annotations

import sqlite3

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import InterfaceError, OperationalError, ProgrammingError, connection
from django.test import Client

from config.admin import site

PASSWORD = "of-a-test-only"
AWAY = [
    OperationalError("database is locked"),
    InterfaceError("connection already closed"),
    OperationalError(2006, "gone"),
]
MENDED_BY_PEOPLE = [OperationalError("no such table: x"), ProgrammingError("syntax"), ValueError("ours")]


def assert_unavailable(answer):
    assert answer.status_code == 503
    assert b"The database does not answer" in answer.content
    assert answer["Retry-After"] == "10"
    assert "script-src 'self'" in answer["Content-Security-Policy"]


def raising(error):
    def fail(*args, **kwargs):
        raise error

    return fail


@pytest.mark.django_db
@pytest.mark.parametrize("error", AWAY, ids=str)
def test_a_page_without_a_database_is_unavailable(boss, monkeypatch, error):
    monkeypatch.setattr(site, "home", raising(error))
    assert_unavailable(boss.get("/admin/"))


@pytest.mark.django_db
@pytest.mark.parametrize("error", MENDED_BY_PEOPLE, ids=str)
def test_what_no_waiting_mends_is_an_error(boss, monkeypatch, error):
    monkeypatch.setattr(site, "home", raising(error))
    boss.raise_request_exception = False
    assert boss.get("/admin/").status_code == 500


@pytest.mark.django_db
def test_a_session_that_cannot_be_saved_is_unavailable(boss, monkeypatch):
    monkeypatch.setattr(Session, "save", raising(AWAY[0]))
    assert_unavailable(boss.get("/admin/partitions/"))


@pytest.mark.django_db
def test_a_session_that_was_deleted_is_still_refused(boss, monkeypatch):
    monkeypatch.setattr(site, "configured", lambda: Session.objects.all().delete() and [])
    assert boss.get("/admin/partitions/").status_code == 400


@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite is locked as a whole")
@pytest.mark.django_db(transaction=True)
def test_a_locked_file_is_unavailable(tmp_path):
    client = Client()
    client.force_login(User.objects.create_superuser("locked"))
    connection.cursor().execute("PRAGMA busy_timeout = 20")
    other = sqlite3.connect(connection.settings_dict["NAME"], uri=True, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        for url in ("/admin/partitions/", "/admin/auth/user/"):
            assert_unavailable(client.get(url))
        other.execute("ROLLBACK")
        assert client.get("/admin/partitions/").status_code == 200
    finally:
        other.close()
        connection.close()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "foreign", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", ""]
)
def test_a_login_leads_home_and_to_no_other_site(client, foreign):
    User.objects.create_superuser("boss", password=PASSWORD)
    given = {"username": "boss", "password": PASSWORD, "next": foreign}
    answer = client.post("/admin/login/", given)
    assert (answer.status_code, answer.url) == (302, "/admin/")


@pytest.mark.django_db
def test_a_login_leads_to_the_page_that_was_asked_for(client):
    User.objects.create_superuser("boss", password=PASSWORD)
    answer = client.post("/admin/login/", {"username": "boss", "password": PASSWORD, "next": "/admin/partitions/"})
    assert answer.url == "/admin/partitions/"
