"""Tells people what needs them."""

from threading import Event
from typing import Any

from config.processes.worker import WorkerCommand
from outbox.alerts.courier import notify_people


class Command(WorkerCommand):
    help = (
        "Tell people what needs them, as they have subscribed to it on the page Notifications. "
        "Looks every ten seconds at what home shows; any number may run side by side, and each thing is told once."
    )

    def work(self, stop: Event, options: dict[str, Any]) -> None:
        notify_people(stop, once=options["once"], until_idle=options["until_idle"])
