"""Returns the rows of workers that did not come back."""

from config.processes.commands import VisibleCommand
from outbox.workers.start import recover_claims


class Command(VisibleCommand):
    help = "Expired leases back to work. Safe at any time, any number of times; beat runs it every minute."

    def handle(self, *args: object, **options: object) -> None:
        for table, rows in recover_claims().items():
            self.stdout.write(f"{table}: {rows} recovered")
