"""Who is let in by the provider, as whom, with which roles; and each token that must not be believed."""

from __future__ import annotations

import time

import pytest
from axes.models import AccessAttempt
from django.contrib.auth.models import Group, User
from django.test import Client

from outbox.audit_log.models import OperatorAction
from outbox.sign_in.models import SignIn
from tests.outbox.sign_in.conftest import actions, log_in, refusal
from tests.outbox.sign_in.provider import KEY, OTHER_KEY, SECRET, signed

HOUR = 3600


def test_whoever_has_a_group_is_let_in_with_its_role_and_the_trail_says_so(provider, browser):
    answer = log_in(provider, browser, "/admin/outbox/deadletter/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/outbox/deadletter/")
    person = User.objects.get()
    assert browser.get("/admin/").context["user"] == person
    assert [group.name for group in person.groups.all()] == ["Support"]
    assert (person.is_staff, person.is_superuser, person.has_usable_password()) == (True, False, False)
    assert (person.first_name, person.email) == ("Anna Schmidt", "")
    action = OperatorAction.objects.get()
    assert (action.verb, action.actor_name, action.after) == ("first_sign_in", "Anna Schmidt", {"roles": ["Support"]})
    assert action.detail == {"issuer": provider.issuer, "subject": "sub-of-anna"}
    log_in(provider, Client())
    assert (User.objects.count(), OperatorAction.objects.count()) == (1, 1)


def test_the_browser_brings_state_nonce_and_the_hash_of_a_verifier(provider, browser):
    log_in(provider, browser)
    began = provider.began
    assert (began["scope"], began["response_type"]) == ("openid profile", "code")
    assert (began["code_challenge_method"], len(began["code_challenge"])) == ("S256", 43)
    assert min(len(began["state"]), len(began["nonce"])) >= 32
    assert began["redirect_uri"] == "http://testserver/oidc/callback/"
    assert "prompt" not in began
    log_in(provider, browser)
    assert provider.began["state"] != began["state"]
    assert "prompt=login" in browser.get("/oidc/authenticate/?again").headers["Location"]


# -- Who somebody is ---------------------------------------------------------------------------------
def test_nobody_is_adopted_by_name_or_address(provider, browser):
    for name in ("Anna Schmidt", "anna", "sub-of-anna"):
        User.objects.create_user(name, "a@example.com", "pw")
    User.objects.create_superuser("boss", "a@example.com", "pw")
    provider.userinfo["preferred_username"] = "boss"
    log_in(provider, browser)
    person = User.objects.get(username__startswith="oidc-")
    assert browser.get("/admin/").context["user"] == person
    provider.subject = "sub-of-another-anna"
    log_in(provider, Client())
    assert User.objects.filter(username__startswith="oidc-").count() == 2  # with one name and one address


def test_a_subject_of_another_issuer_is_another_person(provider, browser, settings):
    log_in(provider, browser)
    first = User.objects.get()
    settings.OIDC_ISSUER = provider.discovery["issuer"] = provider.issuer = f"{provider.issuer}/"
    log_in(provider, Client())
    assert User.objects.exclude(pk=first.pk).count() == 1


@pytest.mark.parametrize("local", [{"is_superuser": True}, {"password": "pbkdf2_sha256$1$a$b"}], ids=str)
def test_an_account_that_became_a_superuser_or_got_a_password_is_not_opened(provider, browser, local):
    log_in(provider, browser)
    User.objects.update(**local)
    assert "is a superuser's, or has a password" in refusal(log_in(provider, Client()))
    assert actions()[-1][0] == "refuse_sign_in"


def test_who_is_not_active_here_is_refused(provider, browser):
    log_in(provider, browser)
    User.objects.update(is_active=False)
    assert refusal(log_in(provider, Client())) == "the account is not active here"
    assert browser.get("/admin/").status_code == 302


