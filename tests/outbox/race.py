"""Several at once, each on a connection of its own, started by a barrier; a deadlock is run again, as workers do."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.db import connections

from config.database.retry import Remedy, remedy_for

PATIENCE = 60


def race(*contenders: Callable[[], Any]) -> list[Any]:
    """What each returned; the first exception of any is raised."""
    barrier = threading.Barrier(len(contenders))
    results: list[Any] = [None] * len(contenders)
    failures: list[BaseException] = []

    def run(place: int, contender: Callable[[], Any]) -> None:
        try:
            barrier.wait(PATIENCE)
            results[place] = until_it_stands(contender)
        except BaseException as error:
            failures.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(contenders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    if failures:
        raise failures[0]
    return results


def until_it_stands(contender: Callable[[], Any]) -> Any:
    while True:
        try:
            return contender()
        except Exception as error:
            if remedy_for(error) is not Remedy.RERUN:
                raise
