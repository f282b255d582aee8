"""Everything is started, each with a place of its own for its metrics."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from config.environment.env import BadSetting
from config.processes.supervisor import Supervisor, start_platform
from tests.logged import lines


class Recorded(Supervisor):
    """Starts nothing."""

    def _spawn(self, child):
        pass


def free_ports(count: int) -> int:
    """The first of so many that are free, one behind the other."""
    for first in range(20_000, 60_000, 100):
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first
    raise AssertionError("no ports are free")


@pytest.fixture
def ports():
    return free_ports(20)


def started(metrics_port: int, port: int) -> dict[str, tuple[list[str], dict[str, str]]]:
    supervisor = Recorded(Path("unused"), {})
    start_platform(supervisor, port, metrics_port=metrics_port)
    return {child.name: (list(child.command[2:]), dict(child.environment)) for child in supervisor.children}


def test_each_process_gets_a_port_of_its_own(ports, caplog):
    with caplog.at_level("INFO"):
        children = started(ports, ports + 19)
    told = {line["name"]: line["port"] for line in lines(caplog)}
    assert told == {name: ports + number for number, name in enumerate(children) if name != "web"}
    assert children["ingest_events"][0] == ["ingest_events", "--metrics-port", str(ports)]
    own = [command[-1] for name, (command, _) in children.items() if name not in ("beat", "web")]
    assert own == [str(ports + number) for number in range(len(own))]
    assert children["beat"][1] == {"CELERY_METRICS_PORT": str(ports + len(own))}
    assert children["replay_topic"][0][:2] == ["replay_topic", "--pending"]


def test_without_a_port_nobody_takes_that_of_the_environment(ports):
    children = started(0, ports)
    assert {command[-1] for name, (command, _) in children.items() if name not in ("beat", "web")} == {"0"}
    assert not children["beat"][1]


def test_a_taken_port_is_refused_before_anything_is_started(ports):
    with socket.create_server(("127.0.0.1", ports + 3)), pytest.raises(BadSetting, match="--metrics-port"):
        started(ports, ports + 19)
    with pytest.raises(BadSetting, match="no such port"):
        started(65_530, ports)
