"""A gate in front of a database server or a broker: closed, it drops every connection and lets none through; it can hang, too."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from urllib.parse import urlsplit


class Gate:
    """Forwards a port of its own to the server of `url`; `Gate.url` is the way through it."""

    def __init__(self, url: str) -> None:
        where = urlsplit(url)
        self.target = (where.hostname, where.port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = where._replace(netloc=f"{where.username}:{where.password}@127.0.0.1:{self.port}").geturl()
        self.sockets: list[socket.socket] = []
        self.open = True
        self.flows = threading.Event()
        self.flows.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        self.open = False
        while self.sockets:
            hang_up(self.sockets.pop())

    def reopen(self) -> None:
        self.open = True

    def hang(self) -> None:
        """Everybody is let in, and hears nothing, until `flows` is set again."""
        self.flows.clear()

    def turn(self, port: int) -> None:
        """Lead to another server of this machine from now on; nobody keeps a way to the old one."""
        self.shut()
        self.target = ("127.0.0.1", port)
        self.reopen()

    def close(self) -> None:
        self.shut()
        hang_up(self.listener)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                if not self.open:
                    hang_up(client)
                    continue
                server = socket.create_connection(self.target)
            except OSError:  # nobody is at home
                hang_up(client)
                continue
            self.sockets += [client, server]
            self._forward(client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        for ends in ((client, server), (server, client)):
            threading.Thread(target=pump, args=(*ends, self.flows), daemon=True).start()


class Cutter(Gate):
    """Cuts one connection during the first COMMIT behind a statement that contains `mark`.

    `moment` is "before": the server never hears of it; or "after": it has committed, and its answer is lost.
    """

    def __init__(self, url: str, mark: bytes, moment: str) -> None:
        self.mark = mark
        self.moment = moment
        self.cuts = 0
        super().__init__(url)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        asked = threading.Event()

        def up() -> None:
            marked = False
            while data := client.recv(65_536):
                marked = marked or self.mark in data
                if marked and not self.cuts and b"commit" in data.lower():
                    self.cuts += 1
                    if self.moment == "before":
                        return
                    asked.set()
                server.sendall(data)

        def down() -> None:
            while data := server.recv(65_536):
                if asked.is_set():
                    return
                client.sendall(data)

        for way in (up, down):
            threading.Thread(target=until_cut, args=(way, client, server), daemon=True).start()


class BrokerGate(Gate):
    """A way to a Kafka broker of which clients hear no other: where the broker says its address, this one stands.

    `cut_at` shuts the gate at a request: "before" the broker hears of it, or "behind", when its answer is there, which
    is lost. `cut` says that it happened.
    """

    def __init__(self, servers: str) -> None:
        self.cut = threading.Event()
        self._wanted: tuple[int, str] | None = None
        self._lock = threading.Lock()
        super().__init__(f"kafka://{servers.split(',')[0]}")
        host, port = self.target
        self.address = f"127.0.0.1:{self.port}"
        self.theirs, self.ours = ((host or "").encode() + struct.pack("!i", at) for at in (port, self.port))

    def cut_at(self, api: int, moment: str) -> None:
        """At the next request with this key (as the protocol numbers them)."""
        self.cut.clear()
        with self._lock:
            self._wanted = api, moment

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        unanswered: set[int] = set()

        def up() -> None:
            while frame := frame_of(client):
                api, _version, correlation = struct.unpack_from("!hhi", frame, 4)
                moment = self._moment(api)
                if moment == "before":
                    return self._cut()
                if moment:
                    unanswered.add(correlation)
                server.sendall(frame)
            return None

        def down() -> None:
            while frame := frame_of(server):
                if struct.unpack_from("!i", frame, 4)[0] in unanswered:
                    return self._cut()
                client.sendall(frame.replace(self.theirs, self.ours))
            return None

        for way in (up, down):
            threading.Thread(target=until_cut, args=(way, client, server), daemon=True).start()

    def _moment(self, api: int) -> str:
        with self._lock:
            if self._wanted is None or self._wanted[0] != api:
                return ""
            (_, moment), self._wanted = self._wanted, None
            return moment

    def _cut(self) -> None:
        self.shut()
        self.cut.set()


def frame_of(source: socket.socket) -> bytes:
    """A request or an answer, its length before it; nothing when the connection has ended."""
    head = whole(source, 4)
    return head + whole(source, struct.unpack("!i", head)[0]) if head else b""


def whole(source: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        if not (data := source.recv(min(size - len(found), 65_536))):
            return b""
        found += data
    return bytes(found)


def until_cut(way: Callable[[], None], *ends: socket.socket) -> None:
    try:
        way()
    except OSError:
        pass
    for end in ends:
        hang_up(end)


def pump(source: socket.socket, sink: socket.socket, flows: threading.Event) -> None:
    try:
        while data := source.recv(65_536):
            flows.wait()
            sink.sendall(data)
    except OSError:
        pass
    hang_up(source)
    hang_up(sink)


def hang_up(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    end.close()
