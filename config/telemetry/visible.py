"""Texts from outside where people read them: what a terminal would obey, or what turns the reading direction, is written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.core.management.base import BaseCommand, OutputWrapper


def visible(text: str, kept: str = "\n") -> str:
    """Write control and direction characters as escapes, all but those `kept`: they would be invisible, and may be the fault."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in kept else ascii(char)[1:-1] for char in text)


def on_one_line(text: object) -> str:
    r"""The same for one field of a line: a line that a stranger began would look like ours."""
    return visible(str(text), kept="")


def table_row(cells: Sequence[object], widths: Sequence[int]) -> str:
    """One line of a table: cells beside each other, what is too long for its column cut off; the last column ends nowhere."""
    texts = [on_one_line(cell) for cell in cells]
    short = [
        text if len(text) <= width else f"{text[: width - 1]}…" for text, width in zip(texts, widths, strict=False)
    ]
    padded = [text.ljust(width) for text, width in zip(short, widths, strict=True)]
    return "  ".join([*padded, *texts[len(widths) :]]).rstrip()


class VisibleOutput(OutputWrapper):
    """Where a command writes; a payload, a key or what a server answered stands there as text and does nothing."""

    def write(self, msg: str = "", style_func: Callable[[str], str] | None = None, ending: str | None = None) -> None:  # type: ignore[override]
        super().write(visible(msg, kept="\n\t"), style_func, ending)


class VisibleCommand(BaseCommand):
    """The base of every command: stdout and stderr, also those that somebody gives to `call_command`, are visible ones."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("stdout", "stderr") and isinstance(value, OutputWrapper):
            value = VisibleOutput(value._out, value.ending)  # type: ignore[arg-type]
        super().__setattr__(name, value)
