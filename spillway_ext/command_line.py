"""`spillway COMMAND`, and `manage.py COMMAND` in a checkout: runs one management command."""

import os
import select
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
OURS = ("config", "outbox", "buffer", "throttler", "notifications")


def main() -> None:
    """Run one management command; a reader that has seen enough (`| head`) ends it like any program."""
    try:
        try:
            run_command()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not reader_is_gone():
            raise
        sys.exit(128 + signal.SIGPIPE)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def reader_is_gone() -> bool:
    """Whether nobody reads stdout or stderr any more; what is still to be written there then goes nowhere."""
    streams = []
    for stream in (sys.stdout, sys.stderr):
        asked = select.poll()
        asked.register(stream, 0)
        if asked.poll(0):
            streams.append(stream)
    for stream in streams:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return bool(streams)


def foreign_package() -> str:
    """Which package of another project stands where Python looks for one of ours; empty when none does."""
    for name in OURS:
        spec = find_spec(name)
        place = Path(spec.origin or "nowhere").resolve().parent if spec else None
        if place != HERE / name:
            return f"the package `{name}` of {place} stands before Spillway's of {HERE / name}: run it from another directory"
    return ""


def run_command() -> None:
    """What cannot work is one line on stderr, never a traceback."""
    if stranger := foreign_package():
        sys.exit(f"spillway: {stranger}")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
    from django.db import DatabaseError, InterfaceError, OperationalError

    from config.database.retry import needs_migrate
    from config.environment.env import BadSetting
    from config.telemetry.redaction import visible

    try:
        execute_from_command_line(sys.argv)
    except (BadSetting, ImproperlyConfigured) as error:
        sys.exit(visible(f"spillway: {error}"))
    except (DatabaseError, InterfaceError) as error:
        said = visible(f"spillway: the database that DATABASE_URL names: {' '.join(str(error).split())}")
        if needs_migrate(error):
            sys.exit(
                f"{said}. Run `{'python manage.py' if sys.argv[0].endswith('manage.py') else 'spillway'} migrate`."
            )
        if not isinstance(error, OperationalError | InterfaceError):
            raise
        sys.exit(said)


if __name__ == "__main__":
    main()
