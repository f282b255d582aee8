"""Whether anything is still on its way."""

from config.flows import flows
from config.processes.commands import VisibleCommand


class Command(VisibleCommand):
    help = "Print yes when no flow has anything on its way, else no."
    requires_system_checks: list[str] = []

    def handle(self, **_: object) -> None:
        self.stdout.write("yes" if all(flow.is_drained() for flow in flows()) else "no")
