"""A provider that is away, answers nonsense, or refuses us: a page that says so, and a line of doctor that names the setting."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys

import pytest
from django.core.checks import run_checks
from django.db import connection

from config.environment.env import BadSetting, roles_from_text
from config.openid import require_fitting
from config.probes.doctor import _sign_in
from tests.outbox.sign_in.conftest import actions, log_in
from tests.outbox.sign_in.provider import CLIENT, SECRET
from tests.tree import ROOT

DISCOVERY = "/.well-known/openid-configuration"
ROLES = ["Support", "Operator"]


def line():
    return [(finding.ok, finding.detail) for finding in _sign_in()]


AWAY = [
    (DISCOVERY, 500, "OIDC_ISSUER: /.well-known/openid-configuration answers 500"),
    (DISCOVERY, 302, "OIDC_ISSUER: /.well-known/openid-configuration answers 302"),
    ("/jwks", 404, "OIDC_ISSUER: /jwks answers 404"),
]


@pytest.mark.parametrize(("path", "status", "said"), AWAY)
def test_doctor_says_what_does_not_answer(provider, path, status, said):
    assert line() == [(True, f"{provider.issuer} answers, with 1 keys")]
    provider.fails[path] = status
    assert line() == [(False, f"{said}; nobody can log in there")]


@pytest.mark.parametrize(
    ("discovery", "said"),
    [
        ({"issuer": "https://other.example"}, "OIDC_ISSUER: the provider calls itself https://other.example: write it so"),
        ({"issuer": None}, "OIDC_ISSUER: the provider calls itself something else"),
        ({"userinfo_endpoint": None}, "OIDC_ISSUER: the provider names no userinfo_endpoint"),
        ({"token_endpoint": "file:///etc/passwd"}, "OIDC_ISSUER: the provider names no token_endpoint"),
    ],
)  # fmt: skip
def test_doctor_says_what_the_provider_says_wrongly(provider, browser, discovery, said):
    provider.discovery = discovery
    [(ok, detail)] = line()
    assert not ok
    assert detail.startswith(said)
    assert browser.get("/oidc/authenticate/").status_code == 503


def test_nobody_listens(provider, browser, settings):
    settings.OIDC_ISSUER = "http://127.0.0.1:1"
    assert line()[0][1].startswith("OIDC_ISSUER: the provider cannot be asked")
    answer = browser.get("/oidc/authenticate/")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
    assert b"127.0.0.1:1 does not answer" in answer.content
    assert browser.get("/admin/login/").status_code == 200


def test_an_authority_that_cannot_be_read_is_named(provider, settings):
    settings.OIDC_CAFILE = "/nowhere.pem"
    assert line()[0][1].startswith("OIDC_CAFILE: ")


@pytest.mark.parametrize("path", ["/token", "/me", "/jwks"])
def test_a_log_in_on_the_way_meets_a_provider_that_is_away(provider, browser, path):
    there = browser.get("/oidc/authenticate/").headers["Location"]
    provider.fails[path] = 500
    assert browser.get(provider.let_in(there)).status_code == 503
    assert actions() == []  # it is nobody's fault


def test_our_wrong_secret_is_no_refusal_of_a_person(provider, browser, settings, caplog):
    settings.OIDC_CLIENT_SECRET = "mistyped"
    assert log_in(provider, browser).status_code == 503
    assert "OIDC_CLIENT_SECRET: the provider gives no token (HTTP 401, invalid_client)" in caplog.text
    assert "mistyped" not in caplog.text


def test_the_secret_is_sent_as_the_provider_wants_it(provider, browser):
    log_in(provider, browser)
    assert provider.authorized == [""]
    provider.discovery["token_endpoint_auth_methods_supported"] = ["client_secret_basic"]
    line()  # reads it anew
    assert log_in(provider, browser).status_code == 302
    assert base64.b64decode(provider.authorized[1].removeprefix("Basic ")).decode() == f"{CLIENT}:{SECRET}"


def test_no_browser_is_sent_to_a_provider_that_has_gone(provider, browser, monkeypatch):
    monkeypatch.setattr("config.openid.provider.MOMENT", 0.0)
    log_in(provider, browser)
    provider.fails[DISCOVERY] = 500
    assert browser.get("/oidc/authenticate/").status_code == 503


def test_what_is_known_of_the_provider_is_kept(provider, browser, monkeypatch):
    monkeypatch.setattr("config.openid.provider.MOMENT", 3600.0)
    for _ in range(3):
        log_in(provider, browser)
    assert (provider.asked.count(DISCOVERY), provider.asked.count("/jwks")) == (1, 1)


# -- Settings ----------------------------------------------------------------------------------------
FITTING = {
    "OIDC_ISSUER": "https://id.example", "OIDC_CLIENT_ID": "a", "OIDC_CLIENT_SECRET": "b",
    "OIDC_ROLES": (("ops", "Support"),), "OIDC_SCOPES": "openid", "PASSWORD_LOGIN": True,
}  # fmt: skip
MISFITS = [
    ({"OIDC_CLIENT_ID": ""}, "OIDC_CLIENT_ID: is empty; OIDC_ISSUER needs it"),
    ({"OIDC_CLIENT_SECRET": ""}, "OIDC_CLIENT_SECRET: is empty; OIDC_ISSUER needs it"),
    ({"OIDC_SCOPES": "profile"}, "OIDC_SCOPES: openid is not among them"),
    ({"OIDC_ROLES": (("ops", "Suport"),)}, "OIDC_ROLES: ops=Suport: there is no such role; there are Support, Operator"),
    ({"OIDC_ISSUER": "", "PASSWORD_LOGIN": False}, "PASSWORD_LOGIN: off needs OIDC_ISSUER"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "said"), MISFITS)
def test_settings_that_cannot_be_meant_stop_the_start(settings, changed, said):
    for name, value in FITTING.items():
        setattr(settings, name, value)
    require_fitting(ROLES)
    for name, value in changed.items():
        setattr(settings, name, value)
    with pytest.raises(BadSetting, match=said):
        require_fitting(ROLES)


def test_a_missing_package_is_named(settings, monkeypatch):
    for name, value in FITTING.items():
        setattr(settings, name, value)
    monkeypatch.setattr("config.openid.find_spec", lambda name: None)
    with pytest.raises(BadSetting, match=r"mozilla-django-oidc \(pip install 'spillway\[oidc\]'\)"):
        require_fitting(ROLES)


def test_groups_may_have_an_equals_sign():
    assert roles_from_text("cn=ops,dc=example = Support; ops=Operator;") == (
        ("cn=ops,dc=example", "Support"), ("ops", "Operator"),
    )  # fmt: skip
    for wrong in ("Support", "=Support", "ops="):
        with pytest.raises(BadSetting, match="OIDC_ROLES: .* is not group=Role"):
            roles_from_text(wrong)


@pytest.mark.parametrize(
    ("issuer", "warned"), [("http://id.example", 1), ("https://id.example", 0), ("http://127.0.0.1:9", 0)]
)
def test_tokens_without_tls_are_a_warning_of_the_deployment(settings, issuer, warned):
    settings.OIDC_ISSUER = issuer
    assert [message.id for message in run_checks(include_deployment_checks=True)].count("spillway.W004") == warned


# -- What a process reads -------------------------------------------------------------------------------
ASKED = """
import json, sys
import django
django.setup()
import config.urls
from django.conf import settings
print(json.dumps({
    "backends": settings.AUTHENTICATION_BACKENDS[1:],
    "rechecks": "outbox.sign_in.recheck.Recheck" in settings.MIDDLEWARE,
    "routed": any("sign_in" in str(getattr(route, "urlconf_name", "")) for route in config.urls.urlpatterns),
    "loaded": bool({"jwt", "mozilla_django_oidc"} & set(sys.modules)),
}))
"""
PROVIDER = {
    "OIDC_ISSUER": "https://id.example", "OIDC_CLIENT_ID": "a", "OIDC_CLIENT_SECRET": "b", "PASSWORD_LOGIN": "off",
}  # fmt: skip
WITHOUT = ["django.contrib.auth.backends.ModelBackend"]
WITH = ["outbox.sign_in.backends.OpenIDBackend", "outbox.sign_in.passwords.BreakGlassBackend"]


@pytest.mark.processes
@pytest.mark.skipif(connection.vendor != "sqlite", reason="it brings its own database: once is enough")
@pytest.mark.parametrize(("given", "backends"), [({}, WITHOUT), (PROVIDER, WITH)], ids=["without", "with"])
def test_the_library_is_loaded_only_where_a_provider_is_named(given, backends):
    known = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "DATABASE_URL": "sqlite:///:memory:", **given}
    printed = subprocess.run([sys.executable, "-c", ASKED], cwd=ROOT, env=known, capture_output=True, check=True).stdout
    assert json.loads(printed) == {
        "backends": backends, "rechecks": bool(given), "routed": bool(given), "loaded": bool(given),
    }  # fmt: skip
