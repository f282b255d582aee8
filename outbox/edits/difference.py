"""The difference between two texts, line by line, with what changed inside a line. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

WHOLE = 60  # lines of a text that is shown whole
AROUND = 3  # of a longer one, lines before and after a change
MOST = 500  # lines shown
COMPARED = 1_000_000  # pairs of lines; of more, which takes seconds, all are shown as changed


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


def count(lines: Sequence[DiffLine]) -> int:
    """Lines of either text that the other has not."""
    added = sum(line.sign == "+" for line in lines)
    return max(added, sum(line.sign == "-" for line in lines))


# What is done, from and to in the old text, from and to in the new one.
Change = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]


class BoundedMatcher(SequenceMatcher[str]):
    """Finds what difflib's own finds between the first and the last line that differ, in a time that no text makes long."""

    def __init__(self, old: list[str], new: list[str]) -> None:
        super().__init__(None, old, new)
        self.old, self.new = old, new

    def get_opcodes(self) -> list[Change]:
        head, tail = _alike(self.old, self.new)
        last, stop = len(self.old) - tail, len(self.new) - tail
        middle: list[Change] = [("replace", head, last, head, stop)]
        if (last - head) * (stop - head) <= COMPARED:
            codes = SequenceMatcher(None, self.old[head:last], self.new[head:stop]).get_opcodes()
            middle = [(tag, a + head, b + head, c + head, d + head) for tag, a, b, c, d in codes]
        return [("equal", 0, head, 0, head), *middle, ("equal", last, len(self.old), stop, len(self.new))]


def _lines(code: tuple[str, int, int, int, int], old: list[str], new: list[str]) -> Iterator[DiffLine]:
    tag, first, last, start, stop = code
    if tag == "equal":
        yield from (DiffLine(n + 1, "", [Piece(new[n])]) for n in range(start, stop))
        return
    pairs = [_pieces(*lines) for lines in zip(old[first:last], new[start:stop], strict=False)][:MOST]
    yield from (DiffLine(first + n + 1, "-", _side(pairs, 0, n, old[first + n])) for n in range(last - first))
    yield from (DiffLine(start + n + 1, "+", _side(pairs, 1, n, new[start + n])) for n in range(stop - start))


def _side(pairs: Sequence[tuple[list[Piece], list[Piece]]], side: int, n: int, text: str) -> list[Piece]:
    return pairs[n][side] if n < len(pairs) else [Piece(text, changed=True)]


def _pieces(old: str, new: str) -> tuple[list[Piece], list[Piece]]:
    """The letters between the first and the last that differ."""
    head, tail = _alike(old, new)
    sides = []
    for text in (old, new):
        end = len(text) - tail
        parts = [Piece(text[:head]), Piece(text[head:end], changed=True), Piece(text[end:])]
        sides.append([part for part in parts if part.text])
    return sides[0], sides[1]


def _alike(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many items at the start are the same, and how many of the others at the end."""
    most = min(len(old), len(new))
    head = next((n for n in range(most) if old[n] != new[n]), most)
    tail = next((n for n in range(most - head) if old[-1 - n] != new[-1 - n]), most - head)
    return head, tail
