"""An upgrade and its rollback under load: the code of before and of now side by side on the schema of now."""

from __future__ import annotations

import itertools
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connection

from config.admin.levers import Operator
from notifications.api.tokens import issue
from outbox.models import OutboxMessage
from tests.crash.platform import Platform
from tests.crash.wire import wait_for
from tests.processes.conftest import assert_verified, database_url
from tests.processes.everybody import Everybody, everybody
from tests.processes.web import Site
from tests.tree import ROOT

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(
        os.environ.get("UPGRADE") != "1", reason="minutes of waiting: `make drill NAME=upgrade` runs it"
    ),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="what the schemas say is the same on all"),
]
MIGRATIONS = "*/migrations/[0-9]*.py"


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """The code of the commit before the newest migration."""
    try:
        commit = git("log", "-1", "--format=%H^", "--", MIGRATIONS)
        git("cat-file", "-e", commit)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("the commit before the newest migration is not here: this is no clone with its history")
    folder = tmp_path / "before"
    folder.mkdir()
    packed = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    return folder


@pytest.fixture
def old_schema(before: Path, transactional_db: None) -> Iterator[None]:
    """The test database as that code has it; afterwards as it was."""
    for app in apps.get_app_configs():
        if known := sorted(file.stem for file in (before / app.label / "migrations").glob("[0-9]*.py")):
            call_command("migrate", app.label, known[-1], verbosity=0)
    yield
    call_command("migrate", verbosity=0)


class Shop:
    """Somebody who sells all the time by the API, at each of its sites in turn."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.sites: list[Site] = []
        self.paid: list[str] = []
        self.failed: list[str] = []
        self.asked = threading.Lock()  # held during a request: no site leaves in the middle of one
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self._sell, daemon=True)

    def __enter__(self) -> Shop:
        self.thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.closed.set()
        self.thread.join(120)

    def turn_to(self, *sites: Site) -> None:
        """What a balancer does that asks /readyz."""
        for site in sites:
            wait_for(lambda site=site: site.get("/readyz").status == 200, 120, "a site to be ready")
        with self.asked:
            self.sites = list(sites)

    def goes_on(self) -> None:
        had = len(self.paid)
        wait_for(lambda: len(self.paid) > had + 5, 60, "the shop to sell")
        assert self.failed == []

    def _sell(self) -> None:
        for turn in itertools.count():
            if self.closed.wait(0.1):
                return
            with self.asked:
                if self.sites:
                    self._sell_one(self.sites[turn % len(self.sites)], self.sites[(turn + 1) % len(self.sites)], turn)

    def _sell_one(self, site: Site, other: Site, turn: int) -> None:
        """Created at one site, paid at the next."""
        order = {"user_email": f"buyer.{turn}@example.com", "total_amount": 1999, "currency": "EUR"}
        made = site.post("/v1/orders", order, self.token, f"make-{turn}")
        paid = other.post(f"/v1/orders/{made.body.get('id')}/pay", {}, self.token, f"pay-{turn}")
        if (made.status, paid.status) == (201, 200):
            self.paid.append(made.body["id"])
        elif paid.body.get("code") != "illegal_transition":  # sample traffic was faster
            self.failed.append(f"{made} {paid}")


def test_upgrade_and_rollback_lose_nothing_and_fail_no_request(
    before: Path, old_schema: None, tmp_path: Path, settings: Any
) -> None:
    with everybody(folder(tmp_path, "old"), settings, database_url(), root=before) as old, Shop(token()) as shop:
        shop.turn_to(old.site)
        old.get_on()
        shop.goes_on()
        with Platform(folder(tmp_path, "new"), old.platform.environment) as platform:
            new = Everybody(platform)
            platform.manage("migrate")
            old.get_on()  # the code of before on the schema of now
            new.start()
            shop.turn_to(old.site, new.site)
            new.get_on()
            shop.goes_on()
            shop.turn_to(new.site)
            old.stop()
            new.get_on()
            shop.goes_on()
            with Platform(folder(tmp_path, "again"), old.platform.environment, root=before) as rolled_back:
                again = Everybody(rolled_back)
                again.start()
                shop.turn_to(new.site, again.site)
                shop.goes_on()
                shop.turn_to(again.site)
                new.stop()
                again.get_on()
                shop.goes_on()
                shop.closed.set()
                shop.thread.join(60)
                wait_for(lambda: not OutboxMessage.objects.pending().exists(), 60, "every mail to be sent")
                again.stop()
            platform.manage("run_throttler", "--until-idle", "5")
        assert_verified()
        assert shop.failed == []
        sent = set(
            OutboxMessage.objects.filter(state="sent", event_type="order.paid").values_list("aggregate", flat=True)
        )
        assert {f"order:{order}" for order in shop.paid} <= sent


def folder(parent: Path, name: str) -> Path:
    (parent / name).mkdir()
    return parent / name


def token() -> str:
    return issue("shop", Operator("shop", None))[1]
