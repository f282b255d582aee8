"""Passwords cannot be guessed for ever: what is counted, whose address it is, what the pages say."""

from datetime import timedelta

import pytest
from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.conf import settings as configured
from django.contrib.auth.models import User
from django.test import Client, RequestFactory

from config.database.clock import database_now
from config.middleware import client_address
from config.processes.beat import sweep_logins
from tests.config.admin.conftest import client_with, list_of, page_of, seen

pytestmark = pytest.mark.django_db
LIMIT = 3
MODELS = [AccessAttempt, AccessFailureLog, AccessLog]


@pytest.fixture(autouse=True)
def _few(settings):
    settings.AXES_FAILURE_LIMIT = settings.LOGIN_MOST_FAILURES = LIMIT
    settings.TRUST_PROXY = True


@pytest.fixture
def ada(_few):
    return User.objects.create_superuser("ada", password="right")


def log_in(password, name="ada", address="198.51.100.7", client=None):
    form = {"username": name, "password": password}
    return (client or Client()).post("/admin/login/", form, headers={"X-Forwarded-For": address})


def lock(**more):
    for _ in range(LIMIT):
        response = log_in("wrong", **more)
    return response


def test_the_right_password_comes_too_late(ada):
    assert log_in("right").status_code == 302
    assert lock().status_code == 429
    refused = log_in("right")
    assert refused.status_code == 429
    assert "_auth_user_id" not in refused.wsgi_request.session
    assert b"Too many failed logins" in refused.content
    assert b"15 min" in refused.content
    assert b"spillway/tokens.css" in refused.content


HOME = "198.51.100.7"
# What is tried wrongly, as (name, address), and what the right password gets then, by address.
GUESSES = {
    "an address for many names": ([(name, HOME) for name in ("bob", "eve", "joe")], {HOME: 429, "203.0.113.9": 302}),
    "many addresses for one name": ([("ada", ip) for ip in ("203.0.113.1", "203.0.113.2", "2001:db8::3")], {HOME: 429}),
    "a port makes nobody another person": (
        [(name, f"{HOME}:{port}") for port, name in enumerate(("bob", "eve", "joe"), 4711)],
        {f"{HOME}:80": 429, "[2001:db8::1]:80": 302},
    ),
    "a client cannot choose its address": (
        [(f"somebody{number}", f"203.0.113.{number}, {HOME}") for number in range(LIMIT)],
        {f"203.0.113.99, {HOME}": 429},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("guesses", "answers"), GUESSES.values(), ids=GUESSES)
def test_who_guesses_is_locked_out_and_nobody_else(ada, guesses, answers):
    for name, address in guesses:
        log_in("wrong", name=name, address=address)
    assert {address: log_in("right", address=address).status_code for address in answers} == answers


def test_the_lock_ends_however_often_somebody_tries_meanwhile(ada):
    lock()
    failures = AccessFailureLog.objects.count()
    AccessAttempt.objects.update(attempt_time=database_now() - timedelta(minutes=14))
    assert log_in("right").status_code == 429
    AccessAttempt.objects.update(attempt_time=AccessAttempt.objects.get().attempt_time - timedelta(minutes=2))
    assert log_in("right").status_code == 302
    assert AccessFailureLog.objects.count() == failures  # who is locked out writes no rows


def test_who_is_logged_in_stays_so(ada):
    client = Client()
    log_in("right", client=client)
    lock()
    assert client.get("/admin/").status_code == 200


def test_a_password_is_stored_nowhere(ada):
    log_in("my own secret")
    rows = str([*AccessAttempt.objects.values(), *AccessFailureLog.objects.values()])
    assert "my own secret" not in rows


# -- Whose address it is -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("trusted", "forwarded", "address"),
    [
        (True, "1.2.3.4, 198.51.100.7", "198.51.100.7"),  # the client wrote the first, the proxy the last
        (True, "198.51.100.7", "198.51.100.7"),
        (True, "2001:db8::1", "2001:db8::1"),
        (True, "unknown, 198.51.100.7", "198.51.100.7"),
        (False, "198.51.100.7", "127.0.0.1"),
        (False, "unknown", "127.0.0.1"),
    ],
)
def test_only_what_the_trusted_proxy_added_is_believed(settings, trusted, forwarded, address):
    settings.TRUST_PROXY = trusted
    assert client_address(RequestFactory().get("/", headers={"X-Forwarded-For": forwarded})) == address


