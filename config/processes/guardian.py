"""Ends what a supervisor leaves behind when it is killed itself: a process of its own that reads a pipe until its other end is gone.

Run as a script by `config/processes/supervisor.py`; each line of stdin holds the process groups that are alive, the last one counts.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence

PATIENCE = 20.0


def end(groups: Sequence[int], patience: float = PATIENCE) -> None:
    """Ask every group to stop, and kill those that are still there after `patience` seconds."""
    for request in (signal.SIGTERM, signal.SIGKILL):
        limit = time.monotonic() + patience
        alive = [group for group in groups if _send(group, request)]
        while alive and time.monotonic() < limit:
            time.sleep(0.05)
            alive = [group for group in alive if _send(group, 0)]


def _send(group: int, number: int) -> bool:
    """Whether there was anybody to send it to."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):  # the latter on macOS, of one that has ended
        return False
    return True


def main() -> None:
    """Read until the supervisor is gone, however it went."""
    groups: list[int] = []
    for line in sys.stdin:
        groups = [int(word) for word in line.split()]
    end(groups)


if __name__ == "__main__":
    main()
