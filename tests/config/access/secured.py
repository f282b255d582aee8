"""Apache Kafka with listeners that ask who we are: by certificate (MTLS), by token (OAUTH), by password (SCRAM)."""

from __future__ import annotations

from pathlib import Path

from tests.config.access.provider import AUDIENCE, ISSUER
from tests.crash.platform import free_port
from tests.services.kafka import Kafka

USER, PASSWORD = "ops", "p4ssword of ops"
# Of a name that stands twice the last value counts.
LISTENERS = """\
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},MTLS://127.0.0.1:{mtls},OAUTH://127.0.0.1:{oauth},SCRAM://127.0.0.1:{scram}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},MTLS://127.0.0.1:{mtls},OAUTH://127.0.0.1:{oauth},SCRAM://127.0.0.1:{scram}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,MTLS:SSL,OAUTH:SASL_SSL,SCRAM:SASL_SSL
inter.broker.listener.name=PLAINTEXT
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={truststore}
listener.name.mtls.ssl.client.auth=required
listener.name.scram.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.scram.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.oauth.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
listener.name.oauth.oauthbearer.sasl.server.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler
listener.name.oauth.oauthbearer.sasl.oauthbearer.jwks.endpoint.url={jwks}
listener.name.oauth.oauthbearer.sasl.oauthbearer.expected.audience={audience}
listener.name.oauth.oauthbearer.sasl.oauthbearer.expected.issuer={issuer}
listener.name.oauth.connections.max.reauth.ms={reauth}
"""


class SecuredKafka(Kafka):
    """A broker of its own: `keystore` is a certificate and its key in one file, `jwks` the provider's public key."""

    users = (f"SCRAM-SHA-512=[name={USER},password={PASSWORD}]",)

    def __init__(self, root: Path, keystore: Path, truststore: str, jwks: Path, reauth_ms: int = 60_000) -> None:
        super().__init__(root)
        self.first_port, self.first_controller_port = free_port(), free_port()
        self.ports = {name: free_port() for name in ("mtls", "oauth", "scram")}
        self.places = {"keystore": keystore, "truststore": truststore, "jwks": jwks.as_uri(), "reauth": reauth_ms}

    def configure(self, data: Path) -> str:
        path = super().configure(data)
        known = {"port": self.port, "controller": self.controller_port, "audience": AUDIENCE, "issuer": ISSUER}
        with Path(path).open("a") as properties:
            properties.write(LISTENERS.format(**known, **self.ports, **self.places))
        return path

    def java(self, *options: str) -> list[str]:
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={self.places['jwks']}"
        return super().java(allowed, *options)

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"