# -- Roles -------------------------------------------------------------------------------------------
def test_the_groups_of_now_give_the_roles(provider, browser):
    log_in(provider, browser)
    person = User.objects.get()
    person.groups.add(Group.objects.get(name="Auditor"))  # by hand: the provider knows better
    provider.userinfo["groups"] = ["ops-operators", "all-staff"]
    log_in(provider, browser)
    assert [group.name for group in person.groups.all()] == ["Operator"]
    action = OperatorAction.objects.latest("pk")
    assert (action.verb, action.before, action.after) == (
        "change_roles", {"roles": ["Auditor", "Support"]}, {"roles": ["Operator"]},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        (["marketing"], "none of the groups has a role here"),
        ([], "none of the groups has a role here"),
        ("ops-support", "the provider's “groups” is no list of texts"),
        ([["ops-support"]], "the provider's “groups” is no list of texts"),
        ({"ops-support": True}, "the provider's “groups” is no list of texts"),
        (None, "the provider does not say in which groups (no “groups”)"),
    ],
)
def test_nobody_without_a_role_gets_in(provider, browser, groups, why):
    provider.userinfo["groups"] = groups
    answer = log_in(provider, browser)
    assert refusal(answer) == why
    assert b"Ask whoever manages them there" in answer.content
    assert actions() == [("refuse_sign_in", why)]
    assert OperatorAction.objects.get().detail["subject"] == "sub-of-anna"
    assert not User.objects.exists()
    assert browser.get("/admin/").status_code == 302


def test_groups_may_stand_in_the_id_token_and_have_another_name(provider, browser, settings):
    settings.OIDC_GROUPS_CLAIM, provider.id_token["roles"] = "roles", ["ops-support"]
    assert log_in(provider, browser).status_code == 302


def test_a_role_that_was_deleted_lets_nobody_in(provider, browser):
    Group.objects.filter(name="Support").delete()
    assert "nobody has the role Support any more" in refusal(log_in(provider, browser))


