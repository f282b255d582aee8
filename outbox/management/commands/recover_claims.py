"""Returns the rows of workers that did not come back."""

from typing import Any

from django.core.management.base import BaseCommand

from outbox.workers.recovery import recover_claims


class Command(BaseCommand):
    help = "Expired leases back to work. Safe at any time, any number of times; beat runs it every minute."

    def handle(self, *args: Any, **options: Any) -> None:
        for table, rows in recover_claims().items():
            self.stdout.write(f"{table}: {rows} recovered")
