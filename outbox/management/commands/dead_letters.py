"""The console's levers for a terminal, with the same audit."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from outbox.letters.terminal import Selection, act, list_lines, show


class Command(BaseCommand):
    help = "List, show, requeue, discard or resolve dead letters. Every change needs a reason and is audited."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("verb", choices=["list", "show", "requeue", "discard", "resolve"])
        parser.add_argument("ids", nargs="*", metavar="ID", help="letters; a lever takes those that are open")
        parser.add_argument("--group", type=int, metavar="G", help="only this failure group")
        parser.add_argument("--source", metavar="S", help="only this source (a stream or flow)")
        parser.add_argument("--all", action="store_true", help="every letter, where neither ID nor a filter is given")
        parser.add_argument("--reason", default="", help="why; kept in the operator's trail")
        parser.add_argument("--dry-run", action="store_true", help="say what would be done")
        parser.add_argument("--json", action="store_true", help="list: one object a line, letters of every status")

    def handle(self, *args: Any, **options: Any) -> None:
        selection = Selection(options["ids"], options["group"], options["source"], options["all"])
        verb = options["verb"]
        if verb != "list" and selection.names_nothing:
            words = f"give the ids of letters to {verb} (`dead_letters list` shows them), --group, --source or --all"
            raise CommandError(words, returncode=2)
        try:
            selection.check()
            if verb in ("list", "show"):
                for line in list_lines(selection, options["json"]) if verb == "list" else show(selection):
                    self.stdout.write(line)
                return
            self.stdout.write(act(verb, selection, options["reason"], dry_run=options["dry_run"]))
        except ValueError as error:
            raise CommandError(str(error)) from error
