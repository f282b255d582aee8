"""POST /v1/messages by a real web server that is killed before and behind its COMMIT: the same request, and each is promised once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from config.admin.levers import Operator
from notifications.api.tokens import issue
from outbox.models import IdempotencyKey, OutboxMessage
from tests.crash.platform import Platform
from tests.outbox.intake.conftest import envelope
from tests.processes.conftest import assert_verified, database_url
from tests.processes.web import PLAIN, Reply, Site

COUNT = 100
BODY = {"messages": [envelope(f"k{number}", aggregate=f"a{number}") for number in range(COUNT)]}


@pytest.fixture
def platform(transactional_db: None, tmp_path: Path) -> Iterator[Platform]:
    with Platform(tmp_path, {"DATABASE_URL": database_url()}) as found:
        yield found


def started(platform: Platform, point: str = "") -> Site:
    site = Site(point)
    platform.run(site.program, f"web-{point}", PLAIN)
    site.wait()
    return site


@pytest.mark.parametrize(("point", "kept"), [("stored", 0), ("committed", COUNT)])
def test_a_web_server_that_dies_before_its_answer_has_promised_all_or_nothing(
    platform: Platform, point: str, kept: int
) -> None:
    text = issue("billing", Operator("test"), rate=0, channels="email")[1]
    assert ask(started(platform, point), text).status == 0
    assert OutboxMessage.objects.count() == kept
    heir = started(platform)
    first, again = ask(heir, text), ask(heir, text)
    assert (first.status, again) == (202, first)
    promised = [message["id"] for message in first.body["messages"]]
    assert promised == [str(pk) for pk in OutboxMessage.objects.order_by("id").values_list("pk", flat=True)]
    assert len(promised) == COUNT
    assert IdempotencyKey.objects.count() == COUNT + 1
    assert_verified()


def ask(site: Site, text: str) -> Reply:
    return site.post("/v1/messages", BODY, text, "run-1")
