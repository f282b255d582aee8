"""The scripted flow is the only one."""

import pytest

from tests.outbox.replay_batches.scripted_flow import PATHS, Scripted


@pytest.fixture(autouse=True)
def scripted(settings):
    settings.FLOWS = PATHS
    Scripted.forget()
    return Scripted
