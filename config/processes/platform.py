"""Starts everything Spillway consists of: the workers of every flow, beat and the web server."""

from __future__ import annotations

import socket
import sys
import threading

from django.conf import settings
from django.db import connection

from config.database.tables import require_tables
from config.environment.env import BadSetting
from config.flows import flows
from config.processes.loop import wait_for_database
from config.processes.supervisor import Supervisor
from config.telemetry.logs import log


def start_platform(supervisor: Supervisor, port: int, host: str = "127.0.0.1", metrics_port: int = 0) -> None:
    """Start everything against the database and the broker that the environment names.

    The workers and beat serve /metrics on `metrics_port` and the ports behind it, in the order of their start; 0: nowhere.
    """
    commands = [[worker.command, *worker.arguments] for flow in flows() for worker in flow.workers()]
    commands += [["replay_topic", "--pending"], ["replay_letters"]]
    ports = [metrics_port and metrics_port + number for number in range(len(commands) + 1)]
    refuse_taken_port(host, port)
    for own in filter(None, ports):
        refuse_taken_port(settings.METRICS_HOST, own, "--metrics-port")
    for command, own in zip(commands, ports, strict=False):
        # Always said: METRICS_PORT of the environment would be the same for all.
        supervisor.manage(command[0], *command, "--metrics-port", str(own))
        if own:
            log.info("metrics_served", name=command[0], port=own)
    beat = {"CELERY_METRICS_PORT": str(ports[-1])} if metrics_port else {}
    supervisor.start("beat", [sys.executable, "-m", "celery", "-A", "config", "beat", "--loglevel", "WARNING"], beat)
    supervisor.start(
        "web",
        [sys.executable, "-m", "gunicorn", "config.wsgi", "--bind", f"{host}:{port}", "--workers", "1",
         "--threads", "4", "--access-logfile", "/dev/null", "--no-control-socket",
         # Of its workers too, while they start: on a busy machine that takes longer than its 30 seconds.
         "--timeout", "120"],
    )  # fmt: skip


def refuse_taken_port(host: str, port: int, option: str = "--port") -> None:
    """Raise one clear line: the supervisor would restart a process without its port for ever."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except (OSError, OverflowError) as error:
        reason = error.strerror if isinstance(error, OSError) else "there is no such port"
        raise BadSetting(f"{option} {port}: {host}:{port} cannot be used: {reason}") from error


def run_platform(stop: threading.Event, port: int, metrics_port: int) -> None:
    """Start everything, keep it alive until `stop`, end it in reverse order."""
    wait_for_database(stop)
    require_tables()
    connection.close()  # the children have sessions of their own
    supervisor = Supervisor(settings.BASE_DIR / "var" / "logs", {})
    try:
        start_platform(supervisor, port, metrics_port=metrics_port)
        supervisor.run(stop)
    finally:
        supervisor.close()
