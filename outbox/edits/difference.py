"""The difference between two texts, line by line, with what changed inside a line. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

WHOLE = 60  # lines of a text that is shown whole
AROUND = 3  # of a longer one, lines before and after a change
LONGEST = 500  # characters of a line that is compared letter by letter
MOST = 500  # lines shown


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
    found: list[DiffLine] = []
    end = 0
    around = AROUND if len(new) > WHOLE else WHOLE
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(around):
        if group[0][3] > end:
            found.append(DiffLine(0, "", (), gap=True))
        for code in group:
            found += _lines(code, old, new)
        end = group[-1][4]
    if found and end < len(new):
        found.append(DiffLine(0, "", (), gap=True))
    return found[:MOST]


def count(lines: Sequence[DiffLine]) -> int:
    """Lines of either text that the other has not."""
    added = sum(line.sign == "+" for line in lines)
    return max(added, sum(line.sign == "-" for line in lines))


def _lines(code: tuple[str, int, int, int, int], old: list[str], new: list[str]) -> Iterator[DiffLine]:
    tag, first, last, start, stop = code
    if tag == "equal":
        yield from (DiffLine(n + 1, "", [Piece(new[n])]) for n in range(start, stop))
        return
    pairs = [_pieces(old[first + n], new[start + n]) for n in range(min(last - first, stop - start))]
    yield from (DiffLine(first + n + 1, "-", _side(pairs, 0, n, old[first + n])) for n in range(last - first))
    yield from (DiffLine(start + n + 1, "+", _side(pairs, 1, n, new[start + n])) for n in range(stop - start))


def _side(pairs: Sequence[tuple[list[Piece], list[Piece]]], side: int, n: int, text: str) -> list[Piece]:
    return pairs[n][side] if n < len(pairs) else [Piece(text, changed=True)]


def _pieces(old: str, new: str) -> tuple[list[Piece], list[Piece]]:
    if max(len(old), len(new)) > LONGEST:
        return [Piece(old)], [Piece(new)]
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    before = [Piece(old[first:last], tag != "equal") for tag, first, last, _, _ in codes if last > first]
    return before, [Piece(new[start:stop], tag != "equal") for tag, _, _, start, stop in codes if stop > start]
