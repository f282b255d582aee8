"""Topics of other services → messages of the outbox."""

from threading import Event

from config.processes.worker import Options, ReaderCommand
from outbox.workers.start import take_in


class Command(ReaderCommand):
    help = (
        "Read the topics of MESSAGES_IN: each message that a service promises there is stored once, and relay_outbox "
        "sends it. Start as many as the topics have partitions; offsets are committed only after the database has committed."
    )

    def work(self, stop: Event, options: Options) -> None:
        take_in(stop, accept_reset=options["accept_reset"], once=options["once"], until_idle=options["until_idle"])
