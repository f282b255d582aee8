"""python -m tests.crash.mail.writer JOURNAL: orders that are created, paid, refunded, and some that never happened."""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

ROLLED_BACK = 0.08  # of the stories
CANCELLED = 0.1


class Never(Exception):
    """The caller's transaction fails after the mail was promised."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("journal", type=Path)
    parser.add_argument("--events", type=int, required=True, help="events to commit")
    parser.add_argument("--rate", type=float, default=0.0, help="events a second; 0: as fast as it goes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--name", default="w", help="part of every address")
    given = parser.parse_args()

    import django

    django.setup()
    with given.journal.open("w") as journal:
        Writer(given, journal).run()


class Writer:
    """Tells one story after the other; what was committed stands in the journal after the commit."""

    def __init__(self, given: argparse.Namespace, journal: TextIO) -> None:
        self.given = given
        self.journal = journal
        self.random = random.Random(given.seed)
        self.written = 0

    def run(self) -> None:
        began, orders = time.monotonic(), 0
        while self.written < self.given.events:
            orders += 1
            for action, amount, rolled_back in self.story():
                if self.written >= self.given.events:
                    break
                if action == "create":
                    order = self.create(f"{self.given.name}{orders}@example.com", rolled_back)
                elif order is not None:
                    self.change(order, action, amount, rolled_back)
                if self.given.rate:
                    time.sleep(max(0.0, began + self.written / self.given.rate - time.monotonic()))

    def story(self) -> Iterator[tuple[str, int, bool]]:
        """(what, how much, whether it is rolled back): what fails is always the last thing of its order."""
        fails = self.random.random() < ROLLED_BACK
        if fails and self.random.random() < 0.5:
            yield "create", 0, True
            return
        yield "create", 0, False
        if self.random.random() < CANCELLED:
            yield "cancel", 0, False
            return
        yield "pay", 0, False
        for _ in range(self.random.choice([0, 1, 1, 2])):
            yield "refund", 100, False
        if fails:
            yield "refund", 300, True
        elif self.random.random() < 0.5:
            yield "refund", 0, False  # the rest

    def create(self, address: str, rolled_back: bool) -> Any:
        """The order's id; with `rolled_back` the order, its payment and its mail end with the transaction."""
        from django.db import transaction

        from config.database.clock import database_now
        from notifications.orders import changes

        if not rolled_back:
            return changes.create(address, 1000, "EUR", database_now()).pk
        try:
            with transaction.atomic():
                order = changes.create(address, 1000, "EUR", database_now())
                planned = changes.plan(order.pk, "pay")
                changes.carry_out(planned)
                raise Never
        except Never:
            self.note(planned, True)
        return None

    def change(self, order: Any, action: Any, amount: int, rolled_back: bool) -> None:
        from django.db import transaction

        from notifications.orders import changes
        from notifications.orders.models import Order

        if action == "refund" and not amount:
            found = Order.objects.get(pk=order)
            amount = found.total_amount - found.refunded_amount

        def unit() -> Any:
            planned = changes.plan(order, action, amount)
            try:
                with transaction.atomic():
                    changes.carry_out(planned)
                    if rolled_back:
                        raise Never
            except Never:
                pass
            return planned

        self.note(changes.until_done(unit), rolled_back)
        self.written += not rolled_back

    def note(self, planned: Any, rolled_back: bool) -> None:
        line = {
            "order": planned.seen.pk.hex, "number": planned.after.version, "event": planned.step.event_type,
            "mail": planned.mail.headers["Message-ID"], "rolled_back": rolled_back,
        }  # fmt: skip
        self.journal.write(json.dumps(line) + "\n")
        self.journal.flush()


if __name__ == "__main__":
    main()
