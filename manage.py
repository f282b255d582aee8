#!/usr/bin/env python3
"""Command line of Spillway: `python manage.py help` lists everything."""

import os
import sys


def main() -> None:
    """Run one management command; what cannot work is one line on stderr, never a traceback."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
    from django.db import DatabaseError, InterfaceError, OperationalError

    from config.database.errors import needs_migrate
    from config.environment.env import BadSetting

    try:
        execute_from_command_line(sys.argv)
    except (BadSetting, ImproperlyConfigured) as error:
        sys.exit(f"spillway: {error}")
    except (DatabaseError, InterfaceError) as error:
        said = f"spillway: the database that DATABASE_URL names: {' '.join(str(error).split())}"
        if needs_migrate(error):
            sys.exit(f"{said}. Run `python manage.py migrate`.")
        if not isinstance(error, OperationalError | InterfaceError):
            raise
        sys.exit(said)


if __name__ == "__main__":
    main()
