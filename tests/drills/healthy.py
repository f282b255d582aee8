"""The drill without a failure: nothing that a person should hear of may be heard."""

from __future__ import annotations

from tests.drills.stage import Drill

COMMANDS = (
    "ingest_events", "flush_buffer", "track_inventory", "ingest_messages", "relay_outbox", "run_throttler", "replay_letters",
    "notify_people", "beat",
)  # fmt: skip


class Healthy(Drill):
    """Workers of every flow and beat, and traffic of every flow."""

    staged = "nothing: workers of every flow and beat work, with traffic of every flow"
    workers = tuple((name,) for name in COMMANDS)
    flow = ""
