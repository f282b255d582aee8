"""An OpenID provider in a thread that can be told to lie, to forget somebody, or to be away."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

CLIENT, SECRET = "spillway", "s3cret-of-the-client-that-is-long-enough"
KEY, OTHER_KEY = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
Claims = dict[str, Any]


class LyingProvider:
    """`userinfo` and `id_token` are what it adds to what it says; None takes a claim away. Leaving the `with` block ends it."""

    def __init__(self) -> None:
        self.subject = "sub-of-anna"
        self.userinfo: Claims = {"name": "Anna Schmidt", "email": "a@example.com", "groups": ["ops-support"]}
        self.id_token: Claims = {}
        self.discovery: Claims = {}
        self.sign: Callable[[Claims], object] = signed
        self.fails: dict[str, int] = {}  # status by path
        self.gives_refresh_tokens = True
        self.gives_id_tokens = True  # with refreshed ones
        self.ended = False
        self.asked: list[str] = []
        self.authorized: list[str] = []  # headers of those who asked for tokens
        self.forms: list[dict[str, str]] = []
        self.began: dict[str, str] = {}  # what the browser brought along
        self.refresh_token = ""
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.issuer = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> LyingProvider:
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def let_in(self, location: str) -> str:
        """Where it sends the browser that came to `location`."""
        self.began = {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}
        return f"{urlsplit(self.began['redirect_uri']).path}?code=c0de&state={self.began['state']}"

    def answer(self, path: str, form: dict[str, str], authorization: str) -> tuple[int, object]:
        self.asked.append(path)
        if status := self.fails.get(path):
            return status, {"error": "server_error"}
        if path == "/token":
            self.authorized.append(authorization)
            basic = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")[2]
            return self._tokens({"client_secret": basic, **form})
        if path == "/me":
            here = {"sub": self.subject, **self.userinfo}
            return (200, without_none(here)) if authorization == "Bearer acc3ss" and not self.ended else (401, {})
        if path == "/out":
            return 200, b"<!DOCTYPE html><title>Out</title><h1>Logged out at the provider</h1>"
        if path == "/jwks":
            public = json.loads(RSAAlgorithm.to_jwk(KEY.public_key()))
            return 200, {"keys": [{**public, "kid": "1", "use": "sig", "alg": "RS256"}]}
        places = {f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in PLACES.items()}
        known = {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/jwks", **places, **self.discovery}
        return 200, without_none(known)

    def _tokens(self, form: dict[str, str]) -> tuple[int, object]:
        self.forms.append(form)
        if form.get("client_secret") != SECRET:
            return 401, {"error": "invalid_client"}
        refreshed = form["grant_type"] == "refresh_token"
        proof = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).decode()
        fits = form.get("refresh_token") == self.refresh_token if refreshed else (
            form["code"] == "c0de" and proof.rstrip("=") == self.began["code_challenge"]
        )  # fmt: skip
        if not fits or self.ended:
            return 400, {"error": "invalid_grant"}
        tokens = {"access_token": "acc3ss", "token_type": "Bearer"}
        if self.gives_refresh_tokens:
            self.refresh_token = tokens["refresh_token"] = f"refr3sh-{len(self.forms)}"  # good for once
        if not refreshed or self.gives_id_tokens:
            now = int(time.time())
            claims = {"iss": self.issuer, "aud": CLIENT, "sub": self.subject, "iat": now, "exp": now + 300}
            nonce = {} if refreshed else {"nonce": self.began["nonce"]}
            tokens["id_token"] = self.sign(without_none({**claims, **nonce, **self.id_token}))
        return 200, without_none(tokens)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                if self.path.startswith("/auth?"):  # whoever comes has logged in there before
                    back = provider.let_in(self.path)
                    return self.redirect(provider.began["redirect_uri"].partition("/oidc")[0] + back)
                form = {name: values[0] for name, values in parse_qs(body).items()}
                answer = provider.answer(urlsplit(self.path).path, form, self.headers.get("Authorization", ""))
                content = answer[1] if isinstance(answer[1], bytes) else json.dumps(answer[1]).encode()
                self.send_response(answer[0])
                if answer[0] == 302:
                    self.send_header("Location", "http://127.0.0.1:1/")
                if isinstance(answer[1], bytes):
                    self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_GET

            def redirect(self, there: str) -> None:
                self.send_response(302)
                self.send_header("Location", there)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Silent."""

        return Handler


PLACES = {"authorization": "auth", "token": "token", "userinfo": "me", "end_session": "out"}


def signed(claims: Claims, key: Any = KEY, algorithm: str = "RS256", key_id: str | None = "1") -> str:
    return jwt.encode(claims, key, algorithm, {"kid": key_id} if key_id else {})


def without_none(claims: Claims) -> Claims:
    return {name: value for name, value in claims.items() if value is not None}
