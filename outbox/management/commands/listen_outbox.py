"""Debezium → outbox: the CDC path."""

from threading import Event

from config.processes.worker import Options, ReaderCommand
from outbox.workers.start import listen


class Command(ReaderCommand):
    help = (
        "Deliver outbox messages as soon as Debezium reports their insert. Start as many as the topic has "
        "partitions; relay_outbox must run beside it, for what is retried and for when CDC is down."
    )

    def work(self, stop: Event, options: Options) -> None:
        listen(stop, accept_reset=options["accept_reset"], once=options["once"], until_idle=options["until_idle"])