@pytest.mark.parametrize(
    ("forwarded", "address"),
    [
        ("203.0.113.7:4711", "203.0.113.7"),
        ('"203.0.113.7:4711"', "203.0.113.7"),
        ("203.0.113.7:_port", "203.0.113.7"),
        ("1.2.3.4:1,  203.0.113.7:4711 ", "203.0.113.7"),
        ("[203.0.113.7]:4711", "203.0.113.7"),
        ("2001:DB8:0::1", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ('"[2001:db8::1]:4711"', "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("[fe80::1%25eth0]:4711", "fe80::1"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("[::ffff:cb00:7107]:4711", "203.0.113.7"),
        *[
            (unreadable, None)
            for unreadable in (
                "", " ", ",", "198.51.100.7,", "198.51.100.7, unknown", "unknown", '"unknown"', "_hidden", "_hidden:80", "-",
                "203.0.113.7:4711:1", "203.0.113.777", "[2001:db8::1", "2001:db8::1]", "[]:80", ":::", "203.0.113.7 4711", "web.example",
            )
        ],
    ],
)  # fmt: skip
def test_what_the_proxy_wrote_is_read_in_each_of_its_forms_and_never_becomes_its_own_address(forwarded, address):
    assert client_address(RequestFactory().get("/", headers={"X-Forwarded-For": forwarded})) == address


@pytest.mark.parametrize("trusted", [True, False])
def test_without_any_address_there_is_none(settings, trusted):
    settings.TRUST_PROXY = trusted
    assert client_address(RequestFactory().get("/", REMOTE_ADDR="127.0.0.1" if trusted else "")) is None


def test_a_peer_has_one_spelling(settings):
    settings.TRUST_PROXY = False
    assert client_address(RequestFactory().get("/", REMOTE_ADDR="::ffff:203.0.113.7")) == "203.0.113.7"


@pytest.mark.parametrize("nowhere", ["unknown", "_hidden:4711", ""])
def test_wrong_passwords_from_nowhere_lock_out_their_name_alone(ada, nowhere):
    lock(name="bob", address=nowhere)
    assert log_in("right", name="bob", address=nowhere).status_code == 429
    assert log_in("right", address=nowhere).status_code == 302
    for name in ("eve", "joe", "sue"):
        log_in("wrong", name=name, address=nowhere)
    assert log_in("right", address=nowhere).status_code == 302


# -- Pages, rows, sessions ---------------------------------------------------------------------------
@pytest.mark.parametrize("model", MODELS)
def test_who_may_look_reads_the_trail_and_nobody_edits_it(ada, boss, model):
    log_in("right")
    lock()
    row = model.objects.filter(username="ada").latest("attempt_time")
    for client in (boss, client_with(f"view_{model._meta.model_name}")):
        assert "198.51.100.7" in seen(client, list_of(model))
        assert "ada" in seen(client, f"{list_of(model)}?q=ada")
        assert "198.51.100.7" in seen(client, page_of(row))
        assert client.get(f"{list_of(model)}add/").status_code == 403
        assert client.post(page_of(row).replace("change", "delete"), {"post": "yes"}).status_code == 403
    assert client_with("view_batch").get(list_of(model)).status_code == 403


def test_the_trail_says_who_is_locked_out(ada, boss):
    lock()
    assert "Locked out" in seen(boss, list_of(AccessAttempt))
    assert seen(boss, list_of(AccessFailureLog)).count("Locked out") == 1
    assert "Logins" in seen(boss, "/admin/axes/")


def test_old_logins_are_deleted(ada):
    log_in("right")
    log_in("wrong")
    now = database_now()
    assert sweep_logins(now + timedelta(days=89)) == 0
    assert sweep_logins(now + timedelta(days=91)) == 2
    assert "config.processes.beat.sweep_logins" in configured.SWEEPS


def test_a_session_ends_twelve_hours_after_its_last_request(ada):
    client = Client()
    assert log_in("right", client=client).cookies["sessionid"]["max-age"] == 12 * 3600
    assert client.get("/admin/password_change/").cookies["sessionid"]["max-age"] == 12 * 3600
