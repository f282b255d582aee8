"""Rows of a CSV file that a command imports."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path

from config.environment.env import BadSetting


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
