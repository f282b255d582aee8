"""python -m tests.processes.web POINT DEED options …: gunicorn, to which something happens at one point; and its callers.

DEED is `kill` (with its parent) or `freeze` (the process that answers, which says its number).
POINTS are those of a keyed action outside the database: its key is claimed, a half or all of it is in Kafka; and of one
inside: its messages are in the transaction, or that is committed and nobody has the answer.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Any, NamedTuple

from tests.crash.platform import free_port
from tests.crash.wire import wait_for
from tests.processes.saboteur import after

POINTS = {
    "claimed": "outbox.api.idempotency._claim",
    "produced": "config.kafka.producer.Producer.send_all",
    "stored": "outbox.intake.handler.Intake.store",
    "committed": "outbox.api.idempotency._attempt",
}
HALF = "half produced"
FROZEN = "frozen: "  # and the process
# Plain HTTP, as behind a proxy that ends TLS.
PLAIN = {"SECURE_SSL_REDIRECT": "0", "ALLOWED_HOSTS": "127.0.0.1"}


class Reply(NamedTuple):
    """What a request got; status 0: the connection ended before an answer."""

    status: int
    body: dict[str, Any]


class Site:
    """A web server on a port of its own, unless one is given; `program` is what Python is to run for it."""

    def __init__(self, point: str = "", action: str = "kill", port: int = 0) -> None:
        self.port = port or free_port()
        start = ["-m", "tests.processes.web", point, action] if point else ["-m", "gunicorn", "config.wsgi"]
        options = ["--bind", f"127.0.0.1:{self.port}", "--workers", "1", "--threads", "4", "--no-control-socket"]
        # By default gunicorn replaces a process that was frozen for half a minute, which a busy machine needs.
        self.program = [*start, *options, "--timeout", "300"]

    def wait(self) -> None:
        """Until it answers."""
        wait_for(lambda: self.get("/healthz").status == 200, 60, "the web server to answer")

    def get(self, path: str) -> Reply:
        return _ask(urllib.request.Request(f"http://127.0.0.1:{self.port}{path}"))

    def post(self, path: str, body: Any, token: str, key: str) -> Reply:
        headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": key, "Content-Type": "application/json"}
        where = f"http://127.0.0.1:{self.port}{path}"
        return _ask(urllib.request.Request(where, json.dumps(body).encode(), headers, method="POST"))


def _ask(request: urllib.request.Request) -> Reply:
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (http only)
            return Reply(answer.status, _json(answer.read()))
    except urllib.error.HTTPError as error:
        return Reply(error.code, _json(error.read()))
    except (OSError, HTTPException):
        return Reply(0, {})


def _json(text: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (ValueError, TypeError):
        return {}


def main() -> None:
    point, named, *options = sys.argv[1:]
    action = {"kill": kill_server, "freeze": freeze_server}[named]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django import setup

    setup()
    if point == HALF:
        send_half(action)
    else:
        after(POINTS[point], action)
    from gunicorn.app.wsgiapp import run

    sys.argv = ["gunicorn", "config.wsgi", *options]
    run()


def send_half(action: Callable[[], None]) -> None:
    """The first half of a bunch is acknowledged when the action is done."""
    from config.kafka.producer import Outgoing, Producer

    original = Producer.send_all

    def halved(self: Producer, messages: Sequence[Outgoing], until: float) -> Any:
        original(self, messages[: len(messages) // 2], until)
        action()

    Producer.send_all = halved  # type: ignore[method-assign]


def kill_server() -> None:
    """The parent first, which would start another."""
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def freeze_server() -> None:
    print(f"{FROZEN}{os.getpid()}", flush=True)
    # To this thread: one that goes to the process may be taken by another, and this one would run on for a while.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


if __name__ == "__main__":
    main()
