"""The settings of a demo with a third of the processes, for what is true of any of them."""

from config.settings import *  # noqa: F403

FLOWS = ["outbox.flow.Outbox"]
