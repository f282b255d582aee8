"""What several flows ask for one page or one scrape: read once, for all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Answer = TypeVar("Answer")
Names = Collection[str] | None  # None: of all

_answers: ContextVar[dict[Hashable, Any] | None] = ContextVar("answers", default=None)


@contextmanager
def asked_together() -> Iterator[None]:
    """Within this, what `of_names` reads is read once for all names; at its end it is forgotten, so no page shows another's.

    Nothing may be written within it, and no generator may hold it open.
    """
    token = _answers.set({})
    try:
        yield
    finally:
        _answers.reset(token)


def of_names(read: Callable[..., Answer], names: Names, *more: Hashable) -> Answer:
    """`read(names, *more)`, or of more names than these: `read(None, *more)`, where several ask together."""
    answers = _answers.get()
    if answers is None:
        return read(names, *more)
    asked = (read, more)
    if asked not in answers:
        answers[asked] = read(None, *more)
    answer: Answer = answers[asked]
    return answer
