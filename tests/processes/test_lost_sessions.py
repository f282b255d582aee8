"""A failover as the workers see it: every session of the database ends at once, and every process goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from tests.lost_sessions import end_sessions
from tests.processes.conftest import assert_verified, database_url
from tests.processes.everybody import everybody

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no server that could end a session"),
]


def test_every_process_goes_on_when_its_sessions_are_ended(tmp_path: Path, settings: Any) -> None:
    with everybody(tmp_path, settings, database_url()) as platform:
        platform.get_on()
        for _ in range(2):
            assert end_sessions(), "nobody had one"
            connection.close()  # ours has ended, too
            platform.get_on()
        platform.stop()
        platform.platform.manage(
            "run_throttler", "--until-idle", "5"
        )  # mirrors what the first had no time for at its end
        assert_verified()
