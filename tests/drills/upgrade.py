"""The drill about a new version: a test with the code of before and of today side by side, and the way back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

from tests.drills.stage import Drill, Plan
from tests.tree import ROOT

TEST = "tests/processes/test_upgrade.py"


class Upgrade(Drill):
    """The test itself says what is asked; it is too long for a suite that runs with each change."""

    watched = False
    staged = "the code before the newest migration and today's work side by side, under load, and back again"

    def refusal(self, plan: Plan) -> str:
        return "" if plan.url.startswith("postgres") else "it runs on PostgreSQL: name one by --database"

    def run(self, plan: Plan, say: Callable[[str], None]) -> bool:
        command = [sys.executable, "-m", "pytest", "-q", "--create-db", "-p", "no:cacheprovider", TEST]
        database = f"{plan.url}_upgrade_{os.getpid()}"
        environment = {
            "UPGRADE": "1",
            "DATABASE_URL": database,
            "TEST_KAFKA_SERVERS": plan.servers,
            "START_SERVICES": "0",
        }
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
        for line in done.stdout.strip().splitlines()[-1 if done.returncode == 0 else -40 :]:
            say(line)
        return done.returncode == 0
