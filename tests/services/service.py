"""What every server has in common: a home directory, a port, a log, and install / start / ready / stop."""

import fcntl
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TextIO

from tests.services.process import Process

RESERVED: dict[int, TextIO] = {}  # what this process has chosen

USER = PASSWORD = DATABASE = "spillway"


class Unavailable(Exception):
    """This server cannot be had here; the text is the one line that says why."""


class Service:
    """Subclasses name themselves and say how they are installed, created, run and greeted."""

    name: str
    variable: str
    scheme = ""
    first_port: int
    needs: tuple[str, ...] = ()
    stop_signal = signal.SIGTERM
    patience = 90.0

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / self.name
        self.data = self.home / "data"
        self.log = self.home / f"{self.name}.log"
        self.process = Process(self.home / "process.json")
        self.container = self.home / "container"  # there while Docker runs this server

    def install(self) -> None:
        """Make the programs available, or raise Unavailable."""
        raise NotImplementedError

    def create(self, data: Path) -> None:
        """Fill a new data directory."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """The server itself, staying in the foreground."""
        raise NotImplementedError

    def greet(self, connection: socket.socket) -> bool:
        """Whether the server at the other end would now let a client work."""
        raise NotImplementedError

    @property
    def environment(self) -> dict[str, str]:
        return {}

    @property
    def port(self) -> int:
        return noted_port(self.home / "port", self.first_port)

    @property
    def address(self) -> str:
        where = f"127.0.0.1:{self.port}"
        return f"{self.scheme}://{USER}:{PASSWORD}@{where}/{DATABASE}" if self.scheme else where

    def start(self) -> None:
        """Idempotent: a server that is already up is left alone."""
        with locked(self.root / f"{self.name}.lock"):
            if self.running():
                return
            if self.process.pid is None:
                self.install()
                self.launch()
            self.wait()

    def launch(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        self.choose_ports()
        if not self.data.exists():
            # Renamed when complete: an interrupted creation is begun again, not mistaken for a database.
            fresh = self.home / "data.new"
            shutil.rmtree(fresh, ignore_errors=True)
            self.create(fresh)
            fresh.rename(self.data)
        self.log.write_bytes(b"")
        self.process.start(self.command(), self.log, self.environment)

    def choose_ports(self) -> None:
        choose_port(self.home / "port", self.first_port)

    def wait(self) -> None:
        deadline = time.monotonic() + self.patience
        while not self.ready():
            if self.process.pid is None:
                raise Unavailable(f"ended while starting\n{self.last_lines()}")
            if time.monotonic() > deadline:
                raise Unavailable(f"not ready after {self.patience:.0f} s\n{self.last_lines()}")
            time.sleep(0.1)

    def ready(self) -> bool:
        try:
            with closing(socket.create_connection(("127.0.0.1", self.port), timeout=2)) as connection:
                return self.greet(connection)
        except OSError:
            return False

    def running(self) -> bool:
        return (self.process.pid is not None or self.container.exists()) and self.ready()

    def stop(self) -> bool:
        if not self.home.exists():
            return False
        with locked(self.root / f"{self.name}.lock"):
            return self.process.stop(self.stop_signal, seconds=30)

    def wipe(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)

    def last_lines(self, count: int = 15) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([f"  the last lines of {self.log}:", *(f"  | {line}" for line in lines[-count:])])


def noted_port(note: Path, otherwise: int) -> int:
    return int(note.read_text()) if note.exists() else otherwise


def choose_port(note: Path, first: int) -> None:
    """The port of last time if still free, else the next free one ten further: checkouts run side by side."""
    for port in [noted_port(note, first), *range(first, first + 200, 10)]:
        if reserved(port) and free(port):
            note.write_text(str(port))
            return
    raise Unavailable(f"no free port near {first}")


def reserved(port: int) -> bool:
    """Whether no other process has chosen this port: a server takes seconds to bind what was free for it.

    Held until this process ends, by when the server listens.
    """
    if port in RESERVED:
        return True
    handle = (Path(tempfile.gettempdir()) / f"spillway-port-{port}.lock").open("w")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return False
    RESERVED[port] = handle
    return True


def free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One at a time, across threads, processes and checkouts."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
