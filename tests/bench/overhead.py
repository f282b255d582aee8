"""What logs and traces cost: the processor time of the same worker without them, with the one and with the other, in turns."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from statistics import median

from buffer.streams import GROUP
from config.kafka import topic_name
from tests.bench import databases, scaling, worker
from tests.bench.events import forget
from tests.bench.figures import number
from tests.bench.leg import Plan
from tests.bench.outbox import outbox
from tests.bench.rows import analyse
from tests.notifications.smtp_sink import Sink

SILENT = {"LOG_LEVEL": "WARNING", "LOG_FORMAT": "json"}
# The correlation id and the traceparent of a message that a traced request has published.
OF_A_REQUEST = (str(uuid.uuid4()), f"00-{uuid.uuid4().hex}-{uuid.uuid4().hex[:16]}-01")


@dataclass(frozen=True)
class Work:
    """A worker that ends by itself, and how it is given so many units of work."""

    name: str
    command: tuple[str, ...]
    prepare: Callable[[Plan], int]
    environment: Mapping[str, str] = field(default_factory=dict)


def overhead_rows(plan: Plan) -> Iterator[dict[str, str]]:
    with Sink() as mails, collector() as endpoint, tempfile.TemporaryFile() as log:
        modes = {"silent": SILENT, "logs": SILENT | {"LOG_LEVEL": "INFO"},
                 "traces": SILENT | {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}}  # fmt: skip
        for work in works(f"smtp://127.0.0.1:{mails.port}"):
            busy: dict[str, list[float]] = {mode: [] for mode in modes}
            idle: dict[str, list[float]] = {mode: [] for mode in modes}
            for turn in range(plan.repeat):
                for mode in (*modes, *modes)[turn % 3 :][:3]:  # each begins a turn as often as the others
                    with errors_into(log.fileno()):
                        units = work.prepare(plan)
                        busy[mode].append(seconds(work, modes[mode]))
                        idle[mode].append(seconds(work, modes[mode]))  # the same, with nothing left to do
            costs = {mode: [(run - median(idle[mode])) / units * 1e6 for run in busy[mode]] for mode in modes}
            yield {
                "worker": work.name, "µs of a processor a unit": number(median(costs["silent"])),
                "logs": added(costs["logs"], costs["silent"]), "traces": added(costs["traces"], costs["silent"]),
            }  # fmt: skip


def seconds(work: Work, mode: Mapping[str, str]) -> float:
    return worker.run(*work.command, "--once", **{**work.environment, **mode}).seconds


def added(with_it: list[float], without: list[float]) -> str:
    """What it takes more in the middle, and how far the turns lay apart: `+1.2 % (-0.4–2.0)`."""
    shares = [(more / less - 1) * 100 for more, less in zip(with_it, without, strict=True)]
    return f"{(median(with_it) / median(without) - 1) * 100:+.1f} % ({min(shares):.1f}–{max(shares):.1f})"


def works(smtp: str) -> list[Work]:
    relay = ("relay_outbox", "--channel", "noop")
    return [
        *(Work(f"relay, a channel that does nothing, {size} a batch", relay, partial(messages, count),
               {**outbox.NOOP, "OUTBOX_BATCH": str(size)}) for size, count in ((100, 40_000), (500, 80_000))),
        Work("relay, mails by SMTP", ("relay_outbox",), mails, {"EMAIL_CHANNEL": "smtp", "EMAIL_URL": smtp}),
        *(Work(f"ingest_events, {size} a batch", ("ingest_events",), requests, {"KAFKA_POLL_RECORDS": str(size)})
          for size in (500, 2000)),
    ]  # fmt: skip


def messages(count: int, plan: Plan) -> int:
    outbox.empty()
    count = count // 5 if plan.quick else count
    outbox.fill(count, *OF_A_REQUEST)
    analyse(outbox.MESSAGE)
    return count


def mails(plan: Plan) -> int:
    outbox.empty()
    count = scaling.mails("", "", 400 if plan.quick else 2000)
    databases.execute(f"UPDATE {outbox.MESSAGE} SET correlation_id = %s, traceparent = %s", OF_A_REQUEST)
    return count


def requests(plan: Plan) -> int:
    databases.empty()
    forget(plan.servers, [topic_name(GROUP)])
    return plan.records


# -- where logs and traces go --------------------------------------------------------------------------------
@contextmanager
def errors_into(file: int) -> Iterator[None]:
    """What this process and its children write to stderr goes into a file, as a service's lines do."""
    sys.stderr.flush()
    usual = os.dup(2)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(usual, 2)
        os.close(usual)


class Collector(BaseHTTPRequestHandler):
    """Takes every export and keeps nothing: to decode it would keep a processor from the worker."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def collector() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