# -- Tokens that must not be believed ------------------------------------------------------------------
BAD = {
    "of another client": ({"aud": "grafana"}, "is for another client (aud)"),
    "without audience": ({"aud": None}, "has no aud"),
    "for two, made for the other": ({"aud": ["spillway", "grafana"], "azp": "grafana"}, "made for another client (azp)"),
    "for two, made for nobody": ({"aud": ["spillway", "grafana"]}, "made for another client (azp)"),
    "made for another": ({"azp": "grafana"}, "made for another client (azp)"),
    "of another issuer": ({"iss": "https://evil.example"}, "is by another issuer (iss)"),
    "without issuer": ({"iss": None}, "has no iss"),
    "expired": ({"iat": int(time.time()) - HOUR, "exp": int(time.time()) - 30}, "has expired (exp)"),
    "for ever": ({"exp": None}, "has no exp"),
    "of tomorrow": ({"iat": int(time.time()) + 24 * HOUR}, "is of a time to come (iat)"),
    "of no time": ({"iat": None}, "has no iat"),
    "of another log-in": ({"nonce": "of-another"}, "belongs to another log-in (nonce)"),
    "of no log-in": ({"nonce": None}, "belongs to another log-in (nonce)"),
    "about nobody": ({"sub": ""}, "names nobody (sub)"),
    "about a number": ({"sub": 7}, "cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize(("claims", "why"), BAD.values(), ids=BAD)
def test_a_bad_id_token_lets_nobody_in(provider, browser, claims, why):
    provider.id_token.update(claims)
    said = refusal(log_in(provider, browser))
    assert why in said
    assert actions() == [("refuse_sign_in", said)]
    assert OperatorAction.objects.get().detail == {}  # nothing of it is believed
    assert not User.objects.exists()
    assert AccessAttempt.objects.get().failures_since_start == 1


FORGED = {
    "unsigned": (lambda claims: signed(claims, None, "none"), "(alg)"),
    "signed with the client's secret": (lambda claims: signed(claims, SECRET, "HS256"), "(alg)"),
    "signed with another key": (lambda claims: signed(claims, OTHER_KEY), "with no key of the provider"),
    "signed with another key, without its name": (
        lambda claims: signed(claims, OTHER_KEY, key_id=None), "with no key of the provider",
    ),
    "signed under another name": (lambda claims: signed(claims, key_id="2"), "with no key of the provider"),
    "signed by a way that the key is not for": (lambda claims: signed(claims, KEY, "PS256"), "with no key"),
    "cut off": (lambda claims: signed(claims)[:-21], "no ID token that can be read"),
    "no token": (lambda claims: "ey.ey", "no ID token that can be read"),
    "a number": (lambda claims: 7, "no ID token that can be read"),
    "missing": (lambda claims: None, "no ID token that can be read"),
}  # fmt: skip


@pytest.mark.parametrize(("sign", "why"), FORGED.values(), ids=FORGED)
def test_a_forged_id_token_lets_nobody_in(provider, browser, sign, why):
    provider.sign = sign
    assert why in refusal(log_in(provider, browser))
    assert not User.objects.exists()


def test_a_key_that_was_changed_is_read_again_but_not_for_each_unknown_name(provider, browser, monkeypatch):
    log_in(provider, browser)
    provider.sign = lambda claims: signed(claims, key_id="2")
    log_in(provider, Client())
    log_in(provider, Client())
    assert provider.asked.count("/jwks") == 1
    monkeypatch.setattr("config.openid.provider.MINUTE", 0.0)
    log_in(provider, Client())
    assert provider.asked.count("/jwks") == 2


@pytest.mark.parametrize("said", [{"sub": "sub-of-eve"}, {"sub": None}, {"sub": 7}], ids=str)
def test_userinfo_about_somebody_else_lets_nobody_in(provider, browser, said):
    provider.userinfo |= said
    assert "about somebody else (sub)" in refusal(log_in(provider, browser))


# -- The callback ------------------------------------------------------------------------------------
def test_a_state_is_good_for_one_log_in_of_one_browser(provider, browser):
    back = provider.let_in(browser.get("/oidc/authenticate/").headers["Location"])
    assert "another browser" in refusal(Client().get(back))
    assert browser.get(back).status_code == 302
    assert "another browser" in refusal(browser.get(back))
    assert provider.asked.count("/token") == 1


def test_a_code_of_another_provider_is_not_taken(provider, browser):
    back = provider.let_in(browser.get("/oidc/authenticate/").headers["Location"])
    assert "begin again" in refusal(browser.get(f"{back}&iss=https://evil.example"))
    assert browser.get(f"{back}&iss={provider.issuer}").status_code == 302


def test_what_the_provider_refuses_is_said_and_written_down(provider, browser):
    back = provider.let_in(browser.get("/oidc/authenticate/").headers["Location"])
    state = provider.began["state"]
    said = refusal(browser.get("/oidc/callback/", {"error": "access_denied", "state": state}))
    assert said == "the provider did not let anybody in (access_denied)"
    assert actions() == [("refuse_sign_in", said)]
    assert "another browser" in refusal(browser.get(back))


def test_nobody_is_logged_out_by_a_link_of_somebody_else(provider, browser):
    log_in(provider, browser)
    browser.get("/oidc/callback/?error=access_denied&state=x")
    assert browser.get("/admin/").status_code == 200
    assert len(actions()) == 1


def test_a_wrong_code_is_a_refusal(provider, browser):
    back = provider.let_in(browser.get("/oidc/authenticate/").headers["Location"])
    assert "invalid_grant" in refusal(browser.get(back.replace("c0de", "gu3ss")))


def test_a_form_with_a_password_never_asks_the_provider(provider, browser):
    User.objects.create_superuser("boss", password="pw")
    browser.post("/admin/login/?code=c0de&state=x", {"username": "boss", "password": "wrong"})
    assert provider.asked == []


def test_somebody_else_s_page_is_never_where_it_leads(provider, browser):
    assert log_in(provider, browser, "https://evil.example/").headers["Location"] == "/admin/"


# -- Limits ------------------------------------------------------------------------------------------
def test_refusals_lock_their_address_out_and_no_other(provider, browser, settings):
    settings.AXES_FAILURE_LIMIT = settings.LOGIN_MOST_FAILURES = 3
    provider.id_token["aud"] = "grafana"
    answers = [log_in(provider, Client()).status_code for _ in range(4)]
    assert answers == [403, 403, 429, 429]
    assert len(actions()) == 3  # who is locked out writes no more
    provider.id_token.clear()
    assert log_in(provider, browser).status_code == 429
    assert log_in(provider, Client(REMOTE_ADDR="203.0.113.9")).status_code == 302
    assert log_in(provider, Client(REMOTE_ADDR="")).status_code == 302


def test_refusals_from_nowhere_lock_nobody_else_out(provider, settings):
    settings.AXES_FAILURE_LIMIT = settings.LOGIN_MOST_FAILURES = 3
    provider.id_token["aud"] = "grafana"
    for _ in range(4):
        log_in(provider, Client(REMOTE_ADDR="", HTTP_USER_AGENT="guesser"))
    provider.id_token.clear()
    assert log_in(provider, Client(REMOTE_ADDR="", HTTP_USER_AGENT="reader")).status_code == 302


def test_neither_code_nor_state_stands_in_the_record_of_failures(provider, browser):
    provider.id_token["aud"] = "grafana"
    log_in(provider, browser)
    kept = AccessAttempt.objects.get()
    assert "c0de" not in kept.get_data
    assert provider.began["state"] not in kept.get_data


def test_tokens_are_not_readable_in_the_database(provider, browser):
    log_in(provider, browser)
    row = SignIn.objects.get()
    assert row.tokens["refresh_token"] == provider.refresh_token
    assert not [text for text in ("acc3ss", "refr3sh") if text in row.sealed_tokens]
