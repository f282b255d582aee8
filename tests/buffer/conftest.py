"""What must hold of the aggregator behind a test, whatever it did."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from buffer.verify import checks, payload_checks


@pytest.fixture
def everything_adds_up(db: None) -> Iterator[None]:
    yield
    assert [check for check in [*checks(["transfer-requests"]), *payload_checks()] if not check.ok] == []
