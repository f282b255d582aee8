"""A provider with an HTTP API, as Resend, Postmark and Brevo speak, that misbehaves on request.

`python -m tests.notifications.provider --port 8025 --journal mails.jsonl --honours-keys --trouble 0.05`
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import threading
import time
from collections import Counter, deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

TROUBLES = ["429:0.2", "500", "503", "drop_before", "drop_after", "hang_after:2"]
REPLIES = {
    "/emails": lambda name: {"id": name},
    "/email": lambda name: {"ErrorCode": 0, "Message": "OK", "MessageID": name, "To": "", "SubmittedAt": ""},
    "/smtp/email": lambda name: {"messageId": name},
}


class Provider:
    """`script` is a queue of what happens to the next requests: a status (`429:2` with Retry-After), `drop_before`,
    `drop_after` (accepted, then silence), `hang_before:s`, `hang_after:s`, `slow:s`, `json:400:{...}`, or `ok`.
    `down` answers everything with 503 until it is taken back.
    """

    def __init__(
        self,
        port: int = 0,
        journal: Path | None = None,
        honours_keys: bool = False,
        trouble: float = 0.0,
        seed: int = 0,
    ) -> None:
        self.journal, self.honours_keys, self.trouble = journal, honours_keys, trouble
        self.random = random.Random(seed)
        self.script: deque[str] = deque()
        self.troubles = TROUBLES
        self.happened: Counter[str] = Counter()
        self.down = False
        self.requests: list[dict[str, Any]] = []
        self.accepted: list[dict[str, str]] = []
        self.keys: dict[str, tuple[str, str]] = {}
        self.lock = threading.Lock()
        self.server = Server(("127.0.0.1", port), type("Handler", (Handler,), {"provider": self}))
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Provider:
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def counts(self) -> Counter[str]:
        """How often each message of ours was accepted."""
        return Counter(mail["message_id"] for mail in self.accepted)

    def next(self) -> list[str]:
        with self.lock:
            if self.down:
                return ["503"]
            if self.script:
                what = self.script.popleft()
            else:
                what = self.random.choice(self.troubles) if self.random.random() < self.trouble else "ok"
            self.happened[what] += 1
        return what.split(":", 1)

    def accept(self, body: dict[str, Any], raw: bytes, key: str) -> tuple[int, str]:
        """Status and the name of the mail; a known key gets the first answer, or 409 with another body."""
        digest = hashlib.sha256(raw).hexdigest()
        with self.lock:
            if self.honours_keys and key in self.keys:
                name, first = self.keys[key]
                return (200, name) if first == digest else (409, name)
            name = f"mail-{len(self.accepted) + 1}"
            self.keys[key] = (name, digest)
            kept = {"message_id": our_id(body), "name": name, "key": key, "at": str(time.time())}
            self.accepted.append(kept)
            if self.journal:
                with self.journal.open("a") as file:
                    file.write(json.dumps(kept) + "\n")
        return 200, name


class Server(ThreadingHTTPServer):
    """Says nothing of clients that were killed at their request."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One request."""

    provider: Provider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/control":
            return self.control(json.loads(raw))
        # Mailgun's is a form; what it holds interests nobody here.
        body = json.loads(raw) if self.headers["Content-Type"].startswith("application/json") else {}
        key = self.headers.get("Idempotency-Key") or body.get("headers", {}).get("idempotencyKey", "")
        self.provider.requests.append({"body": body, "key": key, "path": self.path, "raw": raw})
        what, *more = self.provider.next()
        if what.isdigit() or what == "json":
            return self.refuse(what, *more)
        if what.endswith("_before"):
            time.sleep(float(more[0]) if more else 0)
            return self.drop()
        status, name = self.provider.accept(body, raw, key)
        if what in ("slow", "hang_after"):
            time.sleep(float(more[0]))
        if what.endswith("_after"):
            return self.drop()
        self.reply(status, REPLIES[self.path](name) if status == 200 else {"name": "invalid_idempotent_request"})

    def control(self, wanted: dict[str, Any]) -> None:
        """Change it from another process: {"down": true, "script": [...], "trouble": 0.1}."""
        self.provider.script.extend(wanted.pop("script", []))
        for name, value in wanted.items():
            setattr(self.provider, name, value)
        self.reply(200, {"accepted": len(self.provider.accepted)})

    def refuse(self, what: str, more: str = "") -> None:
        if what == "json":
            status, _, text = more.partition(":")
            return self.reply(int(status), json.loads(text))
        headers = {"Retry-After": more} if more else {}
        self.reply(int(what), {"name": "as_scripted", "message": "to somebody@example.com"}, headers)

    def reply(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": len(data), **(headers or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(data)

    def drop(self) -> None:
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: object) -> None:
        pass


def our_id(body: dict[str, Any]) -> str:
    """The message id in the metadata, wherever this provider keeps it."""
    headers = body.get("headers") or body.get("Headers") or {}
    if body.get("Metadata"):
        return str(body["Metadata"].get("message_id", ""))
    text = headers.get("X-Metadata") or headers.get("X-Mailin-custom") if isinstance(headers, dict) else ""
    return str(json.loads(text).get("message_id", "")) if text else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, default=8025)
    parser.add_argument("--journal", type=Path)
    parser.add_argument("--honours-keys", action="store_true")
    parser.add_argument("--trouble", type=float, default=0.0, help="share of requests that something happens to")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    provider = Provider(given.port, given.journal, given.honours_keys, given.trouble, given.seed)
    print(provider.url, flush=True)
    provider.server.serve_forever()


if __name__ == "__main__":
    main()
