"""The difference between two texts, line by line, with what changed inside a line. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

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
    matcher: SequenceMatcher[str] = SequenceMatcher(None, old, new)
    matcher.opcodes = list(_changes(old, new))  # what it would find by itself, in a time that no text makes long
    lines: list[DiffLine] = []
    end = 0
    around = AROUND if len(new) > WHOLE else WHOLE
    for group in matcher.get_grouped_opcodes(around):
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


Change = tuple[str, int, int, int, int]  # what is done, from and to in the old text, from and to in the new one


def _changes(old: list[str], new: list[str]) -> Iterator[Change]:
    head, tail = _alike(old, new)
    last, stop = len(old) - tail, len(new) - tail
    yield "equal", 0, head, 0, head
    if (last - head) * (stop - head) > COMPARED:
        yield "replace", head, last, head, stop
    else:
        for tag, *places in SequenceMatcher(None, old[head:last], new[head:stop]).get_opcodes():
            a, b, c, d = (place + head for place in places)
            yield tag, a, b, c, d
    yield "equal", last, len(old), stop, len(new)


def _lines(code: Change, old: list[str], new: list[str]) -> Iterator[DiffLine]:
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
