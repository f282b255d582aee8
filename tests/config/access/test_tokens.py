"""Tokens without a broker: when they are asked for and renewed, and what a provider may do wrong."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from config.kafka import tokens
from config.kafka.tokens import TokenClient, Tokens, TokenUnavailable, end_of
from tests.config.access.authority import Authority
from tests.config.access.provider import CLIENT, SECRET, Provider


class Clock:
    """In place of `time`, and of the threads that wait for it."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def timer(self, seconds: float, function: Callable[[], None]) -> Any:
        self.timers.append((self.now + seconds, function))
        return _Timer()

    def go_to(self, moment: float) -> None:
        while due := sorted((timer for timer in self.timers if timer[0] <= moment), key=lambda timer: timer[0]):
            self.timers.remove(due[0])
            self.now = due[0][0]
            due[0][1]()
        self.now = moment


class _Timer:
    daemon = False

    def start(self) -> None:
        pass

    def is_alive(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(tokens, "time", found)
    monkeypatch.setattr(tokens.threading, "Timer", found.timer)
    return found


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as found:
        yield found


def client(provider: Provider, **more: Any) -> TokenClient:
    known = {"scope": "", "audience": "", "cafile": "", "timeout": 5.0, "identity": CLIENT, "secret": SECRET}
    return TokenClient(**{"url": provider.url, **known, **more})


def test_a_token_is_asked_for_once_and_renewed_at_half_of_its_life(clock: Clock, provider: Provider) -> None:
    found = Tokens(client(provider), {})
    first = found.token()
    clock.go_to(1040)
    assert (found.token(), len(provider.asked)) == (first, 1)
    clock.go_to(1046)
    assert len(provider.asked) == 2
    assert found.token() != first
    assert len(provider.asked) == 2


def test_nobody_waits_for_a_provider_that_is_away_while_the_token_is_good(clock: Clock, provider: Provider) -> None:
    found = Tokens(client(provider), {})
    first = found.token()
    provider.answer = lambda _form: (503, b"")
    clock.go_to(1084.9)
    assert found.token() == first
    assert len(provider.asked) > 10  # every two seconds from half of its life on
    clock.go_to(1085.1)  # five seconds before its end
    with pytest.raises(TokenUnavailable, match="HTTP 503"):
        found.token()
    provider.answer = provider.give
    clock.go_to(1090)
    assert found.token() != first


def test_a_provider_that_has_just_said_no_is_not_asked_by_each_connection(clock: Clock, provider: Provider) -> None:
    provider.answer = lambda _form: (503, b"")
    found = Tokens(client(provider), {})
    for _ in range(5):
        with pytest.raises(TokenUnavailable):
            found.token()
    assert len(provider.asked) == 1
    clock.go_to(1002)
    provider.answer = provider.give
    assert found.token()


def test_tokens_that_nobody_asks_for_are_not_renewed_for_ever(clock: Clock, provider: Provider) -> None:
    found = Tokens(client(provider), {})
    found.token()
    clock.go_to(2000)
    assert len(provider.asked) <= 4
    assert clock.timers == []
    assert found.token()
    clock.go_to(2050)
    assert clock.timers


def test_a_token_that_the_broker_refuses_is_not_shown_again(clock: Clock, provider: Provider) -> None:
    found = Tokens(client(provider), {})
    first = found.token()
    found.refused()
    assert found.token() == first  # nobody is asked without a pause
    clock.go_to(1002)
    found.refused()
    assert found.token() != first


def test_many_who_ask_at_once_are_given_one_token(provider: Provider) -> None:
    found, given = Tokens(client(provider), {}), list[str]()
    asking = [threading.Thread(target=lambda: given.append(found.token())) for _ in range(8)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert (len(set(given)), len(given), len(provider.asked)) == (1, 8, 1)


def test_what_is_configured_is_sent(provider: Provider) -> None:
    client(provider, scope="kafka .default", audience="urn:kafka").fetch()
    assert provider.asked == [{
        "grant_type": "client_credentials", "scope": "kafka .default", "audience": "urn:kafka",
        "client": CLIENT, "secret": SECRET,
    }]  # fmt: skip
    assert Tokens(client(provider), {"logicalCluster": "lkc-1"}).extensions() == {"logicalCluster": "lkc-1"}


def answer(status: int = 200, **content: object) -> tuple[int, bytes]:
    return status, json.dumps(content).encode()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            answer(400, error="invalid_scope", error_description="s3cret"),
            "KAFKA_OAUTH_SCOPE: the provider gives no token",
        ),
        (answer(400, error="invalid_target"), "KAFKA_OAUTH_AUDIENCE: "),
        (answer(400, error="unauthorized_client"), "KAFKA_OAUTH_CLIENT_ID: "),
        ((401, b"no JSON"), "KAFKA_OAUTH_CLIENT_SECRET: the provider gives no token (HTTP 401)"),
        (answer(400, error="s3cret was\nwrong"), "KAFKA_OAUTH_TOKEN_URL: the provider gives no token (HTTP 400)"),
        ((404, b""), "KAFKA_OAUTH_TOKEN_URL: the provider gives no token (HTTP 404)"),
        ((302, b"http://127.0.0.1:1/"), "KAFKA_OAUTH_TOKEN_URL: the provider gives no token (HTTP 302)"),
        ((200, b"<html>"), "KAFKA_OAUTH_TOKEN_URL: the answer is no object of JSON"),
        ((200, b"[]"), "KAFKA_OAUTH_TOKEN_URL: the answer is no object of JSON"),
        (answer(), "KAFKA_OAUTH_TOKEN_URL: the answer has no access_token"),
        (answer(access_token="a\x01auth=Bearer b"), "KAFKA_OAUTH_TOKEN_URL: the answer has no access_token"),
        (answer(access_token="abc", expires_in=float("nan")), "KAFKA_OAUTH_TOKEN_URL: the provider gives a token that"),
        ((200, b"[" * 100_000), "KAFKA_OAUTH_TOKEN_URL: the answer is no object of JSON"),
        (
            answer(access_token="abc", expires_in=0),
            "KAFKA_OAUTH_TOKEN_URL: the provider gives a token that has expired",
        ),
    ],
)
def test_what_a_provider_says_instead_of_a_token(given: tuple[int, bytes], said: str, provider: Provider) -> None:
    provider.answer = lambda _form: given
    with pytest.raises(TokenUnavailable) as error:
        client(provider).fetch()
    assert str(error.value).startswith(said)
    assert "s3cret" not in str(error.value)
    assert "\n" not in str(error.value)


