"""Tells people what needs them."""

from threading import Event

from config.processes.worker import Options, WorkerCommand
from outbox.notices.sender import notify_people


class Command(WorkerCommand):
    help = (
        "Tell people what needs them, as they have subscribed to it on the page Notifications. "
        "Looks every ten seconds at what home shows; any number may run side by side, and each thing is told once."
    )

    def work(self, stop: Event, options: Options) -> None:
        notify_people(stop, once=options["once"], until_idle=options["until_idle"])
