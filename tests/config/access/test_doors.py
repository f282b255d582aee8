"""Certificates, passwords and tokens on a real broker: the right ones, wrong ones, and those that have expired."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest

from config.kafka import Failed, Outgoing, Producer, Sent, client, connection_internals
from config.kafka.client import new_producer
from config.kafka.reader import Reader
from config.kafka.topics import create_topics, topic_name
from config.kafka.transactional_producer import Committed, TransactionalProducer
from config.probes import doctor
from tests.config.access.authority import Authority
from tests.config.access.conftest import Doors
from tests.config.access.provider import Provider
from tests.crash.wire import wait_for
from tests.logged import lines

pytestmark = pytest.mark.kafka

Enter, Knock = Callable[[str], None], Callable[[], str]


def values_of(topic: str) -> list[bytes]:
    with Reader(topic) as reader:
        return [record.value for records in reader.batches() for record in records]


@pytest.mark.parametrize("door", ["mtls", "scram", "oauth"])
def test_every_client_gets_in(door: str, enter: Enter, settings: Any, doors: Doors) -> None:
    enter(door)
    settings.KAFKA_TOPICS = {"in": {"partitions": 1}}
    assert [created for _topic, created in create_topics()] == [True]
    topic = topic_name("in")
    with closing(client.new_admin()) as admin:
        admin.wait_for_topics([topic], timeout_ms=10_000)
    with closing(Producer()) as producer:
        assert isinstance(producer.send_all([Outgoing(topic, "k", b"alone")])[0], Sent)
    with closing(TransactionalProducer(f"{topic}.transactions")) as transactions:
        transactions.rebuild()
        transactions.begin()
        transactions.send(topic, 0, b"k", b"in a transaction", [])
        assert transactions.commit({}, None) == Committed()
    assert values_of(topic) == [b"alone", b"in a transaction"]
    assert all(finding.ok for finding in doctor._broker())


def pair(files: tuple[str, str]) -> dict[str, str]:
    return dict(zip(("KAFKA_SSL_CERTFILE", "KAFKA_SSL_KEYFILE"), files, strict=True))


def stranger(doors: Doors) -> Authority:
    return Authority(doors.authority.folder, "stranger")


NO_FILE = "cannot read the file that it names: No such file or directory"
NO_PASSWORD = "KAFKA_SSL_KEY_PASSWORD: does not open the key"
CERTIFICATES: dict[str, tuple[Callable[[Doors], dict[str, Any]], str]] = {
    "no certificate": (
        lambda doors: {**pair(("", "")), "KAFKA_SSL_KEY_PASSWORD": ""},
        "KAFKA_SSL_CERTFILE: is empty, and the broker asks for a certificate",
    ),
    "missing file": (lambda doors: {"KAFKA_SSL_CERTFILE": "/none.pem"}, f"KAFKA_SSL_CERTFILE: {NO_FILE}"),
    "another's key": (
        lambda doors: {"KAFKA_SSL_KEYFILE": doors.authority.sign("other")[1]},
        "KAFKA_SSL_KEYFILE: is not the key of the certificate",
    ),
    "wrong password": (lambda doors: {"KAFKA_SSL_KEY_PASSWORD": "wr0ng"}, NO_PASSWORD),
    "no password": (lambda doors: {"KAFKA_SSL_KEY_PASSWORD": ""}, NO_PASSWORD),
    "expired": (
        lambda doors: pair(doors.authority.sign("late", -timedelta(days=1))),
        "KAFKA_SSL_CERTFILE: the certificate of CN=late expired on ",
    ),
    "signed by a stranger": (
        lambda doors: pair(stranger(doors).sign("guest")),
        "KAFKA_SSL_CERTFILE: the broker does not accept the certificate",
    ),
    "another authority": (
        lambda doors: {"KAFKA_SSL_CAFILE": stranger(doors).file},
        "KAFKA_SSL_CAFILE: knows no authority of the broker's certificate",
    ),
    "no authority": (lambda doors: {"KAFKA_SSL_CAFILE": "/none.pem"}, f"KAFKA_SSL_CAFILE: {NO_FILE}"),
    "a key in place of a certificate": (
        lambda doors: {"KAFKA_SSL_CERTFILE": doors.authority.sign("worker")[1]},
        "KAFKA_SSL_CERTFILE: the file that it names holds no certificate in PEM",
    ),
    "another name": (
        lambda doors: {"KAFKA_BOOTSTRAP_SERVERS": [doors.kafka.at("mtls").replace("127.0.0.1", "localhost")]},
        "KAFKA_BOOTSTRAP_SERVERS: the broker's certificate is for another name",
    ),
    "a listener without TLS": (
        lambda doors: {"KAFKA_BOOTSTRAP_SERVERS": [doors.kafka.address]},
        "KAFKA_SECURITY_PROTOCOL=SSL: what answers does not speak TLS",
    ),
    "away": (lambda doors: {"KAFKA_BOOTSTRAP_SERVERS": ["127.0.0.1:1"]}, "KAFKA_BOOTSTRAP_SERVERS=127.0.0.1:1: "),
}


@pytest.mark.parametrize("case", CERTIFICATES)
def test_what_is_wrong_with_certificates_is_told_apart(
    case: str, enter: Enter, knock: Knock, settings: Any, doors: Doors
) -> None:
    enter("mtls")
    changed, said = CERTIFICATES[case]
    for name, value in changed(doors).items():
        setattr(settings, name, value)
    why = knock()
    assert said in why
    assert "\n" not in why
    assert "p4ssword" not in why


SCRAM = {
    "wrong secret": ("KAFKA_SASL_PASSWORD", "wr0ng", "KAFKA_SASL_PASSWORD: the broker does not let ops in"),
    "unknown user": ("KAFKA_SASL_USERNAME", "nobody", "KAFKA_SASL_PASSWORD: the broker does not let nobody in"),
    "no secret": ("KAFKA_SASL_PASSWORD", "", "KAFKA_SASL_PASSWORD: is empty; KAFKA_SASL_MECHANISM=SCRAM-SHA-512"),
    "other mechanism": ("KAFKA_SASL_MECHANISM", "SCRAM-SHA-256", "KAFKA_SASL_MECHANISM=SCRAM-SHA-256: the broker"),
    "without TLS": ("KAFKA_SECURITY_PROTOCOL", "SASL_PLAINTEXT", "KAFKA_SECURITY_PROTOCOL"),
    "log-in forgotten": ("KAFKA_SASL_MECHANISM", "", "KAFKA_SECURITY_PROTOCOL=SSL"),
    "no log-in at all": ("KAFKA_SECURITY_PROTOCOL", "SSL", "KAFKA_SECURITY_PROTOCOL: SSL has no log-in"),
}


@pytest.mark.parametrize("case", SCRAM)
def test_what_is_wrong_with_passwords_is_told_apart(case: str, enter: Enter, knock: Knock, settings: Any) -> None:
    enter("scram")
    name, value, said = SCRAM[case]
    setattr(settings, name, value)
    if not value and name == "KAFKA_SASL_MECHANISM":
        settings.KAFKA_SECURITY_PROTOCOL = "SSL"
    if "SSL" not in settings.KAFKA_SECURITY_PROTOCOL:
        settings.KAFKA_SSL_CAFILE = ""
    why = knock()
    assert said in why
    assert "p4ssword" not in why
    assert "wr0ng" not in why


def lies(provider: Provider, **claims: object) -> Callable[[dict[str, str]], tuple[int, bytes]]:
    """A token that the broker should not take, of which the provider says that it is good."""
    life = claims.pop("life", None)
    token = provider.token(life, **claims)  # type: ignore[arg-type]
    return lambda _form: (200, json.dumps({"access_token": token, "expires_in": 90}).encode())


OAUTH = {
    "wrong secret": "KAFKA_OAUTH_CLIENT_SECRET: the provider gives no token (HTTP 401, invalid_client)",
    "provider away": "KAFKA_OAUTH_TOKEN_URL: the provider cannot be asked for a token: ",
    "provider fails": "KAFKA_OAUTH_TOKEN_URL: the provider gives no token (HTTP 503)",
    "expired token": "KAFKA_OAUTH_TOKEN_URL: the provider's token expired on ",
    "other audience": "KAFKA_OAUTH_SCOPE: the broker refuses the token",
    "other issuer": "KAFKA_OAUTH_SCOPE: the broker refuses the token",
    "listener of passwords": "KAFKA_SASL_MECHANISM=OAUTHBEARER: the broker does not know it",
    "another authority": "KAFKA_SSL_CAFILE: knows no authority",
}


@pytest.mark.parametrize("case", OAUTH)
def test_what_is_wrong_with_tokens_is_told_apart(
    case: str, enter: Enter, knock: Knock, settings: Any, doors: Doors, provider: Provider
) -> None:
    enter("oauth")
    if case == "wrong secret":
        settings.KAFKA_OAUTH_CLIENT_SECRET = "wr0ng"
    elif case == "provider away":
        settings.KAFKA_OAUTH_TOKEN_URL = "http://127.0.0.1:1/token"
    elif case == "provider fails":
        provider.answer = lambda _form: (503, b"")
    elif case == "expired token":
        provider.answer = lies(provider, life=-60)
    elif case == "other audience":
        provider.answer = lies(provider, aud="another")
    elif case == "other issuer":
        provider.answer = lies(provider, iss="http://another.test")
    elif case == "listener of passwords":
        settings.KAFKA_BOOTSTRAP_SERVERS = [doors.kafka.at("scram")]
    elif case == "another authority":
        settings.KAFKA_SSL_CAFILE = stranger(doors).file
    why = knock()
    assert OAUTH[case] in why
    assert "s3cret" not in why


def test_files_that_are_renewed_are_read_at_the_next_connection(
    enter: Enter, knock: Knock, settings: Any, doors: Doors
) -> None:
    """A worker that lives on: its certificate has expired, and a new one lies there when it connects again."""
    enter("mtls")
    settings.KAFKA_SSL_KEY_PASSWORD = ""
    settings.KAFKA_SSL_CERTFILE, settings.KAFKA_SSL_KEYFILE = doors.authority.sign("renewed")
    with closing(client.new_admin(request_timeout_ms=2_000)) as admin:
        doors.authority.sign("renewed", -timedelta(days=1))
        drop_connections(admin._manager)
        with pytest.raises(client.KafkaError):
            admin.list_topics()
        assert "expired on" in knock()
        doors.authority.sign("renewed")

        def back() -> bool:
            with suppress(client.KafkaError):
                return admin.list_topics() is not None
            return False

        wait_for(back, 20, "the client to be let in again")


def drop_connections(manager: Any) -> None:
    manager._net.call_soon_threadsafe(lambda: [conn.close() for conn in list(manager._conns.values())])


def test_a_transaction_outlives_its_token(enter: Enter, settings: Any, provider: Provider) -> None:
    provider.life = 4.0  # the broker ends what does not log in again by then
    enter("oauth")
    settings.KAFKA_TOPICS = {"in": {"partitions": 1}}
    create_topics()
    topic = topic_name("in")
    with closing(TransactionalProducer(f"{topic}.transactions")) as transactions:
        transactions.rebuild()
        transactions.begin()
        transactions.send(topic, 0, b"k", b"before", [])
        begun = len(provider.asked)
        # One that was there is half gone at most: two more, and it has ended.
        wait_for(lambda: len(provider.asked) >= begun + 2, 9, "two new tokens")
        transactions.send(topic, 0, b"k", b"after", [])
        assert transactions.commit({}, None) == Committed()
    assert values_of(topic) == [b"before", b"after"]


def test_what_was_asked_while_a_connection_logged_in_again_is_answered(enter: Enter) -> None:
    """More of it than the client may have unanswered, twice over."""
    enter("scram")
    with closing(client.new_admin()) as admin:
        admin.list_topics()
        (conn,) = admin._manager._conns.values()

        async def ask() -> list[Any]:
            conn._reauth._reauthenticating = True
            asked = [conn.send_request(MetadataRequest(topics=[])) for _ in range(12)]
            conn._reauth._reauthenticating = False
            conn.send_buffered()
            return [await admin._manager.wait_for(answer, 5_000) for answer in asked]

        assert len(admin._net.run(ask)) == 12


def test_a_client_without_new_tokens_is_shut_out_and_says_why(
    enter: Enter, settings: Any, provider: Provider, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard of the test above: where no token comes any more, the broker hangs up."""
    provider.life = 4.0
    enter("oauth")
    with closing(client.new_admin(request_timeout_ms=2_000)) as admin:
        provider.answer = lambda _form: (503, b"")
        monkeypatch.setattr(connection_internals._Said, "until", 0.0)

        def out() -> bool:
            with suppress(client.KafkaError):
                admin.list_topics()
                return False
            return True

        wait_for(out, 20, "the client to be shut out")
        assert any(line["event"] == "kafka_token_not_renewed" for line in lines(caplog))

        def refused() -> list[str]:
            with suppress(client.KafkaError):
                admin.list_topics()  # connects again
            return [line["error"] for line in lines(caplog) if line["event"] == "kafka_refuses"]

        wait_for(refused, 20, "a line that says so")
        assert refused()[0] == "KAFKA_OAUTH_TOKEN_URL: the provider gives no token (HTTP 503)"
        provider.answer = provider.give
        wait_for(lambda: not out(), 20, "the client to be let in again")


