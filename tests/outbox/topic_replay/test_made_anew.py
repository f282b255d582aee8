"""A topic that was deleted and created again: nothing of the new one is replayed as if it were the old one."""

from __future__ import annotations

import uuid
from datetime import timedelta
from types import SimpleNamespace

import pytest

from config.database.clock import database_now
from config.kafka.positions import Mark
from config.letters import Refusal
from outbox.bookkeeping.watermarks import Watermarks
from outbox.models import TopicReplay
from outbox.topic_replay import run

pytestmark = pytest.mark.django_db
TOPIC = "orders"


def begin(replay: TopicReplay, now_is: str) -> None:
    """A worker takes the replay over, and the broker calls the topic so."""
    frame = SimpleNamespace(topic=TOPIC, topic_id=now_is, tps=[(TOPIC, 0)])
    run._begin(replay, uuid.uuid4(), frame, SimpleNamespace(group=TOPIC))  # type: ignore[arg-type]


@pytest.fixture
def replay() -> TopicReplay:
    now = database_now()
    about = {"since": now - timedelta(hours=1), "until": now, "reason": "a try", "requested_by": "me"}
    return TopicReplay.objects.create(topic=TOPIC, created_at=now, bounds={"0": [0, 9]}, topic_id="old", **about)


def test_who_takes_over_does_not_go_on_in_another_topic(replay):
    with pytest.raises(Refusal, match="was created again since the replay began"):
        begin(replay, "new")


def test_its_worker_reads_it_before_anybody_replays_it(replay):
    Watermarks().advance(TOPIC, {(TOPIC, 0): Mark("old", 9)}, database_now())
    TopicReplay.objects.update(topic_id="")
    replay.refresh_from_db()
    with pytest.raises(Refusal, match="its worker has to be started with --accept-reset first"):
        begin(replay, "new")
