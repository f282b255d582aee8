"""docs/proof.md says what is in the tree."""

from __future__ import annotations

from tests.proof.page import PAGE, render


def test_the_page_is_what_guards_models_and_results_say() -> None:
    assert PAGE.read_text() == render(), "python -m tests.proof page writes it"
