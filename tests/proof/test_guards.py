"""Each guard's text still stands in its file, once, and its tests are there; `make proof` takes them out."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.proof.guard import Guard
from tests.proof.guards import everything
from tests.tree import ROOT

GUARDS = everything()


@pytest.mark.parametrize("guard", GUARDS, ids=[f"{guard.file}: {guard.keeps}" for guard in GUARDS])
def test_a_guard_can_be_taken_out(guard: Guard) -> None:
    text = (ROOT / guard.file).read_text()
    assert text.count(guard.old) == 1
    compile(text.replace(guard.old, guard.new), guard.file, "exec")
    assert [name for name in guard.tests.split() if not (ROOT / name.partition("::")[0]).exists()] == []


def test_each_guard_has_a_name_of_its_own() -> None:
    names = Counter((guard.file, guard.keeps) for guard in GUARDS)
    assert [name for name, times in names.items() if times > 1] == []
