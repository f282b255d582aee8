"""Whoever is dismissed is out within the time, whatever pages do by themselves; a provider that is away opens nothing for long."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from config.database.clock import database_now
from outbox.audit_log.models import OperatorAction
from outbox.sign_in import recheck
from outbox.sign_in.models import SignIn, sweep_sign_ins
from tests.outbox.sign_in.conftest import actions, later, log_in
from tests.outbox.sign_in.provider import OTHER_KEY, signed

EARLY, LATE = 601, 901  # seconds: two thirds of the time, and all of it


@pytest.fixture
def inside(provider, browser):
    """Somebody who is logged in."""
    assert log_in(provider, browser).status_code == 302
    provider.asked.clear()
    return browser


def refresh(browser: Client):
    """What home does by itself."""
    return browser.get("/admin/?part=1", headers={"X-Requested-With": "fetch"})


def test_the_provider_is_asked_when_two_thirds_of_the_time_are_over(provider, inside):
    assert refresh(inside).status_code == 200
    later(599)
    assert refresh(inside).status_code == 200
    assert provider.asked == []
    later(EARLY)
    assert refresh(inside).status_code == 200
    assert provider.asked == ["/token", "/me"]
    assert refresh(inside).status_code == 200
    assert provider.asked == ["/token", "/me"]


@pytest.mark.parametrize("refreshes", [True, False])
def test_who_loses_the_group_is_out_and_loses_the_role(provider, browser, refreshes):
    provider.gives_refresh_tokens = refreshes
    log_in(provider, browser)
    provider.userinfo["groups"] = ["marketing"]
    assert refresh(browser).status_code == 200
    later(EARLY)
    answer = refresh(browser)
    assert answer.status_code == 403
    assert b"none of the groups has a role here" in answer.content
    assert refresh(browser).status_code == 302
    action = OperatorAction.objects.latest("pk")
    assert (action.verb, action.actor_name, action.result) == (
        "refuse_sign_in", "Anna Schmidt", "none of the groups has a role here",
    )  # fmt: skip
    assert (action.before, action.after) == ({"roles": ["Support"]}, {"roles": []})
    person = User.objects.get()
    assert (person.groups.count(), person.is_staff) == (0, False)  # nothing is sent to them any more either
    assert not SignIn.objects.exists()
    provider.userinfo["groups"] = ["ops-support"]
    assert log_in(provider, browser).status_code == 302
    assert refresh(browser).status_code == 200


@pytest.mark.parametrize("refreshes", [True, False])
def test_whose_log_in_ended_at_the_provider_is_out(provider, browser, refreshes):
    provider.gives_refresh_tokens = refreshes
    log_in(provider, browser)
    provider.ended = True
    later(EARLY)
    assert refresh(browser).status_code == 403
    assert "this log-in is over" in actions()[-1][1]
    assert User.objects.get().groups.exists()  # nobody has said anything about roles


def test_a_changed_group_changes_the_role_at_once(provider, inside):
    provider.userinfo["groups"] = ["ops-operators"]
    later(EARLY)
    assert inside.get("/admin/outbox/operatoraction/").status_code == 200  # which support may not see
    assert actions()[-1] == ("change_roles", "as the groups at the identity provider say")
    assert [group.name for group in User.objects.get().groups.all()] == ["Operator"]
    assert len(actions()) == 2


def test_a_form_is_judged_as_well(provider, inside):
    provider.userinfo["groups"] = []
    later(EARLY)
    assert inside.post("/admin/auth/user/zone/", {"zone": "Europe/Berlin"}).status_code == 403


def test_who_is_deactivated_here_is_out_at_once(provider, inside):
    User.objects.update(is_active=False)
    assert refresh(inside).status_code == 302


def test_who_was_frozen_with_an_old_answer_gives_nothing_back(provider, inside, monkeypatch):
    """Between the provider's answer and what it is for: meanwhile another request was told that the person is dismissed."""
    later(EARLY)
    told, frozen = recheck.told, []

    def told_and_frozen(*given):
        answer = told(*given)
        if not frozen:
            frozen.append(answer)
            SignIn.objects.update(leased_until=database_now() - timedelta(seconds=1))
            provider.userinfo["groups"] = []
            assert refresh(browser_like(inside)).status_code == 403
        return answer

    monkeypatch.setattr(recheck, "told", told_and_frozen)
    assert refresh(inside).status_code != 200
    person = User.objects.get()
    assert (person.groups.count(), person.is_staff, SignIn.objects.count()) == (0, False, 0)
    assert [verb for verb, _result in actions()] == ["first_sign_in", "refuse_sign_in"]


def browser_like(browser):
    """Another window of it."""
    other = Client()
    other.cookies.update(browser.cookies)
    return other


# -- The provider is away ------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [500, 429, 302])
def test_a_provider_that_is_away_is_not_noticed_at_first_and_opens_nothing_after_the_time(provider, inside, status):
    provider.fails["/token"] = status
    later(EARLY)
    assert refresh(inside).status_code == 200
    later(LATE)
    answer = refresh(inside)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
    assert b"does not answer" in answer.content
    provider.fails.clear()
    SignIn.objects.update(leased_until=database_now())
    assert refresh(inside).status_code == 200  # the log-in was kept
    assert len(actions()) == 1


def test_our_own_wrong_secret_is_nobody_s_dismissal(provider, inside, settings):
    settings.OIDC_CLIENT_SECRET = "mistyped"
    later(LATE)
    assert refresh(inside).status_code == 503
    assert SignIn.objects.exists()


