"""A real worker process, and what it took of the machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Usage:
    """Peak resident memory and processor time of a whole process, start-up included."""

    megabytes: float
    seconds: float


ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, **environment: str) -> Usage:
    """`manage.py …` until it ends by itself."""
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment})
    peak = 0.0
    # Not from the resource usage: that begins with the size of the process which started this one.
    while True:
        peak = max(peak, megabytes(process.pid))
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(0.05)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}")
    return Usage(peak, usage.ru_utime + usage.ru_stime)


def megabytes(pid: int) -> float:
    """The most memory that a living process has had; 0 once it has ended."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


@contextmanager
def running(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """`manage.py …` for as long as it is needed; then SIGTERM."""
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **environment})
    try:
        yield process
        process.terminate()
        if process.wait(30):
            raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}")
    finally:
        process.kill()
        process.wait()
