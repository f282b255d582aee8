"""A client beside Spillway: which of its commits were acknowledged, and whether they are there."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import closing

from tests.crash import databases


class Client:
    """Commits numbers, one after the other, and remembers those of which it was told that they are kept."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.kept: list[int] = []
        self.error = ""  # the last one
        self.pause = 0.0  # seconds, the longest between two that were kept
        self.ended = threading.Event()
        databases.run(url, "CREATE TABLE drill_numbers (n bigint PRIMARY KEY)")
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.ended.set()
        self.thread.join(30)

    def missing(self, url: str) -> list[int]:
        """The numbers that were acknowledged and are not there."""
        there = {n for (n,) in databases.rows(url, "SELECT n FROM drill_numbers")}
        return [n for n in self.kept if n not in there]

    def _work(self) -> None:
        number, last = 0, time.monotonic()
        while not self.ended.is_set():
            try:
                with closing(databases.connect(self.url)) as connection:
                    cursor = connection.cursor()
                    while not self.ended.wait(0.005):
                        number += 1
                        cursor.execute("INSERT INTO drill_numbers VALUES (%s)", [number])
                        self.kept.append(number)
                        self.pause, last = max(self.pause, time.monotonic() - last), time.monotonic()
            except Exception as error:  # whatever the driver says: again, on another connection
                if str(error) != self.error:
                    self.error = str(error)
                    print(f"client: {error}", file=sys.stderr)
                time.sleep(0.1)
