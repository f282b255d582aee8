"""python -m tests.crash.mail.caller JOURNAL: services that promise mails by HTTP, each request again until it is answered."""

from __future__ import annotations

import argparse
import json
import os
import random
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TextIO
from uuid import uuid4

from tests.crash.mail.promiser import ENOUGH, arguments, traffic
from tests.processes.web import Reply, Site

PORTS, TOKEN = "CRASH_WEB_PORTS", "CRASH_TOKEN"  # environment: where the web servers are, and who calls them
SERVICES = 3  # that call at once
MOST = 12  # promises of a request
REPEATED = 0.1  # of the requests come again when they have their answer
NOT_YET = (0, 409, 503)  # no answer, in progress, no database
PATIENCE = 120.0  # seconds without an answer
PAUSE = 0.1

Promises = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]  # a line of the journal, and the envelope


def main() -> None:
    given = arguments(__doc__)
    with given.journal.open("w") as journal, ThreadPoolExecutor(SERVICES) as pool:
        list(pool.map(lambda number: Service(number, given, journal).run(), range(1, SERVICES + 1)))


class Journal:
    """One line after the other, by threads of one process."""

    def __init__(self, file: TextIO) -> None:
        self.file, self.lock = file, threading.Lock()

    def note(self, line: Mapping[str, Any]) -> None:
        with self.lock:
            self.file.write(json.dumps(line) + "\n")
            self.file.flush()


class Service:
    """Promises of its own aggregates, one request behind the other."""

    def __init__(self, number: int, given: argparse.Namespace, journal: TextIO) -> None:
        self.given, self.seed, self.name = given, given.seed * SERVICES + number, f"{given.name}{number}s"
        self.client = Client(Journal(journal), random.Random(self.seed))

    def run(self) -> None:
        given, began, promised = self.given, time.monotonic(), 0
        lines = traffic(given.events // SERVICES, given.journal.with_name(ENOUGH), self.seed, self.name)
        while chosen := list(islice(lines, self.client.random.randint(1, MOST))):
            self.client.promise([(line, json.loads(message.value or b"")) for line, message in chosen])
            promised += len(chosen)
            if given.rate:
                time.sleep(max(0.0, began + promised * SERVICES / given.rate - time.monotonic()))


class Client:
    """Knows the web servers, and does as the handbook says: the same request under the same key until there is an answer."""

    def __init__(self, journal: Journal, rng: random.Random) -> None:
        self.journal, self.random = journal, rng
        self.sites = [Site(port=int(port)) for port in os.environ[PORTS].split()]

    def promise(self, promises: Promises, key: str = "") -> None:
        """All of them but those that an answer refuses: without these it is sent again, under the same key."""
        key = key or str(uuid4())
        while promises:
            body = {"messages": [envelope for _, envelope in promises]}
            reply = self.until_answered(body, key)
            if reply.status == 202:
                break
            faults = {int(error["where"].rpartition(".")[2]): error["reason"] for error in reply.body["errors"]}
            for place, reason in faults.items():
                self.journal.note({**promises[place][0], "refused": reason})
            promises = [one for place, one in enumerate(promises) if place not in faults]
        else:
            return
        for (line, _), answered in zip(promises, reply.body["messages"], strict=True):
            self.journal.note({**line, "id": answered["id"]})
        if self.random.random() < REPEATED and (again := self.until_answered(body, key)) != reply:
            raise AssertionError(f"two answers under one key: {reply} {again}")

    def until_answered(self, body: Mapping[str, Any], key: str) -> Reply:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            reply = self.random.choice(self.sites).post("/v1/messages", body, os.environ[TOKEN], key)
            if reply.status not in NOT_YET:
                if reply.status not in (202, 422):
                    raise AssertionError(f"{reply}")
                return reply
            self.journal.note({"kind": "unanswered", "status": reply.status})
            time.sleep(PAUSE)
        raise TimeoutError(f"no answer to {key} within {PATIENCE:g} s")


if __name__ == "__main__":
    main()
