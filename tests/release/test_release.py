"""What `make release` refuses before it builds anything, and what its files hold."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.release.__main__ import DISTRIBUTIONS, Refused, releasable
from tests.tree import ROOT


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    """A repository of the two distributions and a changelog."""
    for name, text in {
        "pyproject.toml": '[project]\nversion = "1.2.0"\n', "client/pyproject.toml": '[project]\nversion = "1.2.0"\n',
        "CHANGELOG.md": "# Changelog\n\n## 1.2.0 - 2026-12-01\n",
    }.items():  # fmt: skip
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "Begin"]):
        _git(tmp_path, *command)
    return tmp_path


def _git(folder: Path, *command: str) -> None:
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    subprocess.run(["git", *who, *command], cwd=folder, check=True)


def change(folder: Path, name: str, before: str, after: str) -> None:
    (folder / name).write_text((folder / name).read_text().replace(before, after))
    _git(folder, "commit", "-qam", "Change")


def test_a_commit_with_its_section_can_be_released(committed):
    assert releasable(committed) == "1.2.0"


def test_a_work_tree_that_was_changed_is_refused_by_name(committed):
    (committed / "extra.py").write_text("")
    with pytest.raises(Refused, match=r"not what was committed: \?\? extra\.py"):
        releasable(committed)


@pytest.mark.parametrize("section", ["## 1.2.0rc1", "## 1.2", "the 1.2.0"])
def test_a_version_without_its_section_is_refused(committed, section):
    change(committed, "CHANGELOG.md", "## 1.2.0", section)
    with pytest.raises(Refused, match=r"CHANGELOG\.md has no section `## 1\.2\.0`"):
        releasable(committed)


def test_a_client_of_another_version_is_refused(committed):
    change(committed, "client/pyproject.toml", "1.2.0", "1.1.0")
    with pytest.raises(Refused, match=r"client/pyproject\.toml says 1\.1\.0, pyproject\.toml 1\.2\.0"):
        releasable(committed)


def test_every_distribution_of_the_repository_is_released():
    projects = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("**/pyproject.toml")}
    assert {name for name in projects if not name.startswith((".", "build", "var"))} | {"."} == set(DISTRIBUTIONS)
