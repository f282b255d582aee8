"""Sends many sent messages again by a replay batch."""

from argparse import ArgumentParser
from collections.abc import Iterator

from config.processes.worker import Options
from outbox.console import add_resend_arguments, resend
from outbox.console_batches import ConsoleCommand


class Command(ConsoleCommand):
    help = (
        "Send sent messages again, each by a new one: a replay batch, whose levers are those of dead_letters. Needs a "
        "reason and is audited."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_resend_arguments(parser)

    def lines(self, options: Options) -> Iterator[str]:
        return resend(options, self.stderr.write)
