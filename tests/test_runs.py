"""The bench, the crash runs and the drills are not in the suite: at least they start, and what they import, inside functions, too, is there."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

import pytest
from django.utils.module_loading import import_string

from tests.bench.leg import PATHS
from tests.crash.replay.victim import BOUNDARIES

ROOT = Path(__file__).parent
FILES = sorted(path for folder in ("bench", "crash", "drills") for path in (ROOT / folder).rglob("*.py"))


def imports(path: Path) -> Iterator[tuple[str, str]]:
    """(module, name) of everything that a file takes from the tests."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
            yield from ((node.module or "", alias.name) for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_run_imports_is_there(path):
    lost = [
        f"{module}.{name}"
        for module, name in imports(path)
        if not hasattr(import_module(module), name) and find_spec(f"{module}.{name}") is None
    ]
    assert lost == []


@pytest.mark.processes
@pytest.mark.parametrize("run", ["bench", "crash", "drills", "screenshots"])
def test_a_run_starts_without_django(run):
    """Here Django is set up already; there the run has to do it, and until then nothing may import a model."""
    command = [sys.executable, "-m", f"tests.{run}", "--help"]
    done = subprocess.run(command, cwd=ROOT.parent, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage" in done.stdout.lower()


@pytest.mark.parametrize("path", PATHS.values())
def test_each_part_of_the_bench_is_there(path):
    assert callable(import_string(f"tests.bench.{path}"))


@pytest.mark.parametrize("place", BOUNDARIES.values())
def test_each_boundary_at_which_a_crash_run_kills_is_there(place):
    assert callable(resolve_name(place))
