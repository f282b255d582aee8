"""What is added by which installed package."""

import json
from typing import Any

from config.environment.extensions import added_by, extensions, release_of
from config.processes.commands import VisibleCommand


class Command(VisibleCommand):
    help = "List the packages that SPILLWAY_APPS names, and what each adds: streams, topics, flows and the rest."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: Any) -> None:
        parser.add_argument("--json", action="store_true", help='[{"app", "release", "api", "adds": {kind: [names]}}]')

    def handle(self, **options: Any) -> None:
        rows = [
            {"app": app.label, "release": release_of(app), "api": app.api, "adds": dict(added_by(app))}
            for app in extensions()
        ]
        self.stdout.write(
            json.dumps(rows) if options["json"] else "\n".join(map(line, rows)) or "SPILLWAY_APPS names no package."
        )


def line(row: dict[str, Any]) -> str:
    adds = "".join(f"\n  {kind:12} {', '.join(names)}" for kind, names in row["adds"].items())
    return f"{row['app']} ({row['release']}, written for spillway_ext {row['api']}){adds}"
