"""Any past timeframe of a topic once more: only what is missing is applied."""

from argparse import ArgumentParser
from threading import Event

from django.core.management.base import CommandError

from config.letters import Refusal
from config.processes.worker import Options, WorkerCommand
from outbox.topic_replay.requests import replay
from outbox.topic_replay.run import ReplayWorker


class Command(WorkerCommand):
    not_missed_with = ("once", "until_idle", "topic")
    help = "Apply what is missing of a past timeframe of TOPIC; with --pending, what the admin asked for."

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        add = parser.add_argument
        add("topic", nargs="?", metavar="TOPIC")
        add("--from", metavar="ISO", help="first record timestamp (2026-02-12T10:00:00Z)")
        add("--to", metavar="ISO", help="last record timestamp, not included")
        add("--slack", default="1h", help="how far timestamps may be out of order (default 1h)")
        add("--dry-run", action="store_true", help="count what is missing, change nothing")
        add("--reason", default="", help="why; kept in the operator's trail")
        add("--pending", action="store_true", help="work on the admin's replays until stopped")

    def work(self, stop: Event, options: Options) -> None:
        if options["pending"] and not options["topic"]:
            return ReplayWorker(stop).run(once=options["once"], until_idle=options["until_idle"])
        if options["pending"] or not (options["topic"] and options["from"] and options["to"]):
            raise CommandError("TOPIC, --from and --to are needed; or --pending alone", returncode=2)
        try:
            for line in replay(options["topic"], options, stop, self.stderr.write):
                self.stdout.write(line)
        except Refusal as refusal:
            raise CommandError(str(refusal)) from refusal
