"""The console's levers for a terminal, with the same judgement, trail and result."""

from argparse import ArgumentParser
from collections.abc import Iterator

from config.processes.worker import Options
from outbox.console import add_arguments, run
from outbox.console_batches import ConsoleCommand


class Command(ConsoleCommand):
    help = (
        "List, show, requeue, discard, resolve or restore dead letters; replay batches and their levers. Every change "
        "needs a reason and is audited."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_arguments(parser)

    def lines(self, options: Options) -> Iterator[str]:
        return run(options, self.stderr.write)
