"""Between a link and its mail a web process is frozen, or its session ends: nobody gets a mail that another one has replaced."""

from __future__ import annotations

import linecache

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.test import Client

from notifications.channels.local import Memory
from outbox.accounts import links, pages
from outbox.audit_log.models import OperatorAction
from tests.frozen import Point, frozen_at
from tests.lost_sessions import lost_answer

pytestmark = pytest.mark.django_db(transaction=True)
TRACED = [links.__file__, pages.__file__]
PATIENCE = 5  # seconds, which the second needs where nobody holds it up
FIRST, SECOND = "First Boss", "Second Boss"


@pytest.fixture(autouse=True)
def _setting(settings):
    settings.SECURE_SSL_REDIRECT = False
    settings.EMAIL_CHANNEL = "memory"
    Memory.clear()


@pytest.fixture
def bosses() -> list[Client]:
    clients = [Client(), Client()]
    for client, name in zip(clients, (FIRST, SECOND), strict=True):
        first, last = name.split()
        client.force_login(User.objects.create_superuser(first, first_name=first, last_name=last))
    return clients


@pytest.fixture
def ann() -> User:
    return User.objects.create_user("ann", "ann@example.com", is_staff=True)


def ask(client: Client, person: User) -> str:
    return client.post(f"/admin/auth/user/{person.pk}/link/").content.decode()


def senders() -> list[str]:
    """Whose mails were sent, in their order."""
    return [FIRST if FIRST in mail.text else SECOND for _key, mail in Memory.sent]


@pytest.mark.skipif(connection.vendor == "sqlite", reason="whoever is frozen in a transaction stops all others")
def test_a_web_process_frozen_at_any_line_sends_no_link_that_was_replaced(bosses, ann):
    overtaken = 0

    def frozen_once(at: Point | None) -> list[Point]:
        nonlocal overtaken
        Memory.clear()
        OperatorAction.objects.all().delete()
        said: list[bool] = []

        def say(boss: Client) -> None:
            said.append(links.OVERTAKEN in ask(boss, ann))

        passed = frozen_at(at, lambda: say(bosses[0]), lambda: say(bosses[1]), TRACED, PATIENCE)
        made = list(OperatorAction.objects.order_by("pk").values_list("actor_name", flat=True))
        overtaken += sum(said)
        assert len(senders()) + sum(said) == len(made), at
        if made == [FIRST, SECOND] and senders() == [SECOND, FIRST]:
            assert linecache.getline(*at[:2]).strip().startswith("fault: str = send("), at
        return passed

    for point in frozen_once(None):
        frozen_once(point)
    assert overtaken > 3


@pytest.mark.parametrize("since", ["another password", "another address", "no access any more"])
def test_a_link_of_an_account_that_was_changed_since_is_not_sent(bosses, ann, since, rf):
    request = rf.post("/")
    request.user = User.objects.get(username="First")
    link = links.make_link(request, ann)
    changes = {"another address": {"email": "eve@example.com"}, "no access any more": {"is_active": ""}}
    form = {"username": "ann", "email": "ann@example.com", "is_active": "on", "is_staff": "on"}
    if since == "another password":
        theirs = Client()
        page = theirs.get(link.address).url
        theirs.post(page, {"new_password1": "gre4t-secret-of-ann", "new_password2": "gre4t-secret-of-ann"})
    else:
        answer = bosses[1].post(f"/admin/auth/user/{ann.pk}/change/", {**form, **changes[since]})
        assert answer.status_code == 302
    assert links.send_link(request, ann, link) == links.OVERTAKEN
    assert Memory.sent == []


@pytest.mark.parametrize("committed", [True, False])
def test_a_session_that_ends_when_a_link_is_made_sends_nothing_and_the_next_try_one(bosses, ann, committed):
    with lost_answer(committed=committed):
        try:
            page = ask(bosses[0], ann)
        except OperationalError:
            page = ""
    assert ("was sent to" in page, Memory.sent) == (False, [])
    assert "was sent to ann@example.com" in ask(bosses[0], ann)
    assert len(Memory.sent) == 1
