"""notifications-in → notifications-out, each customer at their rate."""

import re
from argparse import ArgumentParser
from threading import Event

from django.core.management.base import CommandError

from config.processes.worker import Options, ReaderCommand
from throttler.worker.start import throttle

NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")


class Command(ReaderCommand):
    help = (
        "Read notifications-in and send each customer's messages to notifications-out at their rate; what is over "
        "the rate waits in the buffer. Start as many as the topic has partitions, each with a name of its own: a "
        "process that is killed and started again under its name goes on at once."
    )
    accept_reset = "partitions that are stopped forget their lanes, with what waits in them, and go on"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        words = "a name (letters, digits, . _ -) that no other process has; a second one takes the first one's place"
        parser.add_argument("--instance", default="", metavar="NAME", help=words)

    def work(self, stop: Event, options: Options) -> None:
        name = options["instance"]
        if name and not NAME.fullmatch(name):
            raise CommandError(
                f"--instance {name}: 1 to 100 letters, digits, points, underscores and hyphens", returncode=2
            )
        throttle(
            stop, name, accept_reset=options["accept_reset"], once=options["once"], until_idle=options["until_idle"]
        )
