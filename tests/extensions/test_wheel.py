"""The wheel is whole: without the checkout it migrates, serves pages and runs an extension, and keeps its data elsewhere."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from django.db import connection

from tests.tree import ROOT

HERE = Path(__file__).parent
PAGES = """
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.test import Client
client = Client()
client.force_login(User.objects.create_superuser("ada"))
for page in ("/admin/", "/admin/outbox/deadletter/", "/admin/acme/depotnote/", "/api/docs", "/healthz"):
    assert client.get(page, secure=True, HTTP_HOST="localhost").status_code == 200, page
assert finders.find("spillway/home.css")
print("pages and static files are there")
"""
pytestmark = pytest.mark.skipif(
    connection.vendor != "sqlite", reason="the same files on every database: once is enough"
)


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return subprocess.run(
        [*map(str, command)], cwd=cwd, env=kept | environment, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and of the checkout's own only the libraries."""
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT, cwd=folder)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    venv = folder / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=folder)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)}))
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", venv / "bin" / "python")
    done = run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    return venv


def digests(venv: Path) -> dict[str, str]:
    """Of our files there, without what Python compiles."""
    files = (
        path
        for name in ("config", "outbox", "buffer", "spillway_ext")
        for path in venv.glob(f"lib/*/site-packages/{name}/**/*")
    )
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_runs_without_the_checkout_and_writes_nothing_beside_itself(installed, tmp_path):
    before, data = digests(installed), tmp_path / "data"
    data.mkdir()
    spillway = installed / "bin" / "spillway"
    named = {
        "SPILLWAY_DIR": str(data),
        "SPILLWAY_APPS": "acme.apps.Acme",
        "PYTHONPATH": str(HERE),
        "LOG_LEVEL": "ERROR",
    }
    for command in (["check"], ["migrate"], ["extensions"], ["shell", "--no-imports", "-c", PAGES]):
        done = run(spillway, *command, cwd=tmp_path, **named)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "pages and static files are there" in done.stdout
    assert (data / "spillway.sqlite3").exists()
    assert digests(installed) == before


def test_without_tables_it_says_its_own_name(installed, tmp_path):
    done = run(installed / "bin" / "spillway", "verify", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("Run `spillway migrate`.")


def test_a_package_that_stands_before_ours_is_named_in_one_line(installed, tmp_path):
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "__init__.py").write_text("")
    done = run(installed / "bin" / "spillway", "check", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"spillway: the package `config` of {tmp_path / 'config'} stands before Spillway's of ")


def test_a_new_project_is_whole_and_its_own_test_passes(installed, tmp_path):
    made = run(installed / "bin" / "spillway", "startproject", "parcels", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    project = tmp_path / "parcels"
    assert {path.name for path in project.iterdir()} == {
        ".env", ".gitignore", "Dockerfile", "Makefile", "README.md", "compose.yaml", "parcels", "pyproject.toml", "tests",
    }  # fmt: skip
    assert not [path for path in project.rglob("*") if path.is_file() and "{{" in path.read_text()]
    tested = run(installed / "bin" / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert (tested.returncode, "2 passed" in tested.stdout) == (0, True), tested.stdout + tested.stderr
    named = run(installed / "bin" / "spillway", "extensions", cwd=project, PYTHONPATH=str(project))
    assert named.stdout.startswith("parcels (parcels, written for spillway_ext 1.0)"), named.stderr
