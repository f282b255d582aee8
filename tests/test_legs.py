"""The table that says which legs ran is as true when something is missing as when all is well."""

import os
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree

import pytest

from tests import legs, shares
from tests.leg import Leg, Run
from tests.shares import left_by, parts, pieces
from tests.tree import ROOT

HERE = Path("unused")
CASES = """
<testsuite>
  <testcase name="test_a[embedded]"/>
  <testcase name="test_a[kafka]"><failure/></testcase>
  <testcase name="test_a[2-kafka]"><skipped/></testcase>
  <testcase name="test_kafka_names"><error/></testcase>
  <testcase name="test_b[debezium]"><skipped/></testcase>
</testsuite>
"""


@pytest.fixture(autouse=True)
def _unset(monkeypatch):
    monkeypatch.setattr(legs, "CTRL_C", threading.Event())
    for name in ("LEGS", "REQUIRE", "START_SERVICES", *legs.VARIABLES.values()):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cases():
    return list(ElementTree.fromstring(CASES).iter("testcase"))  # noqa: S314


def test_failures_and_errors_both_count_as_failed(cases):
    leg = Leg("sqlite")
    leg.tally(cases)
    assert (leg.passed, leg.failed, leg.skipped) == (1, 2, 2)


def test_the_tests_on_kafka_are_told_by_their_parameter(cases):
    names = [case.get("name") for case in cases]
    assert [name for name in names if legs.MARKED["kafka"].search(name)] == ["test_a[kafka]", "test_a[2-kafka]"]


def test_a_leg_whose_tests_were_all_skipped_did_not_run(cases):
    leg = Leg("debezium")
    leg.tally(case for case in cases if legs.MARKED["debezium"].search(case.get("name")))
    assert (leg.ran, leg.skipped) == (False, 1)


@pytest.mark.parametrize(
    ("legs_named", "wanted"),
    [
        ("kafka", {"sqlite", "kafka", "embedded"}),  # a broker alone runs on SQLite
        ("debezium", {"debezium", "kafka", "embedded", "postgres", "mariadb", "mysql"}),
        ("mariadb", {"mariadb", "embedded"}),
    ],
)
def test_what_is_named_brings_what_it_needs(monkeypatch, legs_named, wanted):
    monkeypatch.setenv("LEGS", legs_named)
    assert legs.wanted() == wanted


def test_debezium_without_its_broker_is_not_started(monkeypatch):
    """Nor is a broker that was given and is silent."""
    monkeypatch.setenv("LEGS", "debezium,postgres")
    monkeypatch.setenv("TEST_KAFKA_SERVERS", "127.0.0.1:1,127.0.0.1:2")
    monkeypatch.setattr(legs.supervisor, "addresses", lambda names: {})
    monkeypatch.setattr(legs, "start", lambda servers, names: names)
    servers, started = legs.find_servers()
    assert servers["kafka"].reason == "TEST_KAFKA_SERVERS is set, but nothing answers there"
    assert servers["debezium"].reason == "needs kafka"
    assert not {"debezium", "kafka"} & set(started)


