"""Every operation of the API's own document, asked by Schemathesis of a real web server: no 5xx, and only what the document says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from config.admin.levers import Operator
from notifications.api.orders import ORDER_ID
from notifications.api.tokens import issue
from notifications.models import Order
from tests.crash.platform import Platform
from tests.notifications.conftest import new_order
from tests.processes.conftest import database_url, embedded
from tests.processes.web import PLAIN, Site

# The tokens of the routes that begin so; what is asked without one, or with a wrong one, has to be refused.
TOKENS = {"orders": {}, "messages": {"channels": "email,kafka"}, "transactional": {"customer_id": "C-7"}}
ROUTE = '[[operations]]\ninclude-path-regex = "^/v1/{}"\nheaders = {{ Authorization = "Bearer {}" }}\n'
# Which address, currency, channel or mail there is, no schema says.
CHECKS = "[checks]\npositive_data_acceptance.enabled = false\n"
OPTIONS = [
    "--phases=examples,coverage,fuzzing", "--max-examples=5", "--generation-deterministic", "--continue-on-failure", "--workers=2",
    "--suppress-health-check=all", "--warnings=off", "--no-color",
]  # fmt: skip


@pytest.fixture
def platform(transactional_db: None, tmp_path: Path) -> Iterator[Platform]:
    with contextmanager(embedded)("document.") as broker:
        with Platform(tmp_path, {**broker.environment, "DATABASE_URL": database_url()}) as found:
            yield found


def test_each_operation_answers_as_the_document_says(platform: Platform, tmp_path: Path) -> None:
    pytest.importorskip("schemathesis", reason="pip install schemathesis")
    Order.objects.filter(pk=new_order().pk).update(id=ORDER_ID)  # the examples are about this one
    routes = [ROUTE.format(route, issue(route, Operator("test"), rate=0, **more)[1]) for route, more in TOKENS.items()]
    settings = tmp_path / "schemathesis.toml"
    settings.write_text(CHECKS + "".join(routes))
    site = Site()
    platform.run(site.program, "web", PLAIN)
    site.wait()
    asked = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", f"--config-file={settings}", "run",
         f"http://127.0.0.1:{site.port}/api/openapi.json", *OPTIONS],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stdout[-5000:] + asked.stderr[-2000:]
    assert "Tested: 9" in asked.stdout
