"""python manage.py relay_promises: brings promises to Spillway."""

from __future__ import annotations

import signal
import threading
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from spillway_client.relay import RelayStuck, relay_promises

HELP = """Bring what publish() promised to Spillway, in order, until SIGTERM.

One relay sends. Others stand by and take over when its lease, SPILLWAY_CLIENT["LEASE_SECONDS"], is over. A promise is
marked as sent when the broker has confirmed it; after a crash it may leave again, with the same key, and Spillway
counts it once. What will never be taken is marked as refused, with the reason, and holds nobody up.
Sent promises are deleted after RETENTION_DAYS; with DEBEZIUM that is all that this command does."""


class Command(BaseCommand):
    help = HELP
    requires_system_checks = ()

    def create_parser(self, *args: Any, **options: Any) -> Any:
        return super().create_parser(*args, formatter_class=RawDescriptionHelpFormatter, **options)

    def add_arguments(self, parser: ArgumentParser) -> None:
        group = parser.add_mutually_exclusive_group()
        group.add_argument("--once", action="store_true", help="send what is pending, then exit; for cron")
        group.add_argument("--until-idle", type=float, metavar="S", help="exit after S seconds with nothing to send")

    def handle(self, *args: Any, once: bool, until_idle: float | None, **options: Any) -> str:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        try:
            tally = relay_promises(stop, 0.0 if once else until_idle)
        except (ImproperlyConfigured, RelayStuck) as error:
            raise CommandError(str(error)) from error
        return f"{tally['sent']} sent, {tally['refused']} refused"