def test_of_many_requests_one_asks(provider, inside):
    """A refresh token is good for once: the second question would end the log-in."""
    later(EARLY)
    assert SignIn.objects.lease(SignIn.objects.get(), database_now())  # another request is asking
    assert refresh(inside).status_code == 200
    assert provider.asked == []
    later(LATE)
    assert refresh(inside).status_code == 503
    SignIn.objects.update(leased_until=database_now() - timedelta(seconds=1))  # it has died
    assert refresh(inside).status_code == 200
    assert provider.asked == ["/token", "/me"]


def test_who_has_read_the_tokens_of_before_does_not_ask_with_them(provider, inside):
    later(EARLY)
    stale = SignIn.objects.get()
    assert refresh(inside).status_code == 200
    assert not SignIn.objects.lease(stale, database_now())
    assert SignIn.objects.lease(SignIn.objects.get(), database_now())


def test_each_refresh_token_is_used_once(provider, inside):
    for number in (2, 3):
        later(EARLY)
        assert refresh(inside).status_code == 200
        assert provider.refresh_token == f"refr3sh-{number}"
    assert SignIn.objects.get().tokens["refresh_token"] == "refr3sh-3"


def test_a_refresh_token_is_kept_whatever_the_provider_answers_next(provider, inside):
    provider.fails["/me"] = 500
    later(EARLY)
    assert refresh(inside).status_code == 200
    assert SignIn.objects.get().tokens["refresh_token"] == provider.refresh_token == "refr3sh-2"
    provider.fails.clear()
    SignIn.objects.update(leased_until=database_now())
    assert refresh(inside).status_code == 200
    assert provider.refresh_token == "refr3sh-3"


# -- Answers that must not be believed -------------------------------------------------------------------
def lie_signed(provider):
    provider.sign = lambda claims: signed(claims, OTHER_KEY)


def lie_about_somebody_else(provider):
    provider.subject = "sub-of-eve"


def lie_in_userinfo(provider):
    provider.userinfo["sub"] = "sub-of-eve"


def lie_without_id_token(provider):
    provider.gives_id_tokens, provider.subject = False, "sub-of-eve"


@pytest.mark.parametrize("lie", [lie_signed, lie_about_somebody_else, lie_in_userinfo, lie_without_id_token])
def test_an_answer_that_lies_ends_the_log_in(provider, inside, lie):
    lie(provider)
    later(EARLY)
    assert refresh(inside).status_code == 403
    assert User.objects.count() == 1


def test_tokens_of_another_provider_are_not_shown_to_this_one(provider, inside, settings):
    settings.OIDC_ISSUER = provider.discovery["issuer"] = f"{provider.issuer}/"
    later(EARLY)
    assert refresh(inside).status_code == 403
    assert "/token" not in provider.asked


def test_a_session_without_its_log_in_is_over(provider, inside):
    SignIn.objects.all().delete()
    assert refresh(inside).status_code == 302
    assert len(actions()) == 1


def test_a_log_in_belongs_to_one_person(provider, inside):
    SignIn.objects.update(person=0)
    assert refresh(inside).status_code == 302


def test_whoever_has_a_password_is_not_asked_about(provider, browser):
    browser.force_login(User.objects.create_superuser("boss"), "django.contrib.auth.backends.ModelBackend")
    assert refresh(browser).status_code == 200
    assert provider.asked == []


# -- Out -------------------------------------------------------------------------------------------------
def test_log_out_leads_to_the_provider_by_a_page_of_ours(provider, inside):
    id_token = SignIn.objects.get().tokens["id_token"]
    answer = inside.post("/admin/logout/")
    assert answer.status_code == 200  # no redirect: form-action 'self' would stop it
    assert "form-action 'self'" in answer.headers["Content-Security-Policy"]
    there = urlsplit(answer.context["address"])
    assert f"{there.scheme}://{there.netloc}{there.path}" == f"{provider.issuer}/out"
    assert parse_qs(there.query) == {
        "id_token_hint": [id_token], "client_id": ["spillway"], "post_logout_redirect_uri": ["http://testserver/admin/"],
    }  # fmt: skip
    assert b'http-equiv="refresh"' in answer.content
    assert "no-store" in answer.headers["Cache-Control"]
    assert not SignIn.objects.exists()
    assert refresh(inside).status_code == 302


def test_log_out_works_while_the_provider_is_away_or_has_none(provider, inside, browser):
    provider.fails = dict.fromkeys(("/.well-known/openid-configuration", "/token"), 500)
    later(LATE)
    assert refresh(inside).status_code == 503
    assert inside.post("/admin/logout/").status_code == 200
    assert refresh(inside).status_code == 302


def test_who_came_with_a_password_is_not_sent_there(provider, browser):
    browser.force_login(User.objects.create_superuser("boss"), "django.contrib.auth.backends.ModelBackend")
    assert b"http-equiv" not in browser.post("/admin/logout/").content


def test_log_ins_that_ended_long_ago_are_swept(provider, inside):
    now = database_now()
    assert sweep_sign_ins(now + timedelta(hours=12)) == 0
    assert sweep_sign_ins(now + timedelta(hours=13)) == 1


def test_roles_stay_as_the_trail_says(provider, inside):
    """Nothing that did not change is written down."""
    for _ in range(3):
        later(EARLY)
        refresh(inside)
    assert [verb for verb, _result in actions()] == ["first_sign_in"]
    assert Group.objects.filter(name="Support", user__username__startswith="oidc-").exists()
