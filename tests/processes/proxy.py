"""A gate in front of a database server: closed, it drops every connection and lets none through."""

from __future__ import annotations

import socket
import threading
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
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        self.open = False
        while self.sockets:
            hang_up(self.sockets.pop())

    def reopen(self) -> None:
        self.open = True

    def close(self) -> None:
        self.shut()
        hang_up(self.listener)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
                if not self.open:
                    hang_up(client)
                    continue
                server = socket.create_connection(self.target)
            except OSError:
                return
            self.sockets += [client, server]
            for ends in ((client, server), (server, client)):
                threading.Thread(target=pump, args=ends, daemon=True).start()


def pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
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
