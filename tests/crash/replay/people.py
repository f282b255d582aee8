"""python -m tests.crash.replay.people buy NUMBER | resolve ID…: customers who pay, and somebody who closes letters."""

from __future__ import annotations

import json
import sys
import uuid


def main() -> None:
    verb, *given = sys.argv[1:]

    import django

    django.setup()
    if verb == "buy":
        buy(int(given[0]))
    else:
        print(json.dumps(resolve(given)))


def buy(orders: int) -> None:
    """One paid order each: a mail each, to an address that names it."""
    from config.database.clock import database_now
    from notifications.orders import changes

    for number in range(orders):
        order = changes.create(f"mail-{number:06d}@example.com", 1000, "EUR", database_now())
        changes.change(order.pk, "pay")


def resolve(ids: list[str]) -> list[str]:
    """Those of these letters that were open: what was done elsewhere is not to be done by a batch."""
    from config.admin.levers import Operator
    from outbox.letters import levers

    who = Operator("somebody else")
    return [pk for pk in ids if levers.pull("resolve", [uuid.UUID(pk)], who, "done by other means").acted]


if __name__ == "__main__":
    main()