def test_messages_wait_while_nobody_is_let_in(enter: Enter, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message that is refused for good is a dead letter; this is none's fault. And the door is tried once for all."""
    enter("scram")
    settings.KAFKA_SASL_PASSWORD = "wr0ng"
    tried = []
    monkeypatch.setattr(client, "new_producer", lambda **given: tried.append(1) or new_producer(**given))
    with closing(Producer(bootstrap_timeout_ms=2_500)) as producer:
        results = producer.send_all([Outgoing("t", "k", b"value")] * 5)
    assert [type(result) for result in results] == [Failed] * 5
    assert "KAFKA_SASL_PASSWORD" in results[0].error
    assert len(tried) == 1


@pytest.mark.parametrize("door", ["mtls", "oauth"])
def test_messages_wait_while_a_producer_that_was_let_in_is_not_any_more(
    door: str, enter: Enter, settings: Any, provider: Provider, doors: Doors
) -> None:
    provider.life = 4.0
    enter(door)
    settings.KAFKA_TOPICS = {"in": {"partitions": 1}}
    create_topics()
    message = Outgoing(topic_name("in"), "k", b"value")
    impatient = {"bootstrap_timeout_ms": 2_500, "max_block_ms": 2_500, "delivery_timeout_ms": 2_500}
    with closing(Producer(patience=5, request_timeout_ms=2_000, **impatient)) as producer:
        assert isinstance(producer.send_all([message])[0], Sent)
        if door == "mtls":
            moved = Path(settings.KAFKA_SSL_CERTFILE)
            moved.rename(moved.with_name("moved.pem"))
            drop_connections(producer._client._sender._client._manager)
        else:
            provider.answer = lies(provider, aud="another")
        results: list[object] = []
        wait_for(
            lambda: results.extend(producer.send_all([message])) or not isinstance(results[-1], Sent), 20, "an end"
        )
        assert isinstance(results[-1], Failed)
        if door == "mtls":
            doors.authority.sign("worker", password="key p4ssword")
        else:
            provider.answer = provider.give
        wait_for(lambda: isinstance(producer.send_all([message])[0], Sent), 30, "the producer to be let in again")


@pytest.mark.django_db
def test_doctor_names_the_setting_and_nothing_else_fails_because_of_it(
    enter: Enter, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter("scram")
    settings.KAFKA_SASL_PASSWORD = "wr0ng"
    monkeypatch.setattr(doctor, "new_admin", lambda: client.new_admin(bootstrap_timeout_ms=2_500))
    failed = [line for line in doctor.render(doctor.examine(), as_json=False).splitlines() if line.startswith("FAIL")]
    assert ["KAFKA_SASL_PASSWORD: the broker does not let ops in" in line for line in failed if " broker " in line] == [
        True
    ]
    assert not any("topics" in line for line in failed)
