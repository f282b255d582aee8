"""With its guards each model keeps its promises; without one it has a counterexample, or the guard serves another promise."""

from __future__ import annotations

from typing import Any

import pytest

from tests.proof.models import MODELS

WITHOUT = [(model, guard) for model in MODELS for guard in model.guards]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_with_its_guards_nothing_breaks_and_nothing_is_stuck(model: Any) -> None:
    states, broken, way = model.explore()
    assert (broken, way) == ("", [])
    assert states > 200


@pytest.mark.parametrize(("model", "guard"), WITHOUT, ids=[f"{model.name}: {guard}" for model, guard in WITHOUT])
def test_without_a_guard_a_promise_breaks(model: Any, guard: str) -> None:
    _, broken, way = model.explore([guard])
    assert bool(broken) != (guard in model.outside), way
    assert len(way) <= 14, "the way is not the shortest"


def test_what_can_never_end_is_stuck() -> None:
    from tests.proof.models.explore import Model

    model = Model(
        "door",
        "shut",
        {},
        lambda at, _: iter([("bolt", "bolted")] if at == "shut" else []),
        lambda *_: "",
        lambda at: at == "open",
    )
    assert model.explore()[1:] == ("stuck", [])
