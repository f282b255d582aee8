"""The supervisor of the test servers: started once, stopped by identity, never two on one port."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import cassandra, containers, packages, registry, supervisor
from tests.services.connect import CONNECTORS, PROPERTIES, artifacts
from tests.services.kafka import VERSION
from tests.services.process import Process, birth
from tests.services.service import Service, Unavailable, choose_port

pytestmark = pytest.mark.processes
GREETER = """
import socket, sys
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as server:
    while True:
        server.accept()[0].sendall(b"hello")
"""


class Greeter(Service):
    name = "greeter"
    variable = "TEST_GREETER"
    patience = 10.0
    program = GREETER
    created = 0

    def install(self) -> None:
        pass

    def create(self, data: Path) -> None:
        self.created += 1
        data.mkdir()

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.program, str(self.port)]

    def greet(self, connection: socket.socket) -> bool:
        return connection.recv(5) == b"hello"

    @property
    def first_port(self) -> int:
        return 21000


@pytest.fixture
def greeter(tmp_path):
    service = Greeter(tmp_path)
    yield service
    service.stop()


def test_a_second_start_leaves_the_running_server_alone(greeter):
    greeter.start()
    first = greeter.process.pid
    Greeter(greeter.root).start()
    assert greeter.process.pid == first
    assert greeter.address == f"127.0.0.1:{greeter.port}"


def test_stopping_stops_it_and_the_data_is_there_for_the_next_start(greeter):
    greeter.start()
    assert greeter.stop() is True
    assert not greeter.running()
    assert greeter.stop() is False
    greeter.start()
    assert greeter.created == 1


def test_a_killed_server_is_started_again(greeter):
    greeter.start()
    killed = greeter.process.pid
    assert greeter.process.stop(signal.SIGKILL, seconds=5)
    greeter.start()
    assert greeter.process.pid != killed


def test_an_interrupted_creation_is_begun_again(greeter):
    (greeter.home / "data.new").mkdir(parents=True)
    (greeter.home / "data.new" / "half").touch()
    greeter.start()
    assert not (greeter.data / "half").exists()


def test_a_server_that_ends_while_starting_shows_the_end_of_its_log(greeter):
    greeter.program = "raise SystemExit('no such table')"
    with pytest.raises(Unavailable, match=r"ended while starting(.|\n)*no such table"):
        greeter.start()


def test_a_process_id_that_went_to_another_program_is_not_stopped(tmp_path):
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        record = tmp_path / "process.json"
        record.write_text(json.dumps({"pid": stranger.pid, "birth": "an earlier one"}))
        assert Process(record).stop(signal.SIGTERM, seconds=1) is False
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_process_that_ended_has_no_birth():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    assert birth(ended.pid) is not None
    ended.wait()
    assert birth(ended.pid) is None


def test_a_busy_port_is_left_to_its_owner_and_the_choice_is_remembered(tmp_path):
    note = tmp_path / "port"
    choose_port(note, 21100)
    first = int(note.read_text())
    with socket.create_server(("127.0.0.1", first)):
        choose_port(note, 21100)
        second = int(note.read_text())
    assert second != first
    choose_port(note, 21100)
    assert int(note.read_text()) == second


def test_docker_is_asked_for_all_servers_at_once_and_takes_them_back_when_one_fails(tmp_path, monkeypatch):
    calls = []

    def docker(*command, env):
        calls.append(command[4:])
        if "up" in command:
            raise Unavailable("failed")

    monkeypatch.setattr(containers, "available", lambda: True)
    monkeypatch.setattr(containers, "run", docker)
    with pytest.raises(Unavailable):
        containers.start([Greeter(tmp_path)])
    assert calls == [("up", "--detach", "--wait", "greeter"), ("rm", "--stop", "--force", "greeter")]
    assert containers.stop(Greeter(tmp_path)) is False


def test_connect_in_a_container_has_the_jars_and_options_it_has_without():
    compose = containers.COMPOSE_FILE.read_text()
    told = "<groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    for artifact in artifacts(VERSION, *CONNECTORS):
        assert told.format(*artifact.split(":")) in compose
    for line in PROPERTIES.splitlines():
        assert line.format(servers="kafka:19092") in compose


def test_cassandra_in_a_container_is_the_one_it_is_without():
    assert f"image: cassandra:{cassandra.VERSION}\n" in containers.COMPOSE_FILE.read_text()


def test_the_registry_in_a_container_is_the_one_it_is_without():
    assert f"image: apicurio/apicurio-registry:{registry.VERSION}\n" in containers.COMPOSE_FILE.read_text()


@pytest.mark.parametrize(
    ("versions", "chosen"), [(("17.0.2", "25", "21.0.1"), "25"), (("17.0.2",), "the newest here is 17")]
)
def test_the_registry_takes_the_newest_java_or_says_which_there_is(tmp_path, monkeypatch, versions, chosen):
    for version in versions:
        (tmp_path / version / "bin").mkdir(parents=True)
        (tmp_path / version / "bin" / "java").touch()
        (tmp_path / version / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    monkeypatch.setattr(registry, "FOLDERS", (tmp_path,))
    monkeypatch.setattr(registry.shutil, "which", lambda _name: None)
    if len(versions) > 1:
        assert registry.newest_java().parts[-3] == chosen
    else:
        with pytest.raises(Unavailable, match=chosen):
            registry.newest_java()


def test_an_archive_that_is_not_the_expected_one_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "CACHE", tmp_path)
    monkeypatch.setattr(packages.shutil, "which", lambda name: name)
    fetch = lambda *command: Path(command[6].partition("=")[2], "app.tar.gz").write_bytes(b"another one")  # noqa: E731
    monkeypatch.setattr(packages, "run", fetch)
    with pytest.raises(Unavailable, match=r"app\.tar\.gz is not the one that was expected"):
        packages.maven_archive("app", "g:a:1:tar.gz:all", "0" * 64)
    assert not (tmp_path / "app").exists()


class Reader(Greeter):
    name = "reader"
    needs = ("greeter",)


def test_a_server_that_reads_another_follows_it_into_docker_or_stays_outside(tmp_path, monkeypatch):
    asked = []

    def docker(services):
        asked.append([service.name for service in services])
        for service in services:
            service.home.mkdir(parents=True)
            service.container.touch()

    monkeypatch.setenv("SERVICES_DIR", str(tmp_path))
    monkeypatch.setattr(supervisor, "SERVICES", (Greeter, Reader))
    monkeypatch.setattr(supervisor, "start_together", lambda services: [])
    monkeypatch.setattr(containers, "available", lambda: True)
    monkeypatch.setattr(containers, "start", docker)
    supervisor.up(["greeter", "reader"])
    assert asked == [["greeter"], ["reader"]]
    (tmp_path / "greeter" / "container").unlink()
    supervisor.up(["reader"])
    assert asked == [["greeter"], ["reader"]]


def test_the_leg_that_is_required_names_its_server(monkeypatch):
    monkeypatch.setenv("REQUIRE", "postgres,debezium")
    assert supervisor.required() == {"postgres", "connect"}
