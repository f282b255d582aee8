"""A receiver of notices on this machine: it keeps what it was sent, and can refuse, hang or send elsewhere."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "3ccdd113474722377935511fc85d3dd4"


class Receiver(ThreadingHTTPServer):
    """Answers 200, or what `answers` says next: a status, or `hang`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[dict[str, Any]] = []
        self.answers: list[int | str] = []
        self.answers_after = 0.0  # seconds
        self.goes_on = threading.Event()  # what hangs
        self.hanging = threading.Event()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    @property
    def plain(self) -> str:
        """An address of a webhook that takes JSON."""
        return f"json://{self.place}/hook-of-ours"

    @property
    def slack_shaped(self) -> str:
        """An incoming webhook as Slack's, on a host of one's own."""
        return f"mmost://{self.place}/{TOKEN}"

    @property
    def titles(self) -> list[str]:
        return [str(body.get("title", body.get("text", ""))).partition("\r\n")[0] for body in self.bodies]

    def handle_error(self, request: object, client_address: object) -> None:
        """Who was cut off is no news."""


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.bodies.append({"path": self.path, **json.loads(body)})
        time.sleep(self.server.answers_after)
        answer = self.server.answers.pop(0) if self.server.answers else 200
        if answer == "hang":
            self.server.hanging.set()
            self.server.goes_on.wait(60)
            answer = 200
        self.send_response(int(answer))
        if answer == 302:
            self.send_header("Location", f"http://{self.server.place}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        self.server.bodies.append({"path": self.path})
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def receiving() -> Iterator[Receiver]:
    server = Receiver()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.goes_on.set()
        server.shutdown()
        server.server_close()
