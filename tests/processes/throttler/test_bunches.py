"""POST /v1/transactional by a real web server that is killed or frozen in the middle of a bunch: the same request gets the same ids."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from django.db.models import F

from config.admin.levers import Operator
from notifications.api.tokens import issue
from outbox.models import IdempotencyKey
from tests.crash.wire import wait_for
from tests.processes.throttler.throttlers import Throttlers
from tests.processes.web import FROZEN, HALF, PLAIN, Site
from throttler.api import ids_of

PATH = "/v1/transactional"
COUNT = 100
BODY = {"recipients": [f"user{number}@example.com" for number in range(COUNT)], "message": {"text": "hello"}}
KEY = "bunch-1"


def started(throttlers: Throttlers, point: str = "") -> Site:
    site = Site(point)
    throttlers.platform.run(site.program, f"web-{point}", PLAIN)
    site.wait()
    return site


@pytest.mark.kafka
@pytest.mark.parametrize(("point", "twice"), [("claimed", 0), (HALF, COUNT // 2), ("produced", COUNT)])
def test_a_web_server_that_dies_in_a_bunch_repeats_the_ids(throttlers: Throttlers, point: str, twice: int) -> None:
    token, text = issue("acme", Operator("test"), rate=0, customer_id="acme")
    assert started(throttlers, point).post(PATH, BODY, text, KEY).status == 0
    heir = started(throttlers)
    early = heir.post(PATH, BODY, text, KEY)
    assert (early.status, early.body["code"]) == (409, "in_progress")
    # A minute passes.
    assert IdempotencyKey.objects.filter(key=KEY).update(created_at=F("created_at") - timedelta(seconds=60)) == 1
    done, again = (heir.post(PATH, BODY, text, KEY) for _ in range(2))
    assert (done.status, done.body["ids"]) == (202, ids_of(token.pk, KEY, COUNT))
    assert again == done
    found = Counter(json.loads(record.value)["notification_id"] for record in throttlers.input.read() if record.value)
    assert found.keys() == set(done.body["ids"])
    assert sorted(found.values()) == [1] * (COUNT - twice) + [2] * twice


@pytest.mark.kafka
def test_a_web_server_that_is_frozen_past_its_claim_sends_nothing(throttlers: Throttlers) -> None:
    """Its heir has the key and has sent the bunch; it wakes up right before it would."""
    token, text = issue("acme", Operator("test"), rate=0, customer_id="acme")
    frozen, heir = Site("claimed", "freeze"), started(throttlers)
    worker = throttlers.platform.run(frozen.program, "web-frozen", PLAIN)
    frozen.wait()
    with ThreadPoolExecutor(1) as caller:
        late = caller.submit(frozen.post, PATH, BODY, text, KEY)
        wait_for(lambda: FROZEN in worker.text, 60, "the web server to freeze")
        # A minute passes.
        assert IdempotencyKey.objects.filter(key=KEY).update(created_at=F("created_at") - timedelta(seconds=60)) == 1
        done = heir.post(PATH, BODY, text, KEY)
        found = re.search(rf"{FROZEN}(\d+)", worker.text)
        assert found
        os.kill(int(found[1]), signal.SIGCONT)
        assert (late.result().status, late.result().body.get("code")) == (409, "in_progress")
    assert (done.status, done.body["ids"]) == (202, ids_of(token.pk, KEY, COUNT))
    assert frozen.post(PATH, BODY, text, KEY) == done
    sent = [json.loads(record.value)["notification_id"] for record in throttlers.input.read() if record.value]
    assert sorted(sent) == sorted(done.body["ids"])
