"""Services that keep incidents, at the wire behind TLS: a proxy on this machine ends each CONNECT itself, as any of their hosts."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

ADDRESSES = {
    "events.pagerduty.com": "pagerduty://a-routing-key-of-ours@an-api-key",
    "api.opsgenie.com": "opsgenie://0f1e2d3c-aaaa-bbbb-cccc-000000000001",
    "alert.victorops.com": "splunk://route@0f1e2d3c-aaaa-bbbb-cccc-000000000002",
    "api.incident.io": "incidentio://01GW2G3V0S59R238FAHPDS1R66/a-token-of-ours",
    "api.ilert.com": "ilert://il1api0123456789abcdef",
    "connect.signl4.com": "signl4://a-team-secret",
}
OTHER_HOSTS = ("uptime.betterstack.com", "hooks.slack.com")


@dataclass
class Event:
    """One request as its service understands it."""

    host: str
    key: str
    ends: bool
    text: str


@dataclass
class Services:
    """What they were told, which incidents they keep open, and what they answer."""

    place: str = ""
    events: list[Event] = field(default_factory=list)
    answers: list[tuple[int, dict[str, Any]]] = field(default_factory=list)  # the next ones, before what is usual
    requests: int = 0

    def open(self, host: str) -> list[str]:
        """Keys of the incidents that stand open, as often as one was opened."""
        kept: list[str] = []
        for event in self.events:
            if event.host != host:
                continue
            if event.ends:
                kept = [key for key in kept if key != event.key]
            elif event.key not in kept or not event.key:
                kept.append(event.key)
        return kept


def understood(host: str, target: str, body: dict[str, Any]) -> Event:
    """As each of them documents it."""
    text = json.dumps(body)
    if host == "events.pagerduty.com":
        return Event(host, body.get("dedup_key", ""), body["event_action"] == "resolve", text)
    if host == "api.opsgenie.com":
        url = urlsplit(target)
        if url.path == "/v2/alerts":
            return Event(host, body.get("alias", ""), False, text)
        assert parse_qs(url.query) == {"identifierType": ["alias"]}
        _, _, _, alias, verb = url.path.split("/")
        assert verb == "close"
        return Event(host, unquote(alias), True, text)
    if host == "alert.victorops.com":
        return Event(host, body["entity_id"], body["message_type"] == "RECOVERY", text)
    if host == "api.incident.io":
        return Event(host, body["deduplication_key"], body["status"] == "resolved", text)
    if host == "api.ilert.com":
        return Event(host, body["alertKey"], body["eventType"] == "RESOLVE", text)
    if host == "connect.signl4.com":
        return Event(host, body.get("X-S4-ExternalID", ""), body.get("X-S4-Status") == "resolved", text)
    return Event(host, "", False, text)


class Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ProxyServer
    host = ""

    def do_CONNECT(self) -> None:
        self.host = self.path.partition(":")[0]
        self.send_response(200)
        self.end_headers()
        self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
        self.rfile = self.connection.makefile("rb")
        self.wfile = self.connection.makefile("wb", buffering=0)
        self.close_connection = False

    def do_POST(self) -> None:
        services = self.server.services
        services.requests += 1
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        usual = (202, {"status": "success", "result": "success", "requestId": "r-1"})
        if self.host in ("alert.victorops.com", "connect.signl4.com", "hooks.slack.com"):
            usual = (200, usual[1])
        status, said = services.answers.pop(0) if services.answers else usual
        if status < 300 and said.get("result") == "success":
            services.events.append(understood(self.host, self.path, body))
        text = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments: object) -> None:
        pass


class ProxyServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, tls: ssl.SSLContext, services: Services) -> None:
        super().__init__(("127.0.0.1", 0), Proxy)
        self.tls, self.services = tls, services
        services.place = f"127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Who does not trust the certificate is no news."""


@contextmanager
def incident_services(directory: Path) -> Iterator[Services]:
    """They run; `directory` has `ca.pem`, which signs for their hosts."""
    services = Services()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(_certificates(directory))
    server = ProxyServer(tls, services)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield services
    finally:
        server.shutdown()
        server.server_close()


def _certificates(directory: Path) -> Path:
    """`ca.pem`, and the file of the servers: their key, and a certificate for all hosts that it has signed."""
    authority, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("A test CA", "services")]
    now = datetime.now(UTC)

    def certificate(subject: x509.Name, public: Any, extension: x509.ExtensionType, *, critical: bool) -> bytes:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(names[0]).public_key(public)
        builder = builder.serial_number(x509.random_serial_number()).add_extension(extension, critical=critical)
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        signed = builder.sign(authority, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM)

    hosts = x509.SubjectAlternativeName([x509.DNSName(host) for host in (*ADDRESSES, *OTHER_HOSTS)])
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    (directory / "ca.pem").write_bytes(certificate(names[0], authority.public_key(), constraints, critical=True))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    servers = directory / "servers.pem"
    servers.write_bytes(secret + certificate(names[1], key.public_key(), hosts, critical=False))
    return servers
