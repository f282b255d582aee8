"""What a kafka-python client has to be told before it can work with the embedded broker."""

import time
from collections.abc import Mapping, Sized
from typing import Any

METADATA = 3
SYNC_HEAD_START = 0.09  # seconds; kafka-python warns about tasks that hold its loop for 0.1 s

# kafka-python opens with a request this broker answers in a form it cannot read, unless it is told a version
# of at most 2.3; from 2.4 on the group requests are misread, too.
CLIENT_OPTIONS: dict[str, Any] = {"api_version": (2, 3)}

# session_timeout_ms: a rebalance lasts this less one second, a killed member keeps its partitions for about
#   twice this. Measured until the successor has them: 3-4 s after a kill, 1-2.5 s after a clean end
#   (with 6000: 11-12 s and 5-6 s). A group_instance_id shortens nothing, it makes the clean end a kill.
# fetch_max_wait_ms: a waiting fetch is not woken by a new record; half of this is the mean latency.
# check_crcs: the end marker of a transaction carries no checksum.
CONSUMER_OPTIONS: dict[str, Any] = {
    **CLIENT_OPTIONS,
    "session_timeout_ms": 2000,
    "heartbeat_interval_ms": 300,
    "fetch_max_wait_ms": 50,
    "check_crcs": False,
}

# The same with topic ids, once kafka-python knows `api_versions` under this name.
API_VERSION = (2, 3, 1)

Versions = Mapping[int, tuple[int, int]]


def api_versions(known: Mapping[tuple[int, ...], Versions]) -> Versions:
    """The requests this broker really understands, as {API key: (lowest, highest version)}.

    `known` is kafka-python's own table; adding the result to it as API_VERSION makes topic ids visible:
    `BROKER_API_VERSIONS[API_VERSION] = api_versions(BROKER_API_VERSIONS)`.
    """
    return {**known[2, 3], METADATA: (0, 12)}


class PatientLeader:
    """To be mixed into a kafka-python assignor: the leader of a group speaks last.

    This broker ends a rebalance with the leader's SyncGroup and refuses those that come after it with
    INVALID_REQUEST. On a loaded machine that still happens at times; polling again repairs it.
    """

    @classmethod
    def assign(cls, cluster: Any, members: Sized) -> Any:
        if len(members) > 1:
            time.sleep(SYNC_HEAD_START)
        return super().assign(cluster, members)  # type: ignore[misc]
