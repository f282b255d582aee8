"""A provider of tokens (OAuth 2.0, client credentials) that can be told to refuse, to lie, or to be slow."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT, SECRET = "spillway", "s3cret/ of:the client"
ISSUER, AUDIENCE = "http://issuer.test", "kafka"

Answer = tuple[int, bytes]


class Provider:
    """`answer` may be replaced; `asked` are the forms that came. Leaving the `with` block ends it."""

    def __init__(self, life: float = 90.0, tls: ssl.SSLContext | None = None) -> None:
        self.life = life
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.asked: list[dict[str, str]] = []
        self.answer: Callable[[dict[str, str]], Answer] = self.give
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.server.server_address[1]}/token/"

    def __enter__(self) -> Provider:
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def give(self, form: dict[str, str]) -> Answer:
        """What a provider should do."""
        if (form["client"], form["secret"]) != (CLIENT, SECRET):
            return 401, b'{"error": "invalid_client", "error_description": "s3cret was wrong"}'
        return 200, json.dumps({"access_token": self.token(), "expires_in": self.life}).encode()

    def token(self, life: float | None = None, **claims: object) -> str:
        now = time.time()
        life = self.life if life is None else life
        begin = min(now, now + life) - 1
        known = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": CLIENT,
            "iat": int(begin),
            "exp": int(now + life),
            "jti": str(uuid.uuid4()),
        }
        parts = [{"alg": "RS256", "kid": "1", "typ": "JWT"}, {**known, **claims}]
        signed = ".".join(url64(json.dumps(part).encode()) for part in parts)
        signature = self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{url64(signature)}"

    @property
    def jwks(self) -> str:
        """The public key, as brokers read it."""
        numbers = self.key.public_key().public_numbers()
        n, e = (url64(number.to_bytes((number.bit_length() + 7) // 8, "big")) for number in (numbers.n, numbers.e))
        return json.dumps({"keys": [{"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": n, "e": e}]})

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode().split(":")
                form = {name: values[0] for name, values in parse_qs(body).items()}
                form |= zip(("client", "secret"), map(unquote, login), strict=True)
                provider.asked.append(form)
                status, content = provider.answer(form)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", content.decode())
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler


def url64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