def test_a_provider_that_is_silent_is_not_waited_for(provider: Provider) -> None:
    held = threading.Event()
    provider.answer = lambda form: (held.wait(20), provider.give(form))[1]
    with pytest.raises(TokenUnavailable, match="KAFKA_OAUTH_TOKEN_URL: the provider cannot be asked"):
        client(provider, timeout=0.1).fetch()
    held.set()


@pytest.mark.parametrize("expires_in", [60, "60", None, [], "a minute"])
def test_the_life_of_a_token_is_told_beside_it_or_in_it(
    expires_in: object, clock: Clock, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = provider.token()
    clock.now = end_of(text).timestamp() - 60
    provider.answer = lambda _form: answer(access_token=text, expires_in=expires_in)
    assert client(provider).fetch().renewed_at == pytest.approx(clock.now + 30)
    provider.answer = lambda _form: answer(access_token="opaque", expires_in=1e300)
    assert client(provider).fetch().renewed_at == pytest.approx(clock.now + tokens.LONGEST_LIFE / 2)
    provider.answer = lambda _form: answer(access_token="opaque")
    assert client(provider).fetch().renewed_at == pytest.approx(clock.now + tokens.UNTOLD_LIFE / 2)


def test_the_authority_of_a_provider_may_be_ones_own(authority: Authority) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.sign("provider"))
    with Provider(tls=tls) as provider:
        assert client(provider, cafile=authority.file).fetch().text
        with pytest.raises(TokenUnavailable, match="KAFKA_OAUTH_CAFILE: the provider cannot be asked"):
            client(provider).fetch()
        with pytest.raises(TokenUnavailable, match="KAFKA_OAUTH_CAFILE: the file that it names: "):
            client(provider, cafile=str(Path(authority.file).with_name("none.pem"))).fetch()


def test_one_process_has_one_provider_until_the_settings_change(settings: Any) -> None:
    first = tokens.tokens()
    assert tokens.tokens() is first
    settings.KAFKA_OAUTH_SCOPE = "another"
    assert tokens.tokens() is not first
