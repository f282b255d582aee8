"""Where each value of a JSON text stands: its path, its line and how it is written; also in a text that is broken. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

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
    found: dict[str, JsonPlace] = {}
    levels: list[Level] = []
    line = 1
    for word in TOKEN.findall(text):
        if word == "\n":
            line += 1
        elif word in "{[":
            found[_path(levels)] = JsonPlace(line)
            levels.append(Level(word))
            if len(levels) > DEEPEST:
                break
        elif word in "}]":
            del levels[-1:]
        elif word == ",":
            for level in levels[-1:]:
                level.next()
        elif word != ":":
            _take(found, levels, word, line)
    return found


def repeated_names(text: str) -> list[tuple[str, int]]:
    """Names that stand more than once in one object, at any depth, with the line in which each stands last."""
    twice: set[str] = set()

    def look(members: Sequence[tuple[str, Any]]) -> None:
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
    return sorted(lines.items(), key=lambda found: found[1])


def _take(found: dict[str, JsonPlace], levels: list[Level], word: str, line: int) -> None:
    """A name, or a value."""
    if levels and not levels[-1].is_list and levels[-1].name is None:
        levels[-1].name = _name(word)
    else:
        found[_path(levels)] = JsonPlace(line, word)


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


def line_of(found: dict[str, JsonPlace], path: str) -> int | None:
    """The line of a value, or of the nearest one around it."""
    while path and path not in found:
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return found[path].line if path in found else None
