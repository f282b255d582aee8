"""Django's server for development, with a session of the database for each request and none afterwards."""

from django.db import connections
from whitenoise.runserver_nostatic.management.commands.runserver import Command as Server


class Command(Server):
    def handle(self, *args: object, **options: object) -> None:
        # It gives each request a thread of its own, and a session that is kept stays with a thread that has ended.
        for name in connections:
            connections.settings[name]["CONN_MAX_AGE"] = 0
        super().handle(*args, **options)
