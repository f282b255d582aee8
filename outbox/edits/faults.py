"""What is wrong with an edited copy: the gate's errors with line and path, and what is locked. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from outbox.edits.places import JsonPlace, line_of, places, repeated_names, value_of

# As msgspec says it: "… - at `$.items[1].quantity`", "… (byte 23)".
AT = re.compile(r"(?<!\s)\s*-? ?at `\$\.?([^`]*)`")
MISSING = re.compile(r"missing required field `([^`]+)`")
BYTE = re.compile(r"(?<!\s)\s*\(byte (\d+)\)")
LONGEST = 60  # characters of a value that are repeated
TRUNCATED = "truncated"
EXPECTED = re.compile(r"Expected `(\w+)`, got `(\w+)`")
BOUND = re.compile(r"Expected `(int|float)` >= (\d+)")
EMPTY = re.compile(r"Expected `(?:str|array)` of length >= 1")
KINDS = {
    "int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false", "object": "an object",
    "array": "a list", "null": "null", "datetime": "a time",
}  # fmt: skip
Values = dict[str, JsonPlace]


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, and where: the path as the gate names it, the line as the form shows it."""

    text: str
    path: str = ""
    line: int | None = None

    @property
    def where(self) -> str:
        """`Line 5, items[1].quantity`; empty for what is about the whole."""
        line = f"line {self.line}" if self.line else ""
        found = ", ".join(part for part in (line, self.path) if part)
        return found[:1].upper() + found[1:] if line else found


def located(error: str, text: str) -> Fault:
    """An error of the gate about `text`."""
    if found := BYTE.search(error):
        before = text.encode()[: int(found[1])]
        return Fault(BYTE.sub("", error), line=before.count(b"\n") + 1)
    if TRUNCATED in error and not AT.search(error):
        return Fault(error, line=text.rstrip().count("\n") + 1)
    found = AT.search(error)
    path = found[1] if found else ""
    values = places(text)
    if missing := MISSING.search(error):
        inner = f"{path}.{missing[1]}".removeprefix(".")
        return Fault("is missing.", inner, line_of(values, path))
    if not path:
        return Fault(AT.sub("", error))
    written = _said(values, path)
    wrote = f" You wrote “{written[:LONGEST]}”." if written else ""
    return Fault(f"{_in_words(AT.sub('', error))}{wrote}", path, line_of(values, path))


def _in_words(error: str) -> str:
    """What the decoder says of types and bounds, as a person would; all else as it is."""
    if found := EXPECTED.search(error):
        wanted, given = (KINDS.get(name, name) for name in found.groups())
        return f"must be {wanted}, not {given}."
    if found := BOUND.search(error):
        return f"must be {KINDS[found[1]]}, {found[2]} or more."
    return "must not be empty." if EMPTY.search(error) else f"{error.replace('`', '')}."


def locked_values(text: str, locked: Iterable[str], wrong: Collection[str] = ()) -> dict[str, str | None]:
    """What of the stored payload a copy has to repeat, by path; None where it must be missing as it is.

    A value that is missing, empty or `wrong` by the gate's word says nothing yet, and is free.
    """
    found = places(text)
    return dict(_locked(found, locked, wrong, whole=bool(found) and text.rstrip().endswith("}")))


def _locked(
    found: Values, locked: Iterable[str], wrong: Collection[str], whole: bool
) -> Iterator[tuple[str, str | None]]:
    for name in locked:
        path = name.removesuffix("?")
        value = _said(found, path)
        if value and path not in wrong:
            yield path, value
        elif value is None and path != name and whole and _siblings(found, locked, path):
            yield path, None


def _siblings(found: Values, locked: Iterable[str], path: str) -> bool:
    """Whether another locked path has a value: then one that is missing means something."""
    return any(_said(found, name) for name in locked if name != f"{path}?")


def locked_faults(text: str, wanted: dict[str, str | None]) -> list[Fault]:
    """Where a copy says something else than it has to."""
    found = places(text)
    return [
        Fault(_must_be(value), path, line_of(found, path) if path in found else None)
        for path, value in wanted.items()
        if _said(found, path) != value
    ]


def repeated_faults(text: str) -> list[Fault]:
    """Where a name stands twice in one object: readers differ in which one counts, and only one of them was compared."""
    said = "stands twice in one object: it must stand there once."
    return [Fault(f"“{name[:LONGEST]}” {said}", line=line) for name, line in repeated_names(text)]


def _must_be(value: str | None) -> str:
    said = f"must stay “{value}”" if value is not None else "must stay missing"
    return f"is locked and {said}: it says what the message is about."


def _said(found: Values, path: str) -> str | None:
    place = found.get(path)
    value = value_of(place.text) if place and place.text else None
    return None if value is None else str(value)


def in_order(faults: Sequence[Fault]) -> list[Fault]:
    """As they stand in the text; what is about the whole comes last."""
    return sorted(faults, key=lambda fault: (fault.line is None, fault.line or 0))
