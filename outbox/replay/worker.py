"""The worker for the admin's replays: one after the other, each continued where the last worker stopped."""

from __future__ import annotations

import threading
import uuid

from config.database.clock import database_now
from config.database.errors import Remedy, remedy_for
from config.flows import Refusal
from config.kafka.client import DamagedBatch, KafkaError
from config.processes import loop
from config.telemetry.logs import log
from config.telemetry.redaction import said
from outbox.replay.models import TopicReplay
from outbox.replay.run import carry_out, fail

PAUSE = 2.0
AWAY = 10.0  # seconds before a replay whose broker was away is tried again


class ReplayWorker:
    """Leases and carries out the oldest free replay, until there is none."""

    def __init__(self, stop: threading.Event) -> None:
        self.stop = stop

    def run(self, *, once: bool = False, until_idle: float | None = None) -> None:
        loop.run(self.tick, self.stop, pause=lambda: PAUSE, once=once, until_idle=until_idle)

    def tick(self) -> int:
        """1 when a replay was worked on."""
        now = database_now()
        replay = TopicReplay.objects.next_in_line(now).first()
        if replay is None:
            return 0
        token = uuid.uuid4()
        if TopicReplay.objects.begin(replay.pk, token, now):
            replay.refresh_from_db()
            self._work(replay, token)
        return 1

    def _work(self, replay: TopicReplay, token: uuid.UUID) -> None:
        mine = TopicReplay.objects.run_by(token).filter(pk=replay.pk)
        try:
            ended = carry_out(replay, token, self.stop)
            log.info("replay_ended" if ended else "replay_left", replay=replay.pk, topic=replay.topic)
            mine.release(token)
        except (Refusal, DamagedBatch) as refusal:
            fail(replay, str(refusal))
        except KafkaError as error:
            log.warning("broker_unavailable", worker="replay_topic", error=str(error))
            mine.release(token, note=f"waits for Kafka: {error}"[:500])
            self.stop.wait(AWAY)
        except Exception as error:
            if remedy_for(error) in (Remedy.RERUN, Remedy.WAIT):
                raise  # the database is away; the lease runs out, and it goes on from what was saved
            log.exception("replay_failed", replay=replay.pk)
            fail(replay, f"{type(error).__name__}: {said(error)}")
