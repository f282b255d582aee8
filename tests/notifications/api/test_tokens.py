"""API tokens: shown once, stored hashed, revoked for good, and never faster than agreed over all processes."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from config.database.clock import database_now
from notifications.api import auth, tokens
from notifications.api.auth import Allowance, Block, draw
from notifications.api.tokens import ApiToken, end_of, identify, issue, revoke
from outbox.audit_log.models import OperatorAction
from tests.notifications.conftest import ME, Caller, problem, race


# -- Tokens ------------------------------------------------------------------------------------------
def test_a_token_is_found_by_its_text_and_by_nothing_else(db):
    token, text = issue("shop", ME)
    assert text.startswith(f"spillway_{token.prefix}_")
    assert identify(text) == token
    for wrong in (text[:-1], text + "x", text.upper(), f"spillway_{token.prefix}_", token.prefix, "", "\x00", "_" * 99):
        assert identify(wrong) is None


def test_the_secret_has_256_bits_and_is_stored_nowhere(db):
    token, text = issue("shop", ME)
    secret = text.split("_", 2)[2]
    assert len(secret) == 43
    stored = " ".join(str(value) for value in ApiToken.objects.values_list().get())
    trail = " ".join(str(value) for value in OperatorAction.objects.values_list().get())
    assert secret not in stored + trail
    assert token.digest == tokens.digest_of(text)


def test_a_revoked_token_opens_nothing_and_stays_so(db):
    token, text = issue("shop", ME)
    assert revoke([token.pk], ME, "leaked in a log") == 1
    assert revoke([token.pk], ME, "again") == 0
    assert identify(text) is None
    verbs = list(OperatorAction.objects.order_by("pk").values_list("verb", "subject"))
    assert verbs == [("create token", "API token shop"), ("revoke token", "API token shop")]


# -- The end of a token ------------------------------------------------------------------------------
def test_an_expired_token_is_refused_and_says_so(db, order):
    token, text = issue("trial", ME, expires_at=database_now() + timedelta(hours=1))
    path = f"/v1/orders/{order.pk}"
    assert Caller(text).get(path).status_code == 200
    ApiToken.objects.update(expires_at=database_now())
    answer = Caller(text).get(path)
    assert "expired at" in problem(answer, 401, "token_expired")["detail"]
    assert answer.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'
    problem(Caller(text + "x").get(path), 401, "unauthorized")  # only its owner learns that it has expired
    assert not ApiToken.objects.valid(database_now()).exists()
    assert revoke([token.pk], ME, "tidied up") == 1


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("2027-01-31", datetime(2027, 2, 1, tzinfo=UTC)),  # the day itself is the last one
        ("2027-01-31T12:00", datetime(2027, 1, 31, 12, tzinfo=UTC)),
        ("2027-01-31T12:00+01:00", datetime(2027, 1, 31, 11, tzinfo=UTC)),
    ],
)
def test_the_end_is_a_day_or_a_time(text, end):
    assert end_of(text) == end


def test_the_command_sets_the_end(db):
    call_command("create_token", "trial", "--expires", "2199-12-31", stdout=StringIO())
    assert ApiToken.objects.get().expires_at == datetime(2200, 1, 1, tzinfo=UTC)
    for text, words in (("2020-01-01", "is over"), ("soon", "neither a day")):
        with pytest.raises(CommandError, match=f"--expires: .*{words}"):
            call_command("create_token", "trial", "--expires", text)


def test_the_admin_sets_and_shows_the_end(db):
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    form = {"name": "trial", "expires_at_0": "2199-12-31", "expires_at_1": "12:00:00"}
    pages = "/admin/notifications/apitoken/"
    assert "This time is over" in client.post(f"{pages}add/", {**form, "expires_at_0": "2020-01-01"}).content.decode()
    assert client.post(f"{pages}add/", form).status_code == 200
    token = ApiToken.objects.get()
    assert "2199-12-31 12:00:00 UTC" in client.get(f"{pages}{token.pk}/change/").content.decode()
    ApiToken.objects.update(expires_at=database_now())
    assert "Expired" in client.get(f"{pages}{token.pk}/change/").content.decode()
    assert "trial" not in client.get(pages).content.decode().split("<tbody>")[-1]
    assert "Expired" in client.get(f"{pages}?show=all").content.decode()


@pytest.mark.parametrize(
    ("name", "more"),
    [("", {}), ("  ", {}), ("x" * 101, {}), ("a\x00b", {}), ("ok", {"rate": -1}), ("ok", {"rate": float("nan")}),
     ("ok", {"customer_id": "x" * 201}), ("ok", {"customer_id": "a\tb"}), ("ok", {"customer_id": " "})],
)  # fmt: skip
def test_what_cannot_be_a_token_is_refused(db, name, more):
    with pytest.raises(ValueError, match=r"NAME|rate|customer"):
        issue(name, ME, **more)
    assert not ApiToken.objects.exists()


@pytest.mark.parametrize("given", [{"name": "a\u200bb"}, {"name": "ok", "customer_id": "a\tb"}])
def test_what_cannot_be_a_token_is_said_at_its_field(db, given):
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    page = client.post("/admin/notifications/apitoken/add/", given)
    assert "Needed: " in page.content.decode()
    assert not ApiToken.objects.exists()


def test_use_is_remembered_to_the_minute(db, django_assert_num_queries):
    caller = Caller(issue("shop", ME, rate=0)[1])
    caller.get("/v1/orders")
    first = ApiToken.objects.get().last_used_at
    assert first
    caller.get("/v1/orders")
    assert ApiToken.objects.get().last_used_at == first
    ApiToken.objects.update(last_used_at=first - timedelta(seconds=61))
    caller.get("/v1/orders")
    assert ApiToken.objects.get().last_used_at > first - timedelta(seconds=61)


def test_a_use_that_another_process_noted_is_not_noted_again(db):
    token = issue("shop", ME)[0]
    noted = database_now()
    ApiToken.objects.update(last_used_at=noted)
    tokens.touch(token)  # as it was read before
    assert ApiToken.objects.get().last_used_at == noted


# -- The command -------------------------------------------------------------------------------------
def test_the_command_prints_the_token_once(db):
    out = StringIO()
    call_command("create_token", "shop", "--rate", "5", stdout=out)
    token = identify(out.getvalue().strip())
    assert (token.name, token.rate, token.customer_id) == ("shop", 5.0, "")
    assert token.created_by.endswith(", by command")
    out = StringIO()
    call_command("create_token", "merchant", "--customer", "C-7", stdout=out)
    assert identify(out.getvalue().strip()).customer_id == "C-7"


def test_the_command_makes_a_token_that_promises_messages(db):
    out = StringIO()
    call_command("create_token", "billing", "--channels", "email, kafka", stdout=out)
    token = identify(out.getvalue().strip())
    assert (token.channels, token.allowed_channels) == ("email,kafka", ["email", "kafka"])
    with pytest.raises(CommandError, match="--channels: there is no channel 'fax', only kafka, email"):
        call_command("create_token", "billing", "--channels", "email,fax")
    assert ApiToken.objects.count() == 1


def test_the_command_refuses_in_one_line(db):
    with pytest.raises(CommandError, match="NAME"):
        call_command("create_token", " ")


# -- Rates -------------------------------------------------------------------------------------------
@pytest.fixture
def token(db) -> ApiToken:
    return issue("shop", ME, rate=10)[0]


def granted(allowance: Allowance, token: ApiToken, tries: int) -> int:
    return sum(allowance.wait(token) == 0 for _ in range(tries))


def stop_the_clock(monkeypatch) -> None:
    now = database_now()
    monkeypatch.setattr(auth, "database_now", lambda: now)


def test_a_bucket_holds_a_second_and_no_more(token, monkeypatch):
    stop_the_clock(monkeypatch)
    assert granted(Allowance(), token, 50) == 10


def test_it_fills_with_the_databases_clock(token, monkeypatch):
    now = database_now()
    monkeypatch.setattr(auth, "database_now", lambda: now)
    assert granted(Allowance(), token, 20) == 10
    wait = Allowance().wait(token)
    assert 0 < wait <= 0.1
    now += timedelta(seconds=wait)
    assert granted(Allowance(), token, 5) == 1
    now += timedelta(hours=1)
    assert granted(Allowance(), token, 50) == 10


def test_the_rate_of_a_token_wins_over_the_setting(token, settings, monkeypatch):
    stop_the_clock(monkeypatch)
    settings.API_RATE_PER_SECOND = 3
    assert granted(Allowance(), token, 20) == 10
    token.rate = None
    ApiToken.objects.update(full_at=0)
    assert granted(Allowance(), token, 20) == 3
    settings.API_RATE_PER_SECOND = 0
    assert granted(Allowance(), token, 200) == 200


def test_less_than_one_a_second_is_possible(token, monkeypatch):
    stop_the_clock(monkeypatch)
    token.rate = 0.1
    assert granted(Allowance(), token, 5) == 1
    assert 9 < Allowance().wait(token) <= 10


def test_a_busy_process_asks_the_database_now_and_then_only(token, monkeypatch):
    stop_the_clock(monkeypatch)
    token.rate = 1000
    calls = []
    monkeypatch.setattr(auth, "draw", lambda *given: calls.append(given) or draw(*given))
    allowance = Allowance()
    assert granted(allowance, token, 500) == 500
    assert len(calls) < 20
    assert max(number for _token, _rate, number in calls) <= 100


def test_a_block_shrinks_when_it_was_not_used():
    assert Block(size=8, left=0, until=9.0).next_size(1000, now=8.0) == 16
    assert Block(size=8, left=0, until=9.0).next_size(10, now=8.0) == 1
    assert Block(size=8, left=0, until=9.0).next_size(1000, now=9.5) == 8
    assert Block(size=8, left=6, until=9.0).next_size(1000, now=9.5) == 2


def test_what_was_drawn_and_not_used_is_not_kept_for_later(token, monkeypatch):
    stop_the_clock(monkeypatch)
    allowance = Allowance()
    allowance._blocks[token.pk] = Block(size=5, left=5, until=time.monotonic() - 1)
    assert granted(allowance, token, 50) == 10


@pytest.mark.django_db(transaction=True)
def test_processes_that_draw_at_once_never_get_more(monkeypatch):
    token = issue("shop", ME, rate=10)[0]
    stop_the_clock(monkeypatch)
    results = race(*[lambda: granted(Allowance(), token, 10) for _ in range(4)])
    assert sum(results) == 10, results
