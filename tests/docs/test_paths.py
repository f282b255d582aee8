"""docs/paths.md names functions in the order in which they are entered: the test that a part names walks it."""

import json
import os
import re
import subprocess
import sys

import pytest

from tests.docs.tracer import PLACE
from tests.shares import TOLD_BY
from tests.tree import ROOT, read

WALK = re.compile(r"Walked by\s+`(tests/[^`]+)`")
UNWALKED = re.compile(r"^Not walked.*?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)


def parts() -> list[tuple[str, list[str], str]]:
    """(heading, the functions that it names, its walk): a part ends with its walk; what stands behind the last one has none."""
    found = []
    for section in re.split(r"^##+ ", read(ROOT / "docs" / "paths.md"), flags=re.MULTILINE)[1:]:
        *walked, rest = WALK.split(UNWALKED.sub("", section))
        texts = [*zip(walked[::2], walked[1::2], strict=True), (rest, "")]
        found += [(section.split("\n")[0], functions(text), walk) for text, walk in texts]
    return [part for part in found if part[1]]


def functions(text: str) -> list[str]:
    """The places that a text names, each once, without constants: nobody enters them."""
    return [f"{file}:{name}" for file, name in dict.fromkeys(PLACE.findall(text)) if not name.isupper()]


@pytest.fixture(scope="module")
def entered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[str, int]]]:
    """What each walk entered, and on which thread; in one process of its own, because pytest cannot run inside itself."""
    answer = tmp_path_factory.mktemp("walks") / "entered.json"
    environment = {
        name: text for name, text in os.environ.items() if name not in TOLD_BY and not name.startswith("PYTEST_")
    }
    environment |= {"WALKS": str(answer), "DATABASE_URL": f"sqlite:///walks-{os.getpid()}.sqlite3"}
    walks = sorted({walk for _, _, walk in parts() if walk})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.docs.tracer", *walks]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(answer.read_text())


@pytest.mark.processes
def test_every_function_of_a_path_is_entered_in_its_order(entered):
    """The order of each thread: which of two is faster is left to the machine."""
    for heading, named, walk in parts():
        assert walk, f"{heading}: no test walks {named}"
        places = [place for place, _ in entered[walk]]
        start = places.index(named[0]) if named[0] in places else 0  # before it the test prepares
        first_on: dict[str, int] = {}
        for place, thread in entered[walk][start:]:
            if place in named:
                first_on.setdefault(place, thread)
        assert first_on.keys() == set(named), f"{heading}: {walk} does not enter {set(named) - first_on.keys()}"
        for thread in set(first_on.values()):
            order = [place for place, its in first_on.items() if its == thread]
            assert order == [place for place in named if first_on[place] == thread], (
                f"{heading}: {walk} takes another way"
            )


def test_every_section_is_walked():
    headings = re.findall(r"^##+ (.+)$", read(ROOT / "docs" / "paths.md"), re.MULTILINE)
    assert {heading for heading, _, walk in parts() if walk} == set(headings)
