"""Checks of an edited copy: the difference to the letter, errors with line and path, locked values. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import Literal, NamedTuple

from django.utils.text import capfirst

# -- The difference between two texts, line by line, with what changed inside a line. Pure -------------------
WHOLE = 60  # lines of a text that is shown whole
AROUND = 3  # of a longer one, lines before and after a change
MOST = 500  # lines shown
COMPARED = 1_000_000  # pairs of lines, or of letters in all lines; of more, which takes seconds, all count as changed


class Piece(NamedTuple):
    """Some of a line, and whether it is only on this side."""

    text: str
    changed: bool = False


class DiffLine(NamedTuple):
    """A line of the one text, of the other or of both; `gap` stands for lines that are the same."""

    number: int
    sign: str  # -, + or empty
    pieces: Sequence[Piece]
    gap: bool = False


def difference(before: str, after: str) -> list[DiffLine]:
    """What turns `before` into `after`; nothing when they are the same."""
    old, new = before.splitlines(), after.splitlines()
    if old == new:
        return []
    lines: list[DiffLine] = []
    end = 0
    around = AROUND if len(new) > WHOLE else WHOLE
    for group in BoundedMatcher(old, new).get_grouped_opcodes(around):
        if group[0][3] > end:
            lines.append(DiffLine(0, "", (), gap=True))
        for code in group:
            lines += _lines(code, old, new)
        end = group[-1][4]
    if end < len(new):
        lines.append(DiffLine(0, "", (), gap=True))
    return lines[:MOST]


def count_changes(lines: Sequence[DiffLine]) -> int:
    """Lines of either text that the other has not."""
    added = sum(line.sign == "+" for line in lines)
    return max(added, sum(line.sign == "-" for line in lines))


# What is done, from and to in the old text, from and to in the new one.
Change = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]


class BoundedMatcher(SequenceMatcher[str]):
    """Finds what difflib finds between the first and the last item that differ, unless they make more than `most` pairs."""

    def __init__(self, old: Sequence[str], new: Sequence[str], most: int = COMPARED) -> None:
        super().__init__()  # it is given nothing: indexing all of `new` would be in vain
        self.old, self.new, self.most = old, new, most

    def get_opcodes(self) -> list[Change]:
        shorter = min(len(self.old), len(self.new))
        head = next((n for n in range(shorter) if self.old[n] != self.new[n]), shorter)
        tail = next((n for n in range(shorter - head) if self.old[-1 - n] != self.new[-1 - n]), shorter - head)
        last, stop = len(self.old) - tail, len(self.new) - tail
        middle: list[Change] = [("replace", head, last, head, stop)]
        if (last - head) * (stop - head) <= self.most:
            codes = SequenceMatcher(None, self.old[head:last], self.new[head:stop]).get_opcodes()
            middle = [(tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in codes]
        return [("equal", 0, head, 0, head), *middle, ("equal", last, len(self.old), stop, len(self.new))]


def _lines(code: tuple[str, int, int, int, int], old: list[str], new: list[str]) -> Iterator[DiffLine]:
    tag, first, last, start, stop = code
    if tag == "equal":
        yield from (DiffLine(n + 1, "", [Piece(new[n])]) for n in range(start, stop))
        return
    most = COMPARED // max(len(old), len(new))
    pairs = [_pieces(*lines, most) for lines in list(zip(old[first:last], new[start:stop], strict=False))[:MOST]]
    yield from (DiffLine(first + n + 1, "-", _side(pairs, 0, n, old[first + n])) for n in range(last - first))
    yield from (DiffLine(start + n + 1, "+", _side(pairs, 1, n, new[start + n])) for n in range(stop - start))


def _side(pairs: Sequence[tuple[list[Piece], list[Piece]]], side: int, n: int, text: str) -> list[Piece]:
    return pairs[n][side] if n < len(pairs) else [Piece(text, changed=True)]


def _pieces(old: str, new: str, most: int) -> tuple[list[Piece], list[Piece]]:
    codes = BoundedMatcher(old, new, most).get_opcodes()
    before = [Piece(old[first:last], tag != "equal") for tag, first, last, _, _ in codes if last > first]
    return before, [Piece(new[start:stop], tag != "equal") for tag, _, _, start, stop in codes if stop > start]


# -- Where each value of a JSON text stands ------------------------------------------------------------------
# Its path, its line and how it is written; also in a text that is broken. Pure.
# A string that nobody closes ends with its line: looked for from each of its quotes, the end would cost the square.
TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*+(?:"|\\?(?=\n|\Z))|[{}\[\],:\n]|[^\s{}\[\],:"]+')


DEEPEST = 64  # levels; no gate takes half as many, and a path is as long as they are many


class JsonPlace(NamedTuple):
    """A value: the line it begins in, and its text; no text for a list or an object."""

    line: int
    text: str = ""


class Level:
    """An object or a list that is still open, and the member that is being read."""

    def __init__(self, kind: str) -> None:
        self.is_list = kind == "["
        self.index = 0
        self.name: str | None = None

    def next(self) -> None:
        self.index, self.name = self.index + 1, None

    def __str__(self) -> str:
        return f"[{self.index}]" if self.is_list else f".{self.name}"


def places(text: str) -> dict[str, JsonPlace]:
    """`{"items[1].quantity": JsonPlace}`; of a name that stands twice, the last, as decoders read it.

    The whole has an empty path. What is nested too deep ends the list.
    """
    by_path: dict[str, JsonPlace] = {}
    levels: list[Level] = []
    line = 1
    for word in TOKEN.findall(text):
        if word == "\n":
            line += 1
        elif word in "{[":
            by_path[_path(levels)] = JsonPlace(line)
            levels.append(Level(word))
            if len(levels) > DEEPEST:
                break
        elif word in "}]":
            del levels[-1:]
        elif word == ",":
            for level in levels[-1:]:
                level.next()
        elif word != ":":
            _take(by_path, levels, word, line)
    return by_path


def repeated_names(text: str) -> list[tuple[str, int]]:
    """Names that stand more than once in one object, at any depth, with the line in which each stands last."""
    twice: set[str] = set()

    def look(members: Sequence[tuple[str, object]]) -> None:
        twice.update(name for name, number in Counter(name for name, _ in members).items() if number > 1)

    try:
        json.loads(text, object_pairs_hook=look)
    except (ValueError, RecursionError):
        return []  # what the gate says of it is enough
    lines: dict[str, int] = {}
    line, words = 1, TOKEN.findall(text)
    for word, after in pairwise(words):
        line += word == "\n"
        if after == ":" and (name := value_of(word)) in twice:
            lines[str(name)] = line
    return sorted(lines.items(), key=lambda place: place[1])


def _take(by_path: dict[str, JsonPlace], levels: list[Level], word: str, line: int) -> None:
    """A name, or a value."""
    if levels and not levels[-1].is_list and levels[-1].name is None:
        levels[-1].name = _name(word)
    else:
        by_path[_path(levels)] = JsonPlace(line, word)


def _path(levels: list[Level]) -> str:
    return "".join(map(str, levels)).removeprefix(".")


def _name(word: str) -> str:
    """A name with a dot in it must not look like a path."""
    value = value_of(word)
    return (value if isinstance(value, str) else word).replace(".", "\\.")


def value_of(word: str) -> str | int | float | bool | None:
    """What a scalar says; None for what is none."""
    try:
        value = json.loads(word)
    except ValueError:
        return None
    return value if isinstance(value, str | int | float) else None


def line_of(by_path: dict[str, JsonPlace], path: str) -> int | None:
    """The line of a value, or of the nearest one around it."""
    while path and path not in by_path:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return by_path[path].line if path in by_path else None


# -- What is wrong with an edited copy: the gate's errors with line and path, and what is locked. Pure -------
# As msgspec says it: "… - at `$.items[1].quantity`", "… (byte 23)".
AT = re.compile(r"(?<!\s)\s*-? ?at `\$\.?([^`]*)`")
MISSING = re.compile(r"missing required field `([^`]+)`")
BYTE = re.compile(r"(?<!\s)\s*\(byte (\d+)\)")
LONGEST_VALUE = 60  # characters of a value that are repeated
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
        place = ", ".join(part for part in (line, self.path) if part)
        return capfirst(place) if line else place


def located(error: str, text: str) -> Fault:
    """An error of the gate about `text`."""
    if match := BYTE.search(error):
        before = text.encode()[: int(match[1])]
        return Fault(BYTE.sub("", error), line=before.count(b"\n") + 1)
    if TRUNCATED in error and not AT.search(error):
        return Fault(error, line=text.rstrip().count("\n") + 1)
    match = AT.search(error)
    path = match[1] if match else ""
    values = places(text)
    if missing := MISSING.search(error):
        inner = f"{path}.{missing[1]}".removeprefix(".")
        return Fault("is missing.", inner, line_of(values, path))
    if not path:
        return Fault(AT.sub("", error))
    written = _said(values, path)
    wrote = f" You wrote “{written[:LONGEST_VALUE]}”." if written else ""
    return Fault(f"{_in_words(AT.sub('', error))}{wrote}", path, line_of(values, path))


def _in_words(error: str) -> str:
    """What the decoder says of types and bounds, as a person would; all else as it is."""
    if match := EXPECTED.search(error):
        wanted, given = (KINDS.get(name, name) for name in match.groups())
        return f"must be {wanted}, not {given}."
    if match := BOUND.search(error):
        return f"must be {KINDS[match[1]]}, {match[2]} or more."
    return "must not be empty." if EMPTY.search(error) else f"{error.replace('`', '')}."


def locked_values(text: str, locked: Iterable[str], wrong: Collection[str] = ()) -> dict[str, str | None]:
    """What of the stored payload a copy has to repeat, by path; None where it must be missing as it is.

    A value that is missing, empty or `wrong` by the gate's word says nothing yet, and is free.
    """
    values = places(text)
    return dict(_locked(values, locked, wrong, whole=bool(values) and text.rstrip().endswith("}")))


def _locked(
    values: Values, locked: Iterable[str], wrong: Collection[str], whole: bool
) -> Iterator[tuple[str, str | None]]:
    for name in locked:
        path = name.removesuffix("?")
        value = _said(values, path)
        if value and path not in wrong:
            yield path, value
        elif value is None and path != name and whole and _siblings(values, locked, path):
            yield path, None


def _siblings(values: Values, locked: Iterable[str], path: str) -> bool:
    """Whether another locked path has a value: then one that is missing means something."""
    return any(_said(values, name) for name in locked if name != f"{path}?")


def locked_faults(text: str, wanted: dict[str, str | None]) -> list[Fault]:
    """Where a copy says something else than it has to."""
    values = places(text)
    return [
        Fault(_must_be(value), path, line_of(values, path) if path in values else None)
        for path, value in wanted.items()
        if _said(values, path) != value
    ]


def repeated_faults(text: str) -> list[Fault]:
    """Where a name stands twice in one object: readers differ in which one counts, and only one of them was compared."""
    said = "stands twice in one object: it must stand there once."
    return [Fault(f"“{name[:LONGEST_VALUE]}” {said}", line=line) for name, line in repeated_names(text)]


def _must_be(value: str | None) -> str:
    said = f"must stay “{value}”" if value is not None else "must stay missing"
    return f"is locked and {said}: it says what the message is about."


def _said(values: Values, path: str) -> str | None:
    place = values.get(path)
    value = value_of(place.text) if place and place.text else None
    return None if value is None else str(value)


def in_order(faults: Sequence[Fault]) -> list[Fault]:
    """As they stand in the text; what is about the whole comes last."""
    return sorted(faults, key=lambda fault: (fault.line is None, fault.line or 0))
