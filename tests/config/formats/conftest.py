"""A schema registry in a thread, that answers as Confluent's does."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from config.formats import registry as module


class StandIn:
    """Schemas by id and by subject; `fails` answers everything with a status or bytes instead."""

    def __init__(self) -> None:
        self.by_id: dict[int, dict[str, Any]] = {}
        self.by_subject: dict[str, dict[str, Any]] = {}
        self.fails: int | bytes | None = None
        self.asked: list[str] = []
        self.logins: list[str | None] = []

    def answer(self, path: str) -> tuple[int, bytes]:
        self.asked.append(path)
        if isinstance(self.fails, bytes):
            return 200, self.fails
        if self.fails:
            return self.fails, b"{}"
        kind, _, rest = path.strip("/").partition("/")
        found = (
            self.by_id.get(int(rest.split("/")[1])) if kind == "schemas" else self.by_subject.get(rest.split("/")[0])
        )
        return (200, json.dumps(found).encode()) if found else (404, b'{"error_code": 40403}')


@pytest.fixture
def schemas(settings: Any) -> Iterator[StandIn]:
    stand_in = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stand_in.logins.append(self.headers.get("Authorization"))
            status, content = stand_in.answer(self.path)
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    settings.SCHEMA_REGISTRY_URL = f"http://127.0.0.1:{server.server_port}"
    module.registry.cache_clear()
    yield stand_in
    module.registry.cache_clear()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def framed() -> Callable[..., bytes]:
    return lambda body, number=1: struct.pack(">bI", 0, number) + body
