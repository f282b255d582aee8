"""A share of a processor for each process of a measurement: many workers on a machine of two cores."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
PERIOD = 20_000  # microseconds; a share of it may be used, the least is a millisecond
NAME = "spillway-scale-"


def kind() -> str:
    """How a share is kept to: by the kernel, or by stopping the process most of the time."""
    return "cgroup quota" if _folder() else "duty cycle"


@contextmanager
def limited(pids: Sequence[int], share: float) -> Iterator[None]:
    """Each of these processes has this share (0 … 1) of one core, until the end of the block."""
    with ExitStack() as ends:
        for pid in pids:
            ends.enter_context(_group(pid, share) if _folder() else _duty_cycle(pid, share))
        yield


def _folder() -> Path | None:
    """Where groups with a quota can be made: version 1 has a tree of its own for processors, version 2 one for all."""
    first = CGROUP / "cpu"
    if (first / "cpu.cfs_quota_us").exists() or (first / "cgroup.procs").exists():
        return first if os.access(first, os.W_OK) else None
    delegated = CGROUP / "cgroup.subtree_control"
    return CGROUP if delegated.exists() and "cpu" in delegated.read_text() and os.access(CGROUP, os.W_OK) else None


@contextmanager
def _group(pid: int, share: float) -> Iterator[None]:
    above = _folder()
    assert above is not None
    home = above / f"{NAME}{pid}"
    home.mkdir()
    quota = max(1000, round(PERIOD * share))
    if (home / "cpu.max").exists():
        (home / "cpu.max").write_text(f"{quota} {PERIOD}")
    else:
        (home / "cpu.cfs_period_us").write_text(str(PERIOD))
        (home / "cpu.cfs_quota_us").write_text(str(quota))
    (home / "cgroup.procs").write_text(str(pid))
    try:
        yield
    finally:
        if Path(f"/proc/{pid}").exists():
            (above / "cgroup.procs").write_text(str(pid))
        home.rmdir()


@contextmanager
def _duty_cycle(pid: int, share: float) -> Iterator[None]:
    """Coarser than a quota: a process that waits in its share gets nothing for that."""
    ended = threading.Event()

    def turn() -> None:
        while not ended.is_set():
            os.kill(pid, signal.SIGCONT)
            time.sleep(PERIOD * share / 1e6)
            os.kill(pid, signal.SIGSTOP)
            time.sleep(PERIOD * (1 - share) / 1e6)
        os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=turn, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
