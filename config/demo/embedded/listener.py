"""A port of our choice for the mock broker, which can only listen on a random one."""

import os
import socket

from config.demo.embedded.librdkafka import EmbeddedKafkaError

HOST = "127.0.0.1"


def listen(port: int) -> socket.socket:
    """A listening socket on HOST:port; raises EmbeddedKafkaError when it cannot be had."""
    try:
        listener = socket.create_server((HOST, port), backlog=128)
    except OSError as error:
        reason = os.strerror(error.errno or 0)  # error.strerror repeats the address
        raise EmbeddedKafkaError(f"--port {port}: {HOST}:{port} cannot be used: {reason}") from error
    listener.setblocking(False)
    return listener


def replace_listener(port: int, listener: socket.socket) -> None:
    """Put `listener` in the place of this process's own listening socket on HOST:port.

    The mock keeps using its file descriptor and accepts from the new socket, from its next poll on. So every
    byte travels directly: no proxy, a refused connection when it is gone, the same address after a restart.
    """
    # Not inheritable: a child process must not keep the port.
    os.dup2(listener.fileno(), _descriptor(port), inheritable=False)
    listener.close()


def _descriptor(port: int) -> int:
    for name in os.listdir("/dev/fd"):
        if _listens_on(int(name), port):
            return int(name)
    raise EmbeddedKafkaError(f"the mock broker's socket on port {port} was not found")


def _listens_on(descriptor: int, port: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(descriptor)) as candidate:
            accepts = candidate.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            return bool(accepts) and candidate.getsockname() == (HOST, port)
    except OSError:  # not a socket, or the descriptor of the listing itself
        return False
