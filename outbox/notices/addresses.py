"""Addresses of notices: sealed in the database or read from a file, looked at and sent to by a process of its own."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from config.environment.env import secret_in
from config.letters import Refusal
from config.processes.worker import awaited_at_the_end
from outbox.notices.services import INCIDENTS, WITHOUT_KEY

FILE = "file:"
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LONGEST_ADDRESS = 2000
SENDER_PROCESS = Path(__file__).with_name("sender_process.py")
STARTING = 30.0  # seconds until it has read its libraries, on a busy machine
KEPT = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
        "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")  # fmt: skip


# -- The secret ----------------------------------------------------------------------------------------------
def seal(address: str) -> str:
    """As the database keeps it: a name of a file as it is, anything else encrypted with SECRET_KEY."""
    return address if address.startswith(FILE) else _keys().encrypt(address.encode()).decode()


def unseal(stored: str) -> str:
    """The URL. Raises Refusal with a sentence that repeats nothing of it."""
    if stored.startswith(FILE):
        return _content(stored.removeprefix(FILE))
    try:
        return _keys().decrypt(stored.encode()).decode()
    except InvalidToken:
        raise Refusal("its address was sealed with another SECRET_KEY: enter it again") from None


def _content(name: str) -> str:
    if not settings.NOTIFY_SECRETS_DIR:
        raise Refusal("NOTIFY_SECRETS_DIR names no directory of secrets")
    if not FILE_NAME.fullmatch(name):
        raise Refusal("a secret is named by letters, digits and ._- only")
    try:
        text = secret_in(Path(settings.NOTIFY_SECRETS_DIR) / name)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise Refusal(f"the secret {name} cannot be read: {why}") from None
    if not text:
        raise Refusal(f"the secret {name} is empty")
    return text


def _keys() -> MultiFernet:
    given = [str(key) for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)]
    digests = [hashlib.sha256(b"spillway.notices " + key.encode()).digest() for key in given]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(digest)) for digest in digests])


# -- The process that looks and sends ------------------------------------------------------------------------
@dataclass(frozen=True)
class NoticeOutcome:
    """The outcome of one try. `unsure`: it may have arrived, and nobody said so."""

    ok: bool
    unsure: bool = False
    error: str = ""


@dataclass(frozen=True)
class Words:
    """What a notice says; `kind` is a type of apprise's: info, success, warning, failure.

    At services that keep incidents `key` is the one it is about, and `over` ends that.
    """

    title: str
    body: str
    kind: str = "info"
    key: str = ""
    over: bool = False


def look_at(address: str) -> str:
    """What may be shown of a URL: service and host. Raises Refusal when nothing may be sent there."""
    with SenderProcess(address, only_look=True) as sender_process:
        return sender_process.ready()


def send(address: str, about_to: Callable[[bool], Words | None]) -> NoticeOutcome | None:
    """Send once. `about_to` is called when all is ready, with whether the service keeps incidents, and says what to send.

    When it has nothing, nothing was sent, and None is returned.
    """
    try:
        with SenderProcess(address) as sender_process:
            sender_process.ready()
            words = about_to(sender_process.keeps_incidents)
            return sender_process.go(words) if words else None
    except Refusal as refusal:
        return NoticeOutcome(ok=False, error=str(refusal))


class SenderProcess:
    """The program `sender_process.py` and one order; leaving the `with` block ends it, whatever it does."""

    def __init__(self, address: str, *, only_look: bool = False) -> None:
        self.seconds = settings.NOTIFY_TIMEOUT_SECONDS
        self.keeps_incidents = False  # known when it is ready
        self.order = {
            "url": address, "schemas": settings.NOTIFY_SCHEMAS, "allowed": settings.NOTIFY_ALLOWED_HOSTS,
            "connect": min(5.0, self.seconds), "read": self.seconds, "seconds": STARTING + self.seconds,
            "only_look": only_look, "incidents": INCIDENTS, "without_key": WITHOUT_KEY,
        }  # fmt: skip
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-B", str(SENDER_PROCESS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env={"PATH": os.defpath, **environment}, cwd="/",
            start_new_session=True,  # Ctrl-C is for us: what is on its way ends
        )  # fmt: skip
        self._read = b""

    def __enter__(self) -> SenderProcess:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.process.kill()
        self.process.communicate()

    def ready(self) -> str:
        """Give it the order; what may be shown of the address when it would send. Raises Refusal when it would not."""
        answer = self._say(json.dumps(self.order), STARTING) or {"fault": "the program that sends did not start"}
        if "fault" in answer:
            raise Refusal(str(answer["fault"]))
        self.keeps_incidents = bool(answer["keeps_incidents"])
        return str(answer["ready"])

    def go(self, words: Words) -> NoticeOutcome:
        """Let it send, for NOTIFY_TIMEOUT_SECONDS at the longest."""
        if self.process.poll() is not None:  # we were stopped for long, and it does not wait for ever
            return NoticeOutcome(ok=False, error="the program that sends had ended before it was told what")
        with awaited_at_the_end(self.seconds):
            answer = self._say(json.dumps(asdict(words)), self.seconds)
        if answer is None:
            return NoticeOutcome(ok=False, unsure=True, error=f"no answer within {self.seconds:g} s")
        return NoticeOutcome(bool(answer["sent"]), bool(answer["unsure"]), str(answer["fault"]))

    def _say(self, line: str, seconds: float) -> dict[str, object] | None:
        """Its answer to a line; None when none came in time."""
        deadline = time.monotonic() + seconds
        stdin, stdout = self.process.stdin, self.process.stdout
        if stdin is None or stdout is None:
            return None
        try:
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        except BrokenPipeError:
            return None
        output = stdout.fileno()
        while b"\n" not in self._read:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([output], [], [], left)[0]:
                return None
            if not (more := os.read(output, 65536)):
                return None
            self._read += more
        answer, _, self._read = self._read.partition(b"\n")
        result: dict[str, object] = json.loads(answer)
        return result
