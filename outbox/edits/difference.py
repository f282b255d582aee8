"""The difference between two texts, line by line, with what changed inside a line. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

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


def count(lines: Sequence[DiffLine]) -> int:
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
