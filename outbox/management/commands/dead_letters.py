"""The console's levers for a terminal, with the same judgement, trail and result."""

from argparse import ArgumentParser

from django.core.management.base import CommandError

from config.letters import Refusal
from config.processes.commands import VisibleCommand
from outbox.console import add_arguments, run
from outbox.console_batches import StandsStill, Usage


class Command(VisibleCommand):
    help = (
        "List, show, requeue, discard, resolve or restore dead letters; replay batches and their levers. Every change "
        "needs a reason and is audited."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_arguments(parser)

    def handle(self, *args: object, **options: object) -> None:
        try:
            for line in run(options, self.stderr.write):
                self.stdout.write(line)
        except Usage as usage:
            raise CommandError(str(usage), returncode=2) from usage
        except StandsStill as still:
            raise CommandError(str(still), returncode=3) from still
        except Refusal as refusal:
            raise CommandError(str(refusal)) from refusal
