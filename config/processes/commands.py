"""What commands share: output in which a text from outside does nothing, and the rows of a CSV file that one imports."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from django.conf import settings
from django.core.management.base import BaseCommand, OutputWrapper

from config.environment.env import BadSetting
from config.telemetry.redaction import visible


def program() -> list[str]:
    """What Python runs before the name of a command: `manage.py` in a checkout, a module where Spillway is installed."""
    return ["manage.py"] if settings.IS_CHECKOUT else ["-m", "spillway_ext.command_line"]


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


def numbered_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of every row that is not empty; raises BadSetting when the file is not such a table."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            if [name.strip() for name in next(reader, [])] != list(columns):
                raise BadSetting(f"{path}: the first line must be {','.join(columns)}")
            for cells in reader:
                if any(cells):
                    yield reader.line_num, cells
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadSetting(f"{path}: {error}") from error
