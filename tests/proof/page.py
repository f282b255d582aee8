"""docs/proof.md, made from the guards, the models and what the last full runs found."""

from __future__ import annotations

import inspect
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import wrap

from tests.proof.guards import everything
from tests.proof.models import MODELS
from tests.tree import ROOT

WIDTH = 118
PAGE = ROOT / "docs" / "proof.md"
RESULTS = Path(__file__).parent / "results.json"  # what `--keep` has written: a list of `Result`s as objects


def render() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "# Proof"
    yield ""
    yield "Random kills find what happens often. This page is about the rest: workers are killed and frozen in **every** state of"
    yield "what is outside them, each guard is taken out to see that a test notices, and models visit every interleaving. It is"
    yield "generated: `python -m tests.proof page`."
    yield ""
    yield from _states()
    yield from _models()
    yield from _guards()
    yield from NOT_COVERED


def _states() -> Iterator[str]:
    yield "## Every state"
    yield ""
    yield "Between two effects (a statement that writes, a COMMIT, a request that changes something in Kafka, a line to a mail"
    yield "server) a death looks the same from outside, whatever the line. So a worker is ended, or stopped past its lease while"
    yield "others finish its work, before each effect of a cycle; then its work must be done, once, and `verify` be clean."
    yield ""
    yield "    python -m tests.proof kill            # each flow on each database that is known"
    yield "    python -m tests.proof freeze relay --database URL --times 3"
    yield ""
    yield "| database | flow | deed | states | points | least a state | faults | seed |"
    yield "|---|---|---|---|---|---|---|---|"
    for one in json.loads(RESULTS.read_text()):
        names = ("database", "flow", "deed", "effects", "reached", "least", "faults", "seed")
        yield f"| {' | '.join(str(one[name]) for name in names)} |"
    yield ""
    yield "A point that is not reached belongs to a cycle that happened to be shorter: two workers shared what there was."
    yield ""


def _models() -> Iterator[str]:
    yield "## Models"
    yield ""
    yield "Explicit states, every interleaving (`tests/proof/models`, run by `make quick`). With all guards nothing breaks and"
    yield "nothing is stuck. Without one, this is the shortest way to a broken promise:"
    for model in MODELS:
        yield ""
        yield f"### {model.name.capitalize()}: {model.explore().states:,} states"
        yield ""
        for paragraph in (inspect.getdoc(inspect.getmodule(model.steps)) or "").split("\n\n"):
            yield from [*wrap(paragraph, WIDTH), ""]
        for guard, keeps in model.guards.items():
            text = f"- *{keeps[0].upper()}{keeps[1:]}.* {_without(model, guard)}"
            yield from wrap(text, WIDTH, subsequent_indent="  ", break_long_words=False)
    yield ""


def _without(model: object, guard: str) -> str:
    if serves := model.outside.get(guard):  # type: ignore[attr-defined]
        return f"Serves a promise outside the model: {serves}."
    found = model.explore([guard])  # type: ignore[attr-defined]
    return f"Without it: {' → '.join(found.way)}: **{found.broken}**."


def _guards() -> Iterator[str]:
    guards = everything()
    files = Counter(guard.file for guard in guards)
    yield "## Guards"
    yield ""
    yield f"{len(guards)} guards in {len(files)} files, each taken out in a copy of the tree (`make proof`): one of the tests that"
    yield "know of it fails. `python -m tests.proof guards --list` says what each keeps."
    yield ""
    yield "| folder | guards |"
    yield "|---|---|"
    folders = Counter(file.rpartition("/")[0] for file in files.elements())
    yield from (f"| `{folder}` | {number} |" for folder, number in sorted(folders.items()))
    yield ""


NOT_COVERED = [
    "## What is not covered",
    "",
    "- The listener of change data capture, notices to people, webhooks, rotation of partitions and the jobs of beat are",
    "  killed at random (`make crash`), not in each state.",
    "- Two deaths in one cycle; deaths of the database or the broker (`make crash` has them, not in each state).",
    "- Lines between two effects are one state; what a process learns from its own clock between them is a freeze before the",
    "  second effect.",
    "",
]


def keep(outcomes: Sequence[dict[str, object]]) -> None:
    """In place of what was known of the same flows."""
    kept = {_name(one): one for one in [*json.loads(RESULTS.read_text()), *outcomes]}
    RESULTS.write_text(json.dumps([kept[name] for name in sorted(kept)], indent=1) + "\n")


def _name(outcome: dict[str, object]) -> tuple[str, ...]:
    return tuple(str(outcome[name]) for name in ("deed", "database", "flow"))


def main() -> int:
    PAGE.write_text(render())
    print(f"wrote {PAGE.relative_to(ROOT)}", file=sys.stderr)
    return 0
