"""Starts everything Spillway consists of: the workers of every flow, beat and the web server."""

from __future__ import annotations

import socket
import sys
import threading

from django.conf import settings

from config.database.tables import require_tables
from config.environment.env import BadSetting
from config.flows import flows
from config.processes.supervisor import Supervisor


def start_platform(supervisor: Supervisor, port: int, host: str = "127.0.0.1") -> None:
    """Start everything against the database and the broker that the environment names."""
    refuse_taken_port(host, port)
    for flow in flows():
        for worker in flow.workers():
            supervisor.manage(worker.command, worker.command, *worker.arguments)
    supervisor.manage("replay_topic", "replay_topic", "--pending")
    supervisor.manage("replay_letters", "replay_letters")
    supervisor.start("beat", [sys.executable, "-m", "celery", "-A", "config", "beat", "--loglevel", "WARNING"])
    supervisor.start(
        "web",
        [sys.executable, "-m", "gunicorn", "config.wsgi", "--bind", f"{host}:{port}", "--workers", "1",
         "--threads", "4", "--access-logfile", "/dev/null", "--no-control-socket"],
    )  # fmt: skip


def refuse_taken_port(host: str, port: int) -> None:
    """Raise one clear line: the supervisor would restart a web server without its port for ever."""
    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        raise BadSetting(f"--port {port}: {host}:{port} cannot be used: {error.strerror}") from error


def run_platform(stop: threading.Event, port: int) -> None:
    """Start everything, keep it alive until `stop`, end it in reverse order."""
    require_tables()
    supervisor = Supervisor(settings.BASE_DIR / "var" / "logs", {})
    try:
        start_platform(supervisor, port)
        supervisor.run(stop)
    finally:
        supervisor.close()
