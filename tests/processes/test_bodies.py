"""Bodies without a Content-Length, on the wire: read by gunicorn wherever a body is taken, refused by a server that reads none."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from select import select
from typing import NamedTuple

import pytest
from django.db import connection

from tests.crash.platform import free_port
from tests.crash.wire import wait_for
from tests.notifications.signing import SECRETS, event, generic
from tests.prepared import PythonProcess, run_python
from tests.processes.web import PLAIN, Site
from tests.tree import ROOT

pytestmark = pytest.mark.skipif(connection.vendor != "sqlite", reason="it brings its own database: once is enough")
ORDER = json.dumps({"user_email": "ada@example.com", "total_amount": 1999, "currency": "EUR"}).encode()
LIMIT = 4096
BEYOND = 2_621_441  # bytes, a byte more than any entry takes
CHUNKED = "Transfer-Encoding: chunked"
Pieces = Sequence[bytes]


class Reply(NamedTuple):
    status: int
    head: str
    body: str


class Wire:
    """A web server, asked with bytes as they stand on the wire."""

    def __init__(self, port: int, token: str = "", sender: str = "") -> None:
        self.port, self.token, self.sender = port, token, sender

    def ask(self, line: str, headers: Sequence[str], pieces: Pieces = (), version: str = "1.1") -> Reply:
        """The answer to a request whose body is sent in these pieces, each by itself."""
        head = [f"{line} HTTP/{version}", "Host: 127.0.0.1", "Connection: close", *headers, "", ""]
        with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall("\r\n".join(head).encode())
            for piece in pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        above, _, body = answer.partition("\r\n\r\n")
        if CHUNKED.lower() in above.lower():
            body = re.sub(r"(?:\A|\r\n)[0-9a-f]+\r\n", "", body).strip()
        return Reply(int(above.split()[1]), above, body)

    def order(self, framing: Sequence[str], pieces: Pieces, version: str = "1.1") -> Reply:
        """`POST /v1/orders`, each time under another key."""
        key = f"Idempotency-Key: {os.urandom(8).hex()}"
        headers = [f"Authorization: Bearer {self.token}", "Content-Type: application/json", key, *framing]
        return self.ask("POST /v1/orders", headers, pieces, version)


def chunks(*parts: bytes, trailers: bytes = b"") -> list[bytes]:
    """Each part as a chunk, the first one with an extension."""
    marks = [b";part=1" if number == 0 else b"" for number in range(len(parts))]
    whole = [b"%x%s\r\n%s\r\n" % (len(part), mark, part) for part, mark in zip(parts, marks, strict=True)]
    return [*whole, b"0\r\n", trailers + b"\r\n"]


def length(body: bytes) -> str:
    return f"Content-Length: {len(body)}"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    own = {
        "DATABASE_URL": f"sqlite:///{tmp_path_factory.mktemp('bodies')}/db.sqlite3", "SECRET_KEY": "of this test", "API_MAX_BYTES": str(LIMIT),
        "EMAIL_WEBHOOK_SECRETS": f"generic:{SECRETS['generic'][0]}", "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "DJANGO_SUPERUSER_PASSWORD": "right", **PLAIN,
    }  # fmt: skip
    given = {**os.environ, **own}
    for command in (["migrate"], ["createsuperuser", "--noinput", "--username=ada", "--email=ada@example.com"]):
        assert run_python("manage.py", *command, env=given).returncode == 0
    return given


@pytest.fixture(scope="module")
def web(environment: dict[str, str]) -> Iterator[Wire]:
    tokens = [
        run_python("manage.py", "create_token", name, *more, env=environment).stdout.split()[-1]
        for name, more in (("shop", ()), ("sender", ("--customer=C-7",)))
    ]
    site = Site()
    process = PythonProcess([sys.executable, *site.program], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)
    try:
        site.wait()
        yield Wire(site.port, *tokens)
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize(
    "pieces",
    [
        chunks(ORDER),
        chunks(*(ORDER[at : at + 1] for at in range(len(ORDER)))),
        chunks(ORDER[:20], ORDER[20:], trailers=b"X-Checked: yes\r\n"),
        [piece[at : at + 3] for piece in chunks(ORDER[:20], ORDER[20:]) for at in range(0, len(piece), 3)],
        chunks(ORDER[:-1], b" " * (LIMIT - len(ORDER)), ORDER[-1:]),
    ],
    ids=["one", "of a byte", "trailers", "in pieces", "as long as allowed"],
)
def test_a_chunked_order_is_made_as_any_other(web: Wire, pieces: Pieces) -> None:
    reply = web.order([CHUNKED], pieces)
    assert (reply.status, json.loads(reply.body)["user_email"]) == (201, "ada@example.com")


@pytest.mark.parametrize("size", [LIMIT + 1, 2_000_000, BEYOND, 4_000_000])
def test_a_chunked_body_beyond_the_limit_is_too_large(web: Wire, size: int) -> None:
    reply = web.order([CHUNKED], chunks(b" " * size))
    assert (reply.status, json.loads(reply.body)["code"]) == (413, "too_large")
    assert "application/problem+json" in reply.head


@pytest.mark.parametrize(
    ("path", "size"), [("/v1/orders", 2_000_000), ("/webhooks/email/generic", 1_000_001), ("/admin/login/", BEYOND)]
)
@pytest.mark.parametrize("framing", [CHUNKED, ""], ids=["chunked", "length"])
def test_nobody_is_cut_off_while_a_body_is_on_its_way_that_is_refused(
    web: Wire, path: str, size: int, framing: str
) -> None:
    """A proxy that still sends when the connection ends has no answer to give: nginx says 502."""
    body = b" " * size
    head = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Connection: close",
        f"Authorization: Bearer {web.token}",
        "Content-Type: application/json",
    ]
    first, rest = (body[:9], body[9:]) if not framing else (b"9\r\n%s\r\n" % body[:9], b"".join(chunks(body[9:])))
    with socket.create_connection(("127.0.0.1", web.port), timeout=30) as connection:
        connection.sendall("\r\n".join([*head, framing or length(body), "", ""]).encode() + first)
        assert not select([connection], [], [], 1.0)[0], "it answers before it has all of it"
        connection.sendall(rest)
        answer = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    assert int(answer.split()[1]) in (400, 401, 403, 413)


@pytest.mark.parametrize("framing", [[CHUNKED], ["Content-Length: 0"], []])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_an_empty_body_stays_one(web: Wire, framing: list[str], version: str) -> None:
    faulty = framing == [CHUNKED] and version == "1.0"  # HTTP/1.0 has no chunks: gunicorn refuses them
    assert web.order(framing, chunks() if framing == [CHUNKED] else (), version).status == (400 if faulty else 422)


@pytest.mark.parametrize(
    ("framing", "pieces"),
    [
        ([CHUNKED, length(ORDER)], chunks(ORDER)),
        ([CHUNKED], [b"zz\r\n", ORDER, b"\r\n0\r\n\r\n"]),
        ([CHUNKED], [b"%x\r\n" % len(ORDER), ORDER[:20]]),
        ([CHUNKED], [b"%x\r\n" % len(ORDER), ORDER, b"\r\n"]),
    ],
    ids=["both", "no number", "cut off", "no end"],
)
def test_what_has_two_lengths_or_no_end_is_no_order(web: Wire, framing: list[str], pieces: Pieces) -> None:
    assert web.order(framing, pieces).status == 400


def test_each_entry_reads_it(web: Wire) -> None:
    login = web.ask("GET /admin/login/", [])
    field = re.findall(r'name="csrfmiddlewaretoken" value="([^"]+)"', login.body)[0]
    cookie = re.findall(r"csrftoken=[^;]+", login.head)[0]
    signed, signature = generic([event("delivered")])
    key = f"Idempotency-Key: {os.urandom(8).hex()}"
    json_of = ["Content-Type: application/json"]
    form = ["Content-Type: application/x-www-form-urlencoded", f"Cookie: {cookie}"]
    boundary = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    fields = {"csrfmiddlewaretoken": field, "username": "ada", "password": "right"}
    parts = b"".join(boundary % (name.encode(), value.encode()) for name, value in fields.items()) + b"--x--\r\n"
    entries = {
        "/v1/transactional": ([*json_of, f"Authorization: Bearer {web.sender}", key], b'{"recipients": [], "message": {}}', 422),
        "/webhooks/email/generic": ([*json_of, *(f"{name}: {value}" for name, value in signature.items())], signed, 204),
        "/admin/login/": (form, "&".join(f"{name}={value}" for name, value in fields.items()).encode(), 302),
        "/admin/login/?again": (["Content-Type: multipart/form-data; boundary=x", f"Cookie: {cookie}"], parts, 302),
    }  # fmt: skip
    for path, (headers, body, status) in entries.items():
        replies = [
            web.ask(f"POST {path}", [*headers, CHUNKED], chunks(body[:9], body[9:])),
            web.ask(f"POST {path}", [*headers, length(body)], [body]),
        ]
        assert [reply.status for reply in replies] == [status, status], path
        assert replies[0].body == replies[1].body
        empty = web.ask(f"POST {path}", [*headers, CHUNKED], chunks())
        assert (empty.status, empty.body) != (status, replies[0].body), path
        if not path.startswith("/v1/"):
            assert web.ask(f"POST {path}", [*headers, CHUNKED], chunks(b" " * BEYOND)).status == 413


def test_a_server_that_reads_no_chunks_says_so(environment: dict[str, str]) -> None:
    port = free_port()
    program = [sys.executable, "manage.py", "runserver", "--noreload", f"127.0.0.1:{port}"]
    process = PythonProcess(program, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wire = Wire(port)
        wait_for(lambda: _answers(wire), 60, "the server to answer")
        reply = wire.order([CHUNKED], chunks(ORDER))
        assert (reply.status, json.loads(reply.body)["code"]) == (411, "length_required")
        assert wire.ask("POST /webhooks/email/generic", [CHUNKED], chunks(b"x")).status == 411
    finally:
        process.terminate()
        process.wait(30)


def _answers(wire: Wire) -> bool:
    try:
        return wire.ask("GET /healthz", []).status == 200
    except OSError:
        return False
