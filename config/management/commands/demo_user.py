"""The demo's account."""

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from config.processes.commands import VisibleCommand


class Command(VisibleCommand):
    help = "Create the user admin with the password admin; only where DEMO is on."
    requires_system_checks: list[str] = []

    def handle(self, **_: object) -> None:
        if not settings.DEMO:
            raise CommandError("DEMO is off: everybody knows this password")
        users = get_user_model().objects
        if not users.filter(username="admin").exists():
            users.create_superuser("admin", "admin@example.com", "admin")
