"""python -m tests.services.environment SET ... [--try SET ...]: .venv, filled from requirements/."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.services import OLDEST

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"


class Unfit(Exception):
    """The environment cannot be had; the text is the one line that says why and what helps."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.services.environment", description=__doc__)
    parser.add_argument("sets", nargs="+", metavar="SET", help="requirements/SET.txt must be installed")
    parser.add_argument("--try", nargs="+", default=[], dest="optional", metavar="SET", help="nice to have")
    arguments = parser.parse_args()
    try:
        with (ROOT / "Makefile").open() as lock:
            # Two makes at once: the second finds everything done.
            fcntl.flock(lock, fcntl.LOCK_EX)
            fill(arguments.sets, arguments.optional)
    except Unfit as reason:
        print(reason, file=sys.stderr)
        return 1
    return 0


def fill(sets: list[str], optional: list[str]) -> None:
    if not works(PYTHON):
        create()
    for name in sets:
        install(name)
    for name in optional:
        try:
            install(name)
        except Unfit as reason:
            print(f"left out: {reason}", file=sys.stderr)


def works(python: Path) -> bool:
    """A copied or half-made environment, or one whose interpreter is gone, is made anew."""
    question = f"import pip, sys; sys.exit(sys.version_info < {OLDEST})"
    return python.exists() and subprocess.run([python, "-c", question], capture_output=True).returncode == 0


def create() -> None:
    if importlib.util.find_spec("venv") is None or importlib.util.find_spec("ensurepip") is None:
        raise Unfit("python3 has no venv module: install python3-venv (apt-get install python3-venv)")
    print(f"creating .venv with Python {sys.version.split()[0]}")
    quiet([sys.executable, "-m", "venv", "--clear", str(VENV)])


def install(name: str) -> None:
    """Nothing to do when these very requirements were installed before."""
    requirements = ROOT / "requirements" / f"{name}.txt"
    if not requirements.exists():
        raise Unfit(f"requirements/{name}.txt is missing")
    stamp = VENV / f"installed-{name}"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    if name == "mysql":
        require_compiler()
    print(f"installing requirements/{name}.txt")
    quiet([str(PYTHON), "-m", "pip", "install", "-q", "--require-hashes", "-r", str(requirements)])
    stamp.write_text(digest)


def require_compiler() -> None:
    lacking = [tool for tool in ("cc", "pkg-config") if not shutil.which(tool)]
    if not shutil.which("mariadb_config") and not shutil.which("mysql_config"):
        lacking.append("libmariadb-dev")
    if lacking:
        raise Unfit(f"requirements/mysql.txt is compiled, and this machine lacks {', '.join(lacking)}")


def quiet(command: list[str]) -> None:
    env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, env=env)
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines or ["no output"]
        raise Unfit(f"{' '.join(command[1:4])} … failed: {errors[-1].strip()}")


if __name__ == "__main__":
    sys.exit(main())
