"""Settings that cannot be meant together: `check` says so, and no client is started with them."""

from __future__ import annotations

import socket
import ssl
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.core import checks
from kafka.errors import KafkaConnectionError
from kafka.net.selector import NetworkSelector
from kafka.protocol.metadata import MetadataRequest

from config.kafka import access, client
from config.kafka.connection_internals import ExplainingManager
from tests.config.access.authority import Authority
from tests.config.access.provider import Provider

OAUTH = {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_MECHANISM": "OAUTHBEARER"}
WHOLE = {**OAUTH, **{f"KAFKA_OAUTH_{name}": "https://id.test" for name in ("TOKEN_URL", "CLIENT_ID", "CLIENT_SECRET")}}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"KAFKA_SECURITY_PROTOCOL": "SASL_SSL"}, ["KAFKA_SASL_MECHANISM"]),
        ({"KAFKA_SASL_MECHANISM": "GSSAPI"}, ["KAFKA_SECURITY_PROTOCOL"]),
        (OAUTH, ["KAFKA_OAUTH_TOKEN_URL", "KAFKA_OAUTH_CLIENT_ID", "KAFKA_OAUTH_CLIENT_SECRET"]),
        (WHOLE, []),
        ({**OAUTH, "KAFKA_SASL_MECHANISM": "PLAIN"}, ["KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD"]),
        ({**OAUTH, "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512", "KAFKA_SASL_USERNAME": "u"}, ["KAFKA_SASL_PASSWORD"]),
        ({"KAFKA_SSL_CAFILE": "ca.pem"}, ["KAFKA_SECURITY_PROTOCOL"]),
        ({"KAFKA_SECURITY_PROTOCOL": "SSL", "KAFKA_SSL_KEYFILE": "key.pem"}, ["KAFKA_SSL_CERTFILE"]),
        ({"KAFKA_SECURITY_PROTOCOL": "SSL", "KAFKA_SSL_KEY_PASSWORD": "p"}, ["KAFKA_SSL_CERTFILE"]),
        (
            {"KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT", "KAFKA_SASL_MECHANISM": "AWS_MSK_IAM"},
            ["KAFKA_SECURITY_PROTOCOL"],
        ),
    ],
)
def test_a_misfit_names_the_setting_to_change(
    given: dict[str, str], named: list[str], settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "find_spec", lambda _name: True)
    for name, value in given.items():
        setattr(settings, name, value)
    errors = [error.msg for error in checks.run_checks() if error.id == "spillway.E003"]
    assert [error.partition(":")[0] for error in errors] == named
    if named:
        with pytest.raises(access.NotLetIn, match=named[0]):
            client.connection_options()


def test_a_certificate_has_its_key_beside_it_or_in_it(authority: Authority, settings: Any) -> None:
    settings.KAFKA_SECURITY_PROTOCOL = "SSL"
    settings.KAFKA_SSL_CERTFILE, key = authority.sign("lonely")
    assert [misfit.partition(":")[0] for misfit in access.misfits()] == ["KAFKA_SSL_KEYFILE"]
    certificate = Path(settings.KAFKA_SSL_CERTFILE)
    certificate.write_bytes(certificate.read_bytes() + Path(key).read_bytes())
    assert list(access.misfits()) == []
    assert access.fault_of_files() == ""


def test_a_secret_over_the_net_without_tls_is_a_warning(settings: Any) -> None:
    settings.KAFKA_OAUTH_TOKEN_URL = "http://127.0.0.1/token"
    assert not [found for found in checks.run_checks() if found.id == "spillway.W003"]
    settings.KAFKA_OAUTH_TOKEN_URL = "http://id.example.com/token"
    assert [found.level for found in checks.run_checks() if found.id == "spillway.W003"] == [checks.WARNING]


def test_a_broker_whose_certificate_has_expired_is_told_from_one_that_is_away(
    authority: Authority, settings: Any, knock: Callable[[], str]
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.sign("old", -timedelta(days=1)))
    with Provider(tls=tls) as server:  # any server with TLS will do
        settings.KAFKA_BOOTSTRAP_SERVERS = [server.url.split("/")[2]]
        settings.KAFKA_SECURITY_PROTOCOL, settings.KAFKA_SSL_CAFILE = "SSL", authority.file
        assert "KAFKA_BOOTSTRAP_SERVERS: the broker's certificate has expired" in knock()


def test_a_file_that_is_gone_fails_what_waits_for_the_connection_as_one_that_broke(
    authority: Authority, settings: Any
) -> None:
    """By the error itself, which is none of Kafka's, whoever sent the request would end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings.KAFKA_BOOTSTRAP_SERVERS = [f"127.0.0.1:{server.getsockname()[1]}"]
        settings.KAFKA_SECURITY_PROTOCOL, settings.KAFKA_SSL_CAFILE = "SSL", "/none.pem"
        net = NetworkSelector()
        manager = ExplainingManager(net, **client.connection_options())
        (node,) = manager.cluster.bootstrap_brokers()
        waiting = manager.get_connection(node.node_id).send_request(MetadataRequest())
        net.poll(timeout_ms=5_000, future=waiting)
        assert isinstance(waiting.exception, KafkaConnectionError)
        assert access.reason(waiting.exception).startswith("KAFKA_SSL_CAFILE: cannot read the file")
        manager.close()


class Session:
    """botocore's, where it is not installed."""

    region, credentials = "", None

    def get_config_variable(self, _name: str) -> str:
        return self.region

    def get_credentials(self) -> object:
        return self.credentials


def test_of_msk_the_package_the_region_and_the_credentials_are_told_apart(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.KAFKA_SECURITY_PROTOCOL, settings.KAFKA_SASL_MECHANISM = "SASL_SSL", "AWS_MSK_IAM"
    monkeypatch.setattr(access, "find_spec", lambda _name: None)
    assert "needs the package botocore (pip install 'spillway[aws]')" in next(access.misfits())
    for name in ("botocore", "botocore.exceptions", "botocore.session"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(Session=Session, BotoCoreError=OSError))
    assert access.reason(RuntimeError()).startswith("AWS_DEFAULT_REGION: is empty")
    monkeypatch.setattr(Session, "region", "eu-central-1")
    assert "botocore finds no credentials" in access.reason(RuntimeError())
    monkeypatch.setattr(Session, "credentials", object())
    refused = access.SaslAuthenticationFailedError("SaslAuthenticationFailedError: Access denied")
    assert access.reason(refused).startswith("KAFKA_SASL_MECHANISM=AWS_MSK_IAM: the broker refuses the credentials")
