"""python -m tests.release: wheels and sdists of spillway and spillway-client in build/release. It uploads nothing."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from tests.tree import ROOT

# A distribution's folder, and what an empty environment must be able to do with its wheel.
DISTRIBUTIONS = {
    ".": [
        ("spillway", "--help"),
        ("spillway", "check"),
        ("spillway", "findstatic", "spillway/home.css"),
        ("spillway", "migrate", "--verbosity", "0"),
    ],
    "client": [
        ("python", "-c", "import django.conf as c; c.settings.configure(INSTALLED_APPS=['spillway_client'])\n"
         "import django; django.setup()\nfrom django.core.management import call_command; call_command('check')"),
    ],
}  # fmt: skip


class Refused(Exception):
    """There is nothing to release; the text is the one line that says why."""


def main() -> int:
    try:
        version = releasable(ROOT)
        files = release(ROOT, ROOT / "build" / "release")
    except Refused as reason:
        print(f"release: {reason}", file=sys.stderr)
        return 1
    for file in files:
        print(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(ROOT)}")
    print(f"Spillway {version}: {len(files)} files, built, checked and tried; nothing was uploaded.")
    return 0


def releasable(root: Path) -> str:
    """The version that the last commit is. Raises Refused."""
    if changed := _run("git", "status", "--porcelain", cwd=root).split("\n")[0].strip():
        raise Refused(f"the work tree is not what was committed: {changed}")
    versions = {
        folder: tomllib.loads((root / folder / "pyproject.toml").read_text())["project"]["version"]
        for folder in DISTRIBUTIONS
    }
    version = versions["."]
    if versions["client"] != version:
        raise Refused(f"client/pyproject.toml says {versions['client']}, pyproject.toml {version}")
    if not re.search(rf"^## {re.escape(version)}(?= |$)", (root / "CHANGELOG.md").read_text(), re.MULTILINE):
        raise Refused(f"CHANGELOG.md has no section `## {version}`")
    return version


def release(root: Path, folder: Path) -> list[Path]:
    """Build, check and try; the files. The same commit gives the same wheels. Raises Refused."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        source.mkdir()
        _run("git", "archive", "--output", source.with_suffix(".tar"), "HEAD", cwd=root)
        _run("tar", "--extract", "--file", source.with_suffix(".tar"), cwd=source)
        at = {"SOURCE_DATE_EPOCH": _run("git", "log", "-1", "--format=%ct", cwd=root).strip()}
        for name, tries in DISTRIBUTIONS.items():
            before = set(folder.iterdir())
            print(f"building {name} …", flush=True)
            # The wheel is built from the sdist, so that is whole, too.
            _run(sys.executable, "-m", "build", "--outdir", folder, source / name, cwd=source, **at)
            (wheel,) = (file for file in set(folder.iterdir()) - before if file.suffix == ".whl")
            install_and_try(wheel, tries, Path(scratch) / f"empty-{wheel.stem}")
        files = sorted(folder.iterdir())
        _run(sys.executable, "-m", "twine", "check", "--strict", *files, cwd=folder)
    return files


def install_and_try(wheel: Path, tries: list[tuple[str, ...]], empty: Path) -> None:
    """Install a wheel and what it needs into a new environment, and run each command there."""
    print(f"trying {wheel.name} in an empty environment …", flush=True)
    _run(sys.executable, "-m", "venv", empty, cwd=empty.parent)
    _run(empty / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, cwd=empty)
    for program, *arguments in tries:
        _run(empty / "bin" / program, *arguments, cwd=empty)


def _run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What it prints. Raises Refused with its last line when it fails."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "DJANGO_SETTINGS_MODULE")}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=kept | environment, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Refused(f"{' '.join(map(str, command[:4]))} … failed: {said}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
