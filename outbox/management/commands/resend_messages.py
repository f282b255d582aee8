"""Sends many sent messages again by a replay batch."""

from argparse import ArgumentParser

from django.core.management.base import CommandError

from config.letters import Refusal
from config.processes.commands import VisibleCommand
from outbox.console import add_resend_arguments, resend
from outbox.console_batches import StandsStill, Usage


class Command(VisibleCommand):
    help = (
        "Send sent messages again, each by a new one: a replay batch, whose levers are those of dead_letters. Needs a "
        "reason and is audited."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_resend_arguments(parser)

    def handle(self, *args: object, **options: object) -> None:
        try:
            for line in resend(options, self.stderr.write):
                self.stdout.write(line)
        except Usage as usage:
            raise CommandError(str(usage), returncode=2) from usage
        except StandsStill as still:
            raise CommandError(str(still), returncode=3) from still
        except Refusal as refusal:
            raise CommandError(str(refusal)) from refusal
