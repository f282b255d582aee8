"""python -m tests.processes.throttler.hasty command …: a worker that waits two seconds for each answer of a transaction, not eight."""

from __future__ import annotations

import os
import sys

LIMIT = 2.0


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    from django import setup
    from django.core.management import execute_from_command_line

    from config.kafka.transactional_producer import TransactionalProducer

    TransactionalProducer.__init__.__defaults__ = (LIMIT,)  # type: ignore[misc]
    setup()
    execute_from_command_line(["manage.py", *sys.argv[1:]])


if __name__ == "__main__":
    main()
