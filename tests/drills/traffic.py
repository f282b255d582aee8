"""python -m tests.drills.traffic: `manage.py simulate` without its poison, which would be an alert of its own."""

from __future__ import annotations

import sys


def main() -> None:
    import django

    django.setup()
    from django.core.management import execute_from_command_line

    from buffer.flow import transfer_requests
    from buffer.ledger.flow import stock_traffic
    from outbox.intake import flow as promises
    from throttler.flow import notifications

    promises.SPOILED = 0.0
    for samples in (stock_traffic, transfer_requests, notifications):
        assert samples.__defaults__ == (0.004,), "the only default is the share of poison"
        samples.__defaults__ = (0.0,)
    execute_from_command_line(["manage.py", "simulate", *sys.argv[1:]])


if __name__ == "__main__":
    main()