def test_a_run_is_told_what_runs_beside_it_and_nothing_of_what_does_not(monkeypatch):
    for variable in ("TEST_CONNECT_URL", "TEST_CASSANDRA_URL", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.setenv(variable, "1")
    beside = [Leg("kafka", address="127.0.0.1:2"), Leg("debezium", reason="absent")]  # another leg has Cassandra
    told = legs.environment(Run(Leg("mysql", address="mysql://127.0.0.1:1", left_out={"a", "b"}), beside, HERE))
    assert (told["TEST_KAFKA_SERVERS"], told["LEFT_OUT"]) == ("127.0.0.1:2", "a,b")
    assert not {"TEST_CONNECT_URL", "TEST_CASSANDRA_URL", "PYTHONDONTWRITEBYTECODE"} & told.keys()


@pytest.fixture
def begun(monkeypatch) -> list[Run]:
    """The runs that would have started."""
    found: list[Run] = []
    monkeypatch.setattr(legs, "start_tests", lambda run, arguments: found.append(run))
    return found


def test_the_tests_on_cassandra_run_beside_one_leg_alone(begun):
    legs.run_all({name: Leg(name, address="127.0.0.1:1") for name in legs.VARIABLES}, [])
    seen = {run.leg.name: {other.name for other in run.others} for run in begun}
    assert seen.pop("mariadb") == {"kafka", "debezium", "cassandra", "registry"}
    assert seen == {"sqlite": {"debezium"}, "postgres": {"kafka", "debezium"}, "mysql": {"kafka", "debezium"}}
    assert {run.leg.name: run.leg.left_out for run in begun} == {name: left_by(name, ALL, True) for name in ALL}


def test_the_tests_on_cassandra_run_beside_sqlite_where_there_is_no_server(begun):
    legs.run_all({name: Leg(name, reason="" if name == "cassandra" else "none") for name in legs.VARIABLES}, [])
    assert {"cassandra" in {other.name for other in run.others} for run in begun} == {True}


ALL = ("sqlite", "postgres", "mariadb", "mysql")


def runs(kinds: set[str], chosen: Sequence[str] = ALL, kafka: bool = True) -> set[str]:
    """The legs that run a test of these kinds."""
    return {name for name in chosen if not kinds & left_by(name, chosen, kafka)}


@pytest.mark.parametrize(
    ("kinds", "legs_that_run"),
    [
        (set(), set(ALL)),
        ({"embedded"}, {"sqlite"}),
        ({"kafka"}, {"postgres", "mariadb", "mysql"}),
        ({"throttlers"}, {"sqlite", "mysql"}),
        ({"in-part"}, {"sqlite", "postgres"}),
        ({"roles"}, {"sqlite"}),
        ({"processes"}, {"sqlite", "postgres", "mariadb"}),
        ({"processes", "kafka"}, {"postgres", "mariadb"}),
        ({"processes", "started-0"}, {"sqlite", "postgres"}),
        ({"processes", "started-1"}, {"sqlite", "mariadb"}),
        ({"half-0"}, {"sqlite", "postgres", "mariadb"}),
        ({"half-1", "kafka"}, {"postgres", "mysql"}),
        ({"words-0"}, {"postgres"}),
        ({"words-5"}, {"mysql"}),
        ({"blind-0"}, {"postgres"}),
        ({"blind-2"}, {"mysql"}),
    ],
)
def test_a_kind_of_test_has_its_legs(kinds, legs_that_run):
    assert runs(kinds) == legs_that_run


def test_each_part_of_what_is_dealt_has_as_many_legs():
    for kind, count in (("blind", 1), ("words", 1), ("half", 3)):
        assert {len(runs({part})) for part in parts(kind)} == {count}
    assert {len(runs({"processes", part})) for part in parts("started")} == {2}
    for kind in ("blind", "words"):
        assert {leg for part in parts(kind) for leg in runs({part})} == set(ALL) - {"sqlite"}


# What one test can be at once.
TOGETHER = [
    *[{part} for kind in ("blind", "words", "half") for part in parts(kind)],
    *[{broker, part} for broker in ("embedded", "kafka") for part in parts("half")],
    *[{broker, "processes", part} for broker in ("embedded", "kafka") for part in parts("started")],
    {"processes"}, {"throttlers"}, {"throttlers", "kafka"}, {"throttlers", "embedded"}, {"in-part"},
    {"roles"},
]  # fmt: skip


@pytest.mark.parametrize("kafka", [False, True])
def test_every_test_is_run_by_a_leg(kafka):
    for count in range(1, 5):
        for chosen in combinations(ALL, count):
            # Without a server of Kafka its tests are skipped, and on SQLite alone they run there.
            lost = [kinds for kinds in TOGETHER if not runs(kinds, chosen, kafka)]
            assert not lost, chosen


@pytest.mark.parametrize(("others", "each"), [((), 8), (("postgres",), 4), (("postgres", "mariadb", "mysql"), 4)])
def test_a_leg_has_as_many_runs_as_keep_every_processor_busy(monkeypatch, begun, others, each):
    monkeypatch.setenv("JOBS", "8")
    legs.run_all({name: Leg(name, reason="" if name in others else "none") for name in legs.VARIABLES}, [])
    assert Counter(run.leg.name for run in begun) == dict.fromkeys(["sqlite", *others], each)


OF_A_PACE = "pytestmark = pytest.mark.processes\n"


@pytest.mark.parametrize(
    ("file", "text", "opened"),
    [
        ("tests/config/test_some.py", "def test(): ...\n", ["working-1of2"]),
        ("tests/config/test_more.py", "def test(): ...\n", ["working-2of2"]),
        ("tests/config/test_some.py", OF_A_PACE, ["waiting-1of2"]),
        ("tests/config/test_some.py", "@pytest.mark.processes\ndef test(): ...\n", ["waiting-1of2", "working-1of2"]),
        ("tests/config/conftest.py", OF_A_PACE, pieces(2)),
        ("tests/processes/mail/test_some.py", "def test(): ...\n", ["waiting-1of2"]),
        ("tests/debezium/test_some.py", "def test(): ...\n", ["waiting-1of2"]),
    ],
)
def test_a_file_is_opened_by_the_run_to_which_a_test_in_it_belongs(tmp_path, monkeypatch, file, text, opened):
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(text)
    monkeypatch.setattr(shares, "ROOT", tmp_path)
    found = []
    for piece in ["", *pieces(2)]:
        monkeypatch.setenv("PIECE", piece)
        found += [] if shares.is_of_another_piece(tmp_path / file) else [piece]
    assert found == ["", *opened]


@pytest.mark.parametrize("count", [2, 4])
def test_each_piece_of_a_leg_has_tests_of_each_share(count):
    """Dealt twice by the same bits, some of the pieces would be empty."""
    files = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")]
    shares_of = Counter((shares.number_of(file, count), zlib.crc32(file.encode()) % shares.PARTS % 2) for file in files)
    assert len(shares_of) == 2 * count
    assert min(shares_of.values()) > len(files) / count / 3


def test_each_run_has_a_database_name_of_its_own():
    postgres = Leg("postgres", address="postgres://u:p@127.0.0.1:5/spillway?a=b")
    for leg in (Leg("sqlite"), postgres):
        urls = [urlsplit(legs.database_url(Run(leg, [], HERE, piece))) for piece in ("", *pieces(2))]
        # Of a file Django takes the name alone: its tests have theirs in one folder.
        assert len({Path(url.path).name for url in urls}) == 5
        assert all(str(os.getpid()) in url.path for url in urls)
    assert [url.query for url in urls] == ["a=b"] * 5


def test_what_failed_or_is_required_and_missing_fails_the_whole(capsys, monkeypatch):
    passed, absent = Leg("sqlite", ran=True, passed=3), Leg("kafka", reason="absent")
    assert legs.report([passed], [absent]) == 0
    assert legs.report([Leg("sqlite", ran=True, passed=3, failed=1)], [absent]) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == ["kafka     not run  absent", "3 passed, 1 failed, 0 skipped"]
    monkeypatch.setenv("REQUIRE", "sqlite,kafka,debezium")
    assert legs.report([passed], [absent]) == 1
    missing = [line for line in capsys.readouterr().out.splitlines() if line.startswith("REQUIRE")]
    assert missing == [f"REQUIRE asks for {name}, and it did not run" for name in ("debezium", "kafka")]


@pytest.mark.processes
def test_what_fails_only_beside_other_databases_is_run_again_alone_and_named(tmp_path, monkeypatch, capsys):
    """A test fails once and then passes, one always fails: the table tells them apart."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_some.py").write_text(
        "import pathlib\n"
        "def test_fine(): pass\n"
        "def test_once():\n"
        "    been = pathlib.Path(__file__).with_name('been')\n"
        "    first = not been.exists()\n"
        "    been.touch()\n"
        "    assert not first\n"
        "def test_never(): assert False\n"
    )
    monkeypatch.setenv("LEGS", "sqlite")
    monkeypatch.setenv("JOBS", "2")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(legs, "environment", lambda *_: {"PATH": os.environ["PATH"]})
    monkeypatch.setattr(legs, "pieces", lambda count: ["working"])  # here is no conftest that tells them apart
    servers = {name: Leg(name, reason="absent") for name in legs.VARIABLES}
    databases = legs.run_all(servers, [str(tmp_path)])
    assert legs.report(databases, []) == 1
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("sqlite  "))
    assert "2 passed    1 failed" in line
    assert "1 passed only when run again alone" in line


def test_servers_are_started_only_when_they_are_asked_for(monkeypatch):
    monkeypatch.setenv("START_SERVICES", "0")
    servers = {name: Leg(name) for name in legs.VARIABLES}
    assert legs.start(servers, ["kafka"]) == []
    assert servers["kafka"].reason == "TEST_KAFKA_SERVERS is not set, and START_SERVICES=0"
    monkeypatch.delenv("START_SERVICES")
    assert legs.start(servers, ["kafka", "postgres"]) == []
    assert servers["postgres"].reason == "none runs: REQUIRE=postgres starts one, make services all"
    monkeypatch.setenv("REQUIRE", "postgres")
    monkeypatch.setenv("LEGS", "mariadb,debezium")
    assert legs.asked() == {"postgres", "mariadb", "debezium", "kafka", "embedded"}


def test_how_far_a_leg_is_stands_in_its_output(tmp_path):
    output = tmp_path / "output.txt"
    assert legs.percent(output) == 0
    output.write_text("tests/a.py ....  [  3%]\ntests/b.py .F [ 41%]\ntests/c.py ..")
    assert legs.percent(output) == 41


@pytest.mark.processes
def test_ctrl_c_is_one_line(tmp_path):
    """The tests of every leg are ended, and nothing is printed but how far they came."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_some.py").write_text(
        "import pathlib, time\n"
        "def test_fine(): pass\n"
        "def test_long():\n"
        "    pathlib.Path(__file__).with_name('here').touch()\n"
        "    time.sleep(60)\n"
    )
    run = (
        "import os, signal, sys; from tests import legs; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "legs.environment = lambda *_: dict(os.environ); os.chdir(sys.argv[1]); sys.exit(legs.main([sys.argv[1]]))"
    )
    environment = {**os.environ, "LEGS": "sqlite", "JOBS": "2", "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", run, str(tmp_path)], cwd=ROOT, env=environment, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 60
        while not (tmp_path / "here").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert printed.splitlines()[-1] == "interrupted: sqlite at 0 %, 0 failed"
    assert "KeyboardInterrupt" not in printed
