"""Stock topics → ledger and stock."""

from threading import Event

from buffer.workers import track
from config.processes.worker import Options, ReaderCommand


class Command(ReaderCommand):
    help = (
        "Read the topics of MOVEMENTS into the ledger and adjust the stocks, every effect once. Start as many "
        "as the topics have partitions; offsets are committed only after the database has committed."
    )

    def work(self, stop: Event, options: Options) -> None:
        track(stop, accept_reset=options["accept_reset"], once=options["once"], until_idle=options["until_idle"])
