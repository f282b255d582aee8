"""What a bare Debian machine needs: venv and a compiler for mysqlclient; in CI also programs for single tests."""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.services.packages import apt_install
from tests.services.service import Unavailable

# Best first: the shell has no windows of its own to draw, which saves half the processor time.
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")


def browser() -> str | None:
    """Where Chromium is: CHROMIUM, or what is installed."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)


def missing() -> list[str]:
    """The Debian packages that this machine lacks."""
    wanted = []
    if importlib.util.find_spec("ensurepip") is None:
        wanted.append("python3-venv")
    return wanted + (compiler() if asked_for_mysql() else [])


def asked_for_mysql() -> bool:
    legs = os.environ.get("LEGS", "")
    return not legs or "mysql" in legs or "mariadb" in legs


def compiler() -> list[str]:
    """For the one driver that has no ready-made wheel."""
    wanted = []
    if not shutil.which("cc"):
        wanted += ["gcc", "libc6-dev"]
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        wanted.append("python3-dev")
    if not shutil.which("pkg-config"):
        wanted.append("pkg-config")
    if not client_library():
        wanted.append("default-libmysqlclient-dev")
    return wanted


def client_library() -> bool:
    """Whether the C library that mysqlclient is built on is here, in the words mysqlclient itself asks."""
    if not shutil.which("pkg-config"):
        return False
    asked = [["pkg-config", "--exists", name] for name in ("mysqlclient", "libmariadb", "mariadb")]
    return any(subprocess.run(question, check=False).returncode == 0 for question in asked)


def for_single_tests() -> list[str]:
    """A browser for the admin, promtool for the alert rules, a pooler. Too much to install on a developer's machine unasked."""
    if not os.environ.get("CI"):
        return []
    packages = {BROWSERS[0]: BROWSERS, "prometheus": ("promtool",), "pgbouncer": ("pgbouncer",)}
    path = f"{os.environ.get('PATH', '')}:/usr/sbin"
    return [name for name, programs in packages.items() if not any(shutil.which(one, path=path) for one in programs)]


def install() -> None:
    for packages in (missing(), for_single_tests()):
        try:
            if packages:
                apt_install(*packages)
        except Unavailable as reason:
            # Not fatal: everything but the MySQL driver and some tests does without.
            print(f"prerequisites: {reason}", file=sys.stderr)
