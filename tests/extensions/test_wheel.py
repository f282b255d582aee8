"""The wheel is whole: without the checkout it migrates, serves pages and runs an extension, and keeps its data elsewhere."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from django.db import connection

from spillway_ext.command_line import OURS
from tests.tree import ROOT

HERE = Path(__file__).parent
LEFT = """
from spillway_ext.testing import Platform
platform = Platform()
scan = {"scan_id": "A", "depot": "D1", "scanned_at": "2026-06-01T10:00:00Z", "parcels": [{"parcel_no": "P1"}]}
platform.push("parcel-scans", scan, b"no JSON")
platform.wait(seconds=5)
platform.push("parcel-scans", {**scan, "scan_id": "B"})
platform.push("points-earned", {"earning_id": "E1", "customer_id": "C1", "points": 30}, b"no JSON")
from acme.models import DepotNote
from django.utils.timezone import now
DepotNote.objects.create(depot="D1", text="closed", created_at=now())
"""
PAGES = """
import re
from django.conf import settings
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse
from outbox.models import DeadLetter

def client_of(name, role=""):
    user, _made = User.objects.get_or_create(username=name, is_staff=True, is_superuser=not role)
    user.groups.set(Group.objects.filter(name=role))
    client = Client(headers={"host": "localhost"})
    client.force_login(user)
    return client

def read(page, client):
    answer = client.get(page, secure=True)
    assert answer.status_code == 200, (page, answer.status_code)
    return answer.content.decode() if not answer.streaming else ""

boss = client_of("ada")
home = reverse("admin:index")  # it registers the pages
names = [f"admin:{model._meta.app_label}_{model._meta.model_name}" for model in admin.site._registry]
pages = [home, "/admin/partitions/", "/api/docs", "/healthz", "/metrics"]
pages += [reverse(f"{name}_changelist") for name in names]
pages += [
    reverse(f"{name}_change", args=[row.pk])
    for name, model in zip(names, admin.site._registry) for row in model._default_manager.all()[:5]
]
shown = {page: read(page, boss) for page in pages}
static = {path for text in shown.values() for path in re.findall(rf'"({settings.STATIC_URL}[^"?#]+)', text)}
for path in static:
    read(path, boss)
assert (len(pages) > 40, len(static) > 10) == (True, True), (pages, static)
letters = [shown[reverse("admin:outbox_deadletter_change", args=[row.pk])] for row in DeadLetter.objects.order_by("pk")]
"""
WITH = f"""{PAGES}
desk = client_of("desk", "Depot desk")
assert "/admin/acme/depotnote/" in read("/admin/", desk)
assert "closed" in read("/admin/acme/depotnote/", desk)
print(len(letters), "letters;", len(pages), "pages")
"""
WITHOUT = f"""{PAGES}
missing = "The database has tables of acme: SPILLWAY_APPS does not name what they belong to."
assert missing in shown["/admin/"]
print([missing in letter for letter in letters])
"""
pytestmark = pytest.mark.skipif(
    connection.vendor != "sqlite", reason="the same files on every database: once is enough"
)


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return subprocess.run(
        [*map(str, command)], cwd=cwd, env=kept | environment, capture_output=True, text=True, check=False, timeout=300
    )


def built_wheel(folder: Path) -> Path:
    """Of the checkout, as it is."""
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    built = run(sys.executable, "-m", "pip", "wheel", *options, ROOT, cwd=folder)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, and of the checkout's own only the libraries."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = built_wheel(folder)
    venv = folder / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=folder)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(venv), "platbase": str(venv)}))
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = (sys.executable, "-m", "pip", "--python", venv / "bin" / "python")
    done = run(*pip, "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=folder)
    assert done.returncode == 0, done.stderr
    shutil.copytree(HERE / "acme", packages / "acme", ignore=shutil.ignore_patterns("__pycache__"))
    about = packages / "acme_spillway-1.0.dist-info"  # as pip leaves it
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-spillway\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[spillway.apps]\nacme = acme.apps:Acme\n")
    (about / "RECORD").write_text("acme/__init__.py,,\n")
    return venv


def digests(venv: Path) -> dict[str, str]:
    """Of our files there, without what Python compiles."""
    files = (path for name in (*OURS, "spillway_ext") for path in venv.glob(f"lib/*/site-packages/{name}/**/*"))
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_runs_without_the_checkout_and_writes_nothing_beside_itself(installed, tmp_path):
    """An extension adds its pages, tables and rights at once; when it is taken away, what it left is still to be seen."""
    before, data = digests(installed), tmp_path / "data"
    data.mkdir()

    def spillway(*command: str, **more: str) -> str:
        named = {"SPILLWAY_DIR": str(data), "LOG_LEVEL": "ERROR", "LEDGER_UNKNOWN_STOCK": "create", **more}
        done = run(installed / "bin" / "spillway", *command, cwd=tmp_path, **named)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    spillway("check", SPILLWAY_APPS="acme")
    spillway("migrate", SPILLWAY_APPS="acme")
    assert spillway("extensions", SPILLWAY_APPS="acme").startswith(
        "acme (acme-spillway 1.0, written for spillway_ext 1.0)"
    )
    spillway("shell", "--no-imports", "-c", LEFT, SPILLWAY_APPS="acme")
    assert "2 letters" in spillway("shell", "--no-imports", "-c", WITH, SPILLWAY_APPS="acme")
    spillway("migrate")
    spillway("rotate_partitions")
    assert "[True, False]" in spillway("shell", "--no-imports", "-c", WITHOUT)
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


def test_a_new_project_is_whole(installed, tmp_path):
    """That it works is the tutorial's to show (test_tutorial.py)."""
    made = run(installed / "bin" / "spillway", "startproject", "parcels", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    project = tmp_path / "parcels"
    assert {path.name for path in project.iterdir()} == {
        ".env", ".gitignore", "Dockerfile", "Makefile", "README.md", "compose.yaml", "parcels", "pyproject.toml", "tests",
    }  # fmt: skip
    assert not [path for path in project.rglob("*") if path.is_file() and "{{ " in path.read_text()]
    named = run(installed / "bin" / "spillway", "extensions", cwd=project, PYTHONPATH=str(project))
    assert named.stdout.startswith("parcels (parcels, written for spillway_ext 1.0)"), named.stderr
