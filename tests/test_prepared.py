"""A prepared process is one that Python has just started, to whoever looks: itself, its parent, and the tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.prepared import PythonProcess, run_python
from tests.tree import ROOT

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each process is started by Popen"),
]
LOOK = """
import json, os, signal, sys
print(json.dumps({
    "arguments": sys.argv, "environment": dict(os.environ), "folder": os.getcwd(), "parent": os.getppid(),
    "input": sys.stdin.read(), "main": __name__, "interrupt": signal.getsignal(signal.SIGINT).__name__,
    "files": sorted(os.listdir("/proc/self/fd"))[:-1], "path": sys.path,
    "ours": [name for name in sys.modules if name.split(".")[0] in ("config", "outbox", "buffer", "throttler")],
    "settings": "django.conf" in sys.modules and sys.modules["django.conf"].settings.configured,
}))
"""
LOOK_AT_DJANGO = f"""
import threading
from django.conf import settings
print(threading.active_count(), settings.BUFFER_IDLE_SECONDS)
{LOOK.replace("[name for name in", "sorted(name for name in").replace('"throttler")]', '"throttler"))')}
"""
AS_HERE = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("PYTHON")}
ENVIRONMENT = {**AS_HERE, "LC_ALL": "C.UTF-8", "HERE": "é"}


def look(kind: Any, *program: str) -> dict[str, Any]:
    process = kind(
        [sys.executable, *program, "one", "two"],
        env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return json.loads(process.communicate(timeout=60)[0])


@pytest.fixture(params=["-c", "-m", "a file"])
def program(request, tmp_path, monkeypatch):
    if request.param == "-c":
        return ["-c", LOOK]
    file = tmp_path / "look_around.py"
    file.write_text(LOOK)
    monkeypatch.chdir(tmp_path)
    return [str(file)] if request.param == "a file" else ["-m", "look_around"]


def test_it_sees_what_a_process_of_python_sees(program):
    """As it is the same that an ordinary one sees, no setting has been read and nothing of ours is there."""
    seen = look(PythonProcess, *program)
    assert seen == look(subprocess.Popen, *program)
    assert seen["parent"] == os.getpid()
    assert seen["ours"] == []


def test_with_django_set_up_beforehand_it_sees_the_same():
    """Each that of its own environment, however many there are; the first in one, and the next."""
    program = ["manage.py", "shell", "--verbosity=0", "--command", LOOK_AT_DJANGO]
    for seconds in (3, 3, 4, 5, 3):
        more = {"BUFFER_IDLE_SECONDS": str(seconds), "DATABASE_URL": "sqlite://", "SECRET_KEY": "x" * 50}
        numbers, seen = run_python(*program, env={**ENVIRONMENT, **more}).stdout.splitlines()
        assert numbers == f"1 {seconds}.0"
    options = {"cwd": ROOT, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
    plain = subprocess.run([sys.executable, *program], env={**ENVIRONMENT, **more}, check=True, **options)
    assert json.loads(seen) == json.loads(plain.stdout.splitlines()[-1])


@pytest.mark.parametrize(("end", "code"), [("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", -9), ("1 / 0", 1), ("", 0)])
def test_its_end_is_told_as_it_was(end, code):
    done = run_python(
        "-c",
        f"import os, sys; print('said', flush=True); print('why', file=sys.stderr, flush=True); {end}",
        env=AS_HERE,
    )
    assert done.returncode == code
    assert done.stderr.startswith("why\n")
    assert done.stdout == "said\n"
    assert ("ZeroDivisionError" in done.stderr) is ("/" in end)


def test_it_is_stopped_and_killed_as_any_child():
    # In short ones: a SIGINT between print and sleep is looked at only when the sleep is over.
    sleeper = "import time; print('up', flush=True); [time.sleep(0.1) for _ in range(600)]"
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
        with PythonProcess(
            [sys.executable, "-c", sleeper], env=AS_HERE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout.readline() == b"up\n"
            process.send_signal(number)
            assert process.wait(60) == {signal.SIGINT: -2}.get(number, -number)
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)


@pytest.mark.parametrize("options", [{"start_new_session": True}, {"env": {**AS_HERE, "PYTHONOPTIMIZE": "1"}}])
def test_what_a_fork_cannot_do_is_done_by_popen(options):
    command = [sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid(), __debug__)"]
    with PythonProcess(command, **{"env": AS_HERE, **options}, stdout=subprocess.PIPE, text=True) as process:
        printed = process.communicate(timeout=60)[0].split()
    assert printed == [str("start_new_session" in options), str("env" not in options)]


def test_orphans_of_others_do_not_come_to_us():
    parent = "import subprocess, sys; print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)"
    orphan = int(run_python("-c", parent, env=AS_HERE).stdout)
    status = Path(f"/proc/{orphan}/stat").read_text().rpartition(")")[2].split()
    os.kill(orphan, signal.SIGKILL)
    assert int(status[1]) != os.getpid()


def test_a_driver_that_this_machine_lacks_is_missed_by_those_who_use_it(tmp_path):
    for driver in ("MySQLdb", "psycopg"):
        (tmp_path / f"{driver}.py").write_text("raise ImportError('not here')")
    asks = "import os; from tests.prepared import run_python; print(run_python('-c', 'print(1)', env=os.environ))"
    environment = {**AS_HERE, "PYTHONPATH": str(tmp_path)}
    asked = subprocess.run([sys.executable, "-c", asks], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert "returncode=0, stdout='1\\n'" in asked.stdout, asked.stderr
