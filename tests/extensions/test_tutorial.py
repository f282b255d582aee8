"""docs/tutorial.md, followed from its first line to its last with the wheel, PostgreSQL and Kafka."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import subprocess
import sys
import sysconfig
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.db import connection

from tests.crash.platform import free_port
from tests.crash.wire import Wire
from tests.databases import empty_database
from tests.extensions.test_wheel import built_wheel
from tests.tree import ROOT, read

FENCE = re.compile(r"^```(\w+)\n(?:# (\S+\.\w+)\n)?(.*?)^```$", re.DOTALL | re.MULTILINE)
PATCH = "import sys; from pathlib import Path; from tests.docs.test_adding import apply; apply('diff', Path(sys.argv[1]), sys.stdin.read())"
SERVERS = os.environ.get("TEST_KAFKA_SERVERS", "")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.kafka,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="its production is on PostgreSQL"),
    pytest.mark.skipif(not SERVERS, reason="TEST_KAFKA_SERVERS names no Apache Kafka"),
]


def script(page: str) -> Iterator[str]:
    """What a reader types, in one shell: commands, files that are made, and lines of files that are changed."""
    for language, file, text in FENCE.findall(page):
        if not file:
            yield text
        elif language == "diff":
            patch = shlex.join([sys.executable, "-c", PATCH])
            yield f"PYTHONPATH={ROOT} {patch} {file} <<'END OF FILE'\n{text}END OF FILE\n"
        else:
            yield f"cat > {file} <<'END OF FILE'\n{text}END OF FILE\n"


def test_the_tutorial_leads_where_it_says(django_db_blocker, tmp_path):
    port = str(free_port())
    told = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "WHEEL": str(built_wheel(tmp_path)), "PORT": port,
        # Nothing is asked of an index: what Spillway stands on is that of the tests. 0: builds are not isolated.
        "PYTHONPATH": sysconfig.get_path("purelib"), "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }  # fmt: skip
    topics = (*settings.KAFKA_TOPICS, "returned-parcels", "depot-returns")
    database = empty_database("tutorial", tmp_path)
    with django_db_blocker.unblock(), database as url, Wire.of_a_run(SERVERS, "tutorial", *topics) as wire:
        page = read(ROOT / "docs" / "tutorial.md").replace("postgres://spillway:secret@127.0.0.1:5432/spillway", url)
        page = page.replace("127.0.0.1:9092", SERVERS).replace("PREFIX=tutorial.", f"PREFIX={wire.prefix}")
        typed = tmp_path / "typed.sh"
        typed.write_text("trap 'kill $(jobs -p) || true' EXIT\n" + "".join(script(page)))
        done = subprocess.run(
            ["timeout", "600", "bash", "-ex", typed], cwd=tmp_path, env=told, text=True, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    said = done.stdout
    assert done.returncode == 0, said[-5000:]
    assert "Nothing is missing." in said
    demo = sqlite3.connect(tmp_path / "parcels" / "var" / "demo" / port / "spillway.sqlite3")
    assert demo.execute("SELECT COUNT(*) FROM buffer_batch WHERE stream = 'returned-parcels'").fetchone()[0] > 0
    assert '"return_ids":["R0","R1"],"lines":[{"sku":"S1","quantity":4}]' in said.replace(" ", "")
    assert "R2" in said
