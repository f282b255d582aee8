"""How a client connects: it says why it is not let in, and logs in again while it is busy. What is private of kafka-python's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TypeVar

from django.conf import settings
from kafka.errors import KafkaConnectionError, KafkaTimeoutError
from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaTCPTransport

from config.kafka.access import SASL, NotLetIn, is_refused, reason
from config.kafka.tokens import tokens
from config.telemetry.logs import log
from config.telemetry.redaction import one_line

SAY_AGAIN = 60.0  # seconds
Result = TypeVar("Result")


class _Said:
    """What was said of later connections, at most once a minute in a process."""

    lock = threading.Lock()
    until = 0.0


def _data_first(receive: Callable[[], tuple[bytes, Exception | None]]) -> tuple[bytes, Exception | None]:
    """kafka-python drops what came right before the other side hung up: the broker's word why it does so."""
    data, ending = receive()
    return data, None if data else ending


async def _or_broken(step: Coroutine[object, object, Result]) -> Result:
    """Whatever keeps a connection from being made fails what waits for it: as a connection that broke, to be tried again.

    kafka-python lets the producer's records fail by the error itself: a file that is gone, a password that was changed.
    They would be refused for good.
    """
    try:
        return await step
    except KafkaConnectionError:
        raise
    except Exception as error:
        raise KafkaConnectionError(error) from error


def _at_a_closed_door(failure: BaseException | None) -> str:
    """What stands behind "Unable to bootstrap from …" where nobody says why."""
    if failure is None:
        return ""
    asks = "disconnected" in str(failure) and settings.KAFKA_SECURITY_PROTOCOL not in SASL
    hint = (
        f"; a listener that asks for a log-in does so with KAFKA_SECURITY_PROTOCOL={settings.KAFKA_SECURITY_PROTOCOL}"
    )
    return f": {one_line(failure)}{hint if asks else ''}"


class LastingConnection(KafkaConnection):
    """A connection that logs in again while it is busy."""

    async def _sasl_authenticate(self, timeout_at: float | None = None) -> None:
        await _or_broken(super()._sasl_authenticate(timeout_at))

    def send_buffered(self) -> None:
        """Send what came meanwhile, but no more than may be in flight: the rest when answers have come.

        kafka-python 3.0.12 takes all of it as sent. What is above its limit it writes when fewer than that are
        unanswered, which is never: after 30 s the connection breaks, and a consumer has lost its place in the group.
        """
        while self._request_buffer and not self.paused:
            request, future, timeout_at = self._request_buffer.popleft()
            self._send_request(request, future=future, timeout_at=timeout_at)

    def unpause(self, why: str) -> None:
        super().unpause(why)
        if self.connected and not self._reauth.is_reauthenticating:
            self.send_buffered()


class ExplainingManager(KafkaConnectionManager):
    """kafka-python 3.0.12 tries until its time is over and says "Unable to bootstrap", whatever the reason."""

    def __init__(self, net: NetworkSelector, **configs: object) -> None:
        super().__init__(net, **configs)
        self.failure: BaseException | None = None  # the last one, or the last that tells a reason
        self.why = ""

    async def _build_transport(self, node: object, timeout_at: float | None = None) -> KafkaTCPTransport:
        transport = await _or_broken(super()._build_transport(node, timeout_at=timeout_at))
        transport._sock_recv = partial(_data_first, transport._sock_recv)
        return transport

    async def _connect(self, node: object, conn: KafkaConnection, **options: object) -> None:
        conn.__class__ = LastingConnection  # there is no option for it
        conn.init_future.add_errback(self._remember)
        conn.close_future.add_errback(self._remember)
        await super()._connect(node, conn, **options)

    async def _do_bootstrap(self, deadline: float | None) -> object:
        self.failure, self.why = None, ""
        try:
            return await super()._do_bootstrap(deadline)
        except KafkaTimeoutError as error:
            if self.why:
                raise NotLetIn(self.why) from self.failure
            raise KafkaTimeoutError(f"{error.args[0]}{_at_a_closed_door(self.failure)}") from error

    def _remember(self, failure: BaseException) -> None:
        why = reason(failure)
        if is_refused(failure) and settings.KAFKA_SASL_MECHANISM == "OAUTHBEARER":
            tokens().refused()
        if why or not self.why:
            self.failure, self.why = failure, why
        if not self.bootstrapped or not why:
            return  # who starts the client hears of it; a broker that is away is told by others
        with _Said.lock:
            if time.monotonic() < _Said.until:
                return
            _Said.until = time.monotonic() + SAY_AGAIN
        log.error("kafka_refuses", error=why)


class ExplainingClient(KafkaNetClient):
    """Takes the place of kafka-python's own in every client (its option `kafka_client`)."""

    def __init__(self, net: NetworkSelector = None, manager: KafkaConnectionManager = None, **configs: object) -> None:
        net = net or NetworkSelector(**configs)
        super().__init__(net, manager or ExplainingManager(net, **configs), **configs)
