"""A background process that is written down when it starts, so that exactly that one can be stopped later."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path


class Process:
    """The process noted in `record`; gone once it ended, even when its id went to another program."""

    def __init__(self, record: Path) -> None:
        self.record = record

    def start(self, command: list[str], log: Path, env: dict[str, str] | None = None) -> None:
        with log.open("ab") as output:
            # A session of its own: Ctrl-C on make, or the end of a CI step, does not take the server along.
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(env or {})},
            )
        noted = {"pid": child.pid, "birth": birth(child.pid), "command": command}
        self.record.write_text(json.dumps(noted))

    @property
    def pid(self) -> int | None:
        try:
            noted = json.loads(self.record.read_text())
        except FileNotFoundError:
            return None
        alive = birth(noted["pid"])
        return noted["pid"] if alive is not None and alive == noted["birth"] else None

    def stop(self, stop_signal: signal.Signals, seconds: float) -> bool:
        """Ask, wait, insist; False when there was nothing to stop."""
        pid = self.pid
        if pid is None:
            self.record.unlink(missing_ok=True)
            return False
        os.kill(pid, stop_signal)
        if not self.gone_within(seconds):
            os.kill(pid, signal.SIGKILL)
            self.gone_within(seconds)
        self.record.unlink(missing_ok=True)
        return True

    def gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.pid is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.pid is None


def birth(pid: int) -> str | None:
    """When this process was born, in the system's words; None when it does not live."""
    if not Path("/proc/self/stat").exists():
        ps = ["ps", "-o", "lstart=", "-p", str(pid)]
        return subprocess.run(ps, capture_output=True, text=True, check=False).stdout.strip() or None
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in brackets may itself hold blanks and brackets: count from the last one.
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else fields[18]
