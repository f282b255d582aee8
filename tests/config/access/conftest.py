"""A broker with locked doors, once for all tests here, and settings that open each of them."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from config.kafka import client
from tests.config.access.authority import Authority
from tests.config.access.provider import CLIENT, SECRET, Provider
from tests.config.access.secured import PASSWORD, USER, SecuredKafka
from tests.services.kafka import Kafka


class Doors(NamedTuple):
    """What the tests share: who signs, who gives tokens, and the broker that believes both."""

    authority: Authority
    provider: Provider
    kafka: SecuredKafka


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def doors(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doors]:
    if not os.environ.get(Kafka.variable):
        pytest.skip("TEST_KAFKA_SERVERS names no Apache Kafka")
    if not shutil.which("java"):
        pytest.skip("Java is not installed: there is no broker with doors of its own")
    folder = tmp_path_factory.mktemp("doors")
    keystore, jwks = folder / "broker.both", folder / "jwks.json"
    keystore.write_bytes(b"".join(Path(file).read_bytes() for file in reversed(authority.sign("broker"))))
    with Provider() as provider:
        jwks.write_text(provider.jwks)
        kafka = SecuredKafka(folder / "services", keystore, authority.file, jwks)
        kafka.start()
        try:
            yield Doors(authority, provider, kafka)
        finally:
            kafka.stop()


@pytest.fixture
def provider(doors: Doors) -> Iterator[Provider]:
    """The one whose key the broker knows; it behaves again after each test."""
    yield doors.provider
    doors.provider.answer, doors.provider.life = doors.provider.give, 90.0
    doors.provider.asked.clear()


@pytest.fixture
def enter(doors: Doors, settings: Any) -> Callable[[str], None]:
    """Point the settings at a listener, with what it asks for."""

    def through(door: str) -> None:
        settings.KAFKA_BOOTSTRAP_SERVERS = [doors.kafka.at(door)]
        settings.KAFKA_SSL_CAFILE = doors.authority.file
        settings.KAFKA_TOPIC_PREFIX = f"t{uuid.uuid4().hex[:8]}."
        if door == "mtls":
            settings.KAFKA_SECURITY_PROTOCOL = "SSL"
            files = doors.authority.sign("worker", password="key p4ssword")
            settings.KAFKA_SSL_CERTFILE, settings.KAFKA_SSL_KEYFILE = files
            settings.KAFKA_SSL_KEY_PASSWORD = "key p4ssword"
            return
        settings.KAFKA_SECURITY_PROTOCOL = "SASL_SSL"
        if door == "scram":
            settings.KAFKA_SASL_MECHANISM = "SCRAM-SHA-512"
            settings.KAFKA_SASL_USERNAME, settings.KAFKA_SASL_PASSWORD = USER, PASSWORD
        else:
            settings.KAFKA_SASL_MECHANISM = "OAUTHBEARER"
            settings.KAFKA_OAUTH_TOKEN_URL = f"{doors.provider.url}?{uuid.uuid4()}"  # no token of another test
            settings.KAFKA_OAUTH_CLIENT_ID, settings.KAFKA_OAUTH_CLIENT_SECRET = CLIENT, SECRET

    return through


@pytest.fixture
def knock() -> Callable[[], str]:
    """Open a client, briefly; returns why it was not let in, or nothing."""

    def once() -> str:
        try:
            with closing(client.new_admin(bootstrap_timeout_ms=2_500)) as admin:
                admin.list_topics()
        except client.KafkaError as error:
            return client.in_one_line(error)
        return ""

    return once
