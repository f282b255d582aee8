"""Models of the promises: every interleaving of workers, deaths and stalls, with each guard and without it."""

from __future__ import annotations

from tests.proof.models.delivery import DELIVERY
from tests.proof.models.positions import POSITIONS
from tests.proof.models.replay_batch import REPLAY_BATCH
from tests.proof.models.throttler import THROTTLER

MODELS = (DELIVERY, POSITIONS, REPLAY_BATCH, THROTTLER)
