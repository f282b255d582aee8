"""The demo's folder: one for each port, for one demo at a time."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from django.conf import settings
from django.utils import timezone

from config.environment.env import BadSetting
from config.processes.platform import refuse_taken_port

MB = 1_000_000


@contextmanager
def emptied_folder(port: int, say: Callable[[str], object]) -> Iterator[Path]:
    """`var/demo/<port>`, empty, and nobody else's until the end. Raises BadSetting when it belongs to a demo that runs."""
    folder = Path(settings.BASE_DIR) / "var" / "demo" / str(port)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("a+", encoding="utf-8") as lock:
        take(lock, port)
        refuse_taken_port("127.0.0.1", port)
        if folder.exists():
            say(f"Deleting what the last demo left in {shown(folder)} ({size_of(folder) / MB:,.1f} MB).")
            shutil.rmtree(folder)
        folder.mkdir()
        yield folder


def take(lock: TextIO, port: int) -> None:
    """Lock the file until it is closed, by whatever end of this process, and write into it who has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip()
        beside = f"another demo can run beside it: make run PORT={port + 1}"
        raise BadSetting(f"a demo runs on port {port} already ({holder}); {beside}") from None
    lock.truncate(0)
    lock.write(f"process {os.getpid()} since {timezone.now():%Y-%m-%d %H:%M:%S} UTC")
    lock.flush()


def size_of(folder: Path) -> int:
    """Bytes of all files in it."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def shown(folder: Path) -> str:
    """As it is typed in the project's directory."""
    return str(folder.relative_to(settings.BASE_DIR))
