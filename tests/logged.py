"""What the production code has logged, as the tests read it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from config.telemetry.logs import as_json


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The fields of each line so far."""
    said = [record.msg for record in caplog.records if record.name == "spillway" and isinstance(record.msg, dict)]
    return [json.loads(as_json(line)) for line in said]
