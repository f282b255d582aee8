"""Throttlers on the test database, as most of these tests want them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes.throttler.throttlers import Throttlers, throttlers_on


@pytest.fixture
def throttlers(transactional_db: None, tmp_path: Path) -> Iterator[Throttlers]:
    with throttlers_on(tmp_path) as found:
        yield found
