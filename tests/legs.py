"""python -m tests.legs [pytest arguments]: the suite once per database, and a table of what ran."""

import importlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from tests.leg import Leg, Run, verdict
from tests.services import supervisor
from tests.shares import PACES, left_by, pieces

DRIVERS = {"postgres": "psycopg", "mariadb": "MySQLdb", "mysql": "MySQLdb"}
DATABASES = ("sqlite", *DRIVERS)
BESIDE = ("kafka", "debezium", "cassandra", "registry")  # what stands beside a database
LEGS = (*DATABASES, "embedded", *BESIDE)
MODULES = {**DRIVERS, "cassandra": "cassandra", "registry": "confluent_kafka"}
# The legs that need a server, by the name of its service: most are called the same.
SERVED = {name: supervisor.SERVICE_OF.get(name, name) for name in (*DRIVERS, *BESIDE)}
VARIABLES = {name: supervisor.VARIABLES[service] for name, service in SERVED.items()}
# How the suite's fixtures name a test on the real broker, test_x[kafka] or test_x[2-kafka], and so on.
MARKED = {name: re.compile(rf"\[(.*-)?{name}(-.*)?\]$") for name in BESIDE}
# What stands beside the relational database: the tests of one leg say all, best one with a server that can be away.
ONCE = {"cassandra", "registry"}
LEFT_OUT = "LEGS leaves it out"
INTERRUPTED, NOTHING_COLLECTED = 2, 5  # exit codes of pytest
OUTPUT = "output.txt"
COUNTING = threading.Lock()
CTRL_C = threading.Event()
RUN_AGAIN = 5  # failures of a database; more are no accident


def main(arguments: list[str]) -> int:
    unknown = wanted() - set(LEGS)
    if unknown:
        print(f"no such leg: {', '.join(sorted(unknown))} (there are {', '.join(LEGS)})", file=sys.stderr)
        return 2
    # Ctrl-C is for pytest, which takes its databases away before it ends; then one line says how far each leg came.
    signal.signal(signal.SIGINT, lambda *_: CTRL_C.set())
    servers, started = find_servers()
    try:
        databases = run_all(servers, arguments)
    finally:
        if started:
            supervisor.down(started)
    return report(databases, beside(servers))


def wanted() -> set[str]:
    """The legs LEGS asks for; a broker alone runs on SQLite, a database alone on the embedded broker."""
    names = listed("LEGS") or set(LEGS)
    if "debezium" in names:
        # It reads servers, and writes to the real broker.
        names |= {"kafka"} | (set() if names & DRIVERS.keys() else set(DRIVERS))
    if not names & set(DATABASES):
        names.add("sqlite")
    return names | {"embedded"}


def required() -> set[str]:
    names = listed("REQUIRE")
    return (names - {"all"}) | (set(LEGS) - supervisor.OPTIONAL) if "all" in names else names


def asked() -> set[str]:
    """The legs whose servers are started where none runs: those that LEGS or REQUIRE name, and what these need."""
    names = required() | (wanted() if listed("LEGS") else set())
    return names | {"kafka"} if "debezium" in names else names


def listed(variable: str) -> set[str]:
    return set(os.environ.get(variable, "").replace(",", " ").split())


def find_servers() -> tuple[dict[str, Leg], list[str]]:
    """Given by the environment, found running, or started now; also the names of those started now."""
    legs = {name: Leg(name, reason=LEFT_OUT) for name in VARIABLES}
    candidates = []
    for name in VARIABLES.keys() & wanted():
        legs[name].address, legs[name].reason = given(name)
        if not legs[name].address and not legs[name].reason:
            candidates.append(name)
    if legs["kafka"].reason and "debezium" in candidates:
        legs["debezium"].reason = "needs kafka"
        candidates.remove("debezium")
    return legs, start(legs, candidates)


def given(name: str) -> tuple[str, str]:
    """The address that needs no starting, or the reason why starting a server would not help."""
    driver = MODULES.get(name)
    if driver and not importable(driver):
        return "", f"the Python driver {driver} is not installed"
    address = os.environ.get(VARIABLES[name], "")
    if not address:
        return supervisor.addresses([SERVED[name]]).get(VARIABLES[name], ""), ""
    return (address, "") if answers(address) else ("", f"{VARIABLES[name]} is set, but nothing answers there")


def importable(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ImportError:
        return False
    return True


def answers(address: str) -> bool:
    """Whether something listens there; of several Kafka servers, the first."""
    where = urlsplit(address if "//" in address else f"//{address.split(',')[0]}")
    ports = {"postgres": 5432, "postgresql": 5432, "mysql": 3306, "mariadb": 3306, "cassandra": 9042}
    try:
        target = (where.hostname or "127.0.0.1", where.port or ports.get(where.scheme, 9092))
        with closing(socket.create_connection(target, timeout=5)):
            return True
    except OSError:
        return False


def start(legs: dict[str, Leg], names: list[str]) -> list[str]:
    for name in names:
        if os.environ.get("START_SERVICES") == "0":
            legs[name].reason = f"{VARIABLES[name]} is not set, and START_SERVICES=0"
        elif name not in asked():
            legs[name].reason = f"none runs: REQUIRE={name} starts one, make services all"
    names = [name for name in names if not legs[name].reason]
    if not names:
        return []
    print(f"starting {', '.join(sorted(names))} …", flush=True)
    outcomes = supervisor.up(SERVED[name] for name in names)
    leg_of = {service: name for name, service in SERVED.items()}
    for outcome in outcomes:
        # Only the first line belongs into the table; the rest is the end of a log.
        first, *log = outcome.reason.splitlines() or [""]
        print(*log, sep="\n", end="\n" if log else "", flush=True)
        leg = legs[leg_of[outcome.service.name]]
        leg.address, leg.reason = outcome.address, first
    return [outcome.service.name for outcome in outcomes if outcome.address]


def beside(servers: dict[str, Leg]) -> list[Leg]:
    """What runs among the tests of a database, told by their names."""
    return [servers[name] for name in MARKED]


def run_all(servers: dict[str, Leg], arguments: list[str]) -> list[Leg]:
    sqlite = Leg("sqlite", reason="" if "sqlite" in wanted() else LEFT_OUT)
    databases = [sqlite, *(servers[name] for name in DRIVERS)]
    chosen = [leg for leg in databases if not leg.reason]
    for leg in chosen:
        leg.left_out = left_by(leg.name, [other.name for other in chosen], bool(servers["kafka"].address))
    with_servers = [leg for leg in chosen if leg.name in DRIVERS]
    home = with_servers[len(with_servers) // 2] if with_servers else sqlite

    def among(leg: Leg) -> list[Leg]:
        others = [other for other in beside(servers) if other.name not in leg.left_out]
        return [other for other in others if leg is home or other.name not in ONCE]

    with tempfile.TemporaryDirectory() as root:
        # As many as there are at once, so that a leg alone keeps every processor busy.
        count = max(2, jobs() // (len(PACES) * max(1, len(chosen))))
        runs = [
            Run(leg, among(leg), Path(root), piece)
            for leg in chosen
            for piece in (pieces(count) if jobs() > 1 else [""])
        ]
        with progress(runs):
            run_side_by_side(runs, arguments)
        for leg in chosen:
            if not (leg.failed or leg.reason or leg.tallied):
                leg.failed, leg.reason = 1, "no test was collected"
        for run in runs:
            if jobs() > 1 and run.failed and run.leg.failed <= RUN_AGAIN and not run.leg.reason:
                run_again(run, arguments)
    for other in beside(servers):
        if other.address and not other.ran:
            other.reason = f"{other.address} is up, but no test used it"
    return databases


def run_side_by_side(runs: list[Run], arguments: list[str]) -> None:
    """What waits most of its time beside what works, so that no processor is idle; each thread has one kind that it
    prefers, and helps with the other at the end."""
    # The longest first: most to wait for has MySQL, most to work have those that share nothing with another leg.
    waiting = [run for run in reversed(runs) if run.piece.startswith("waiting")]
    working = [run for run in reversed(runs) if run not in waiting]
    working.sort(key=lambda run: run.leg.name in ("mysql", "mariadb"))

    def take_from(*queues: list[Run]) -> None:
        for queue in queues:
            while run := next_of(queue):
                start_tests(run, arguments)

    with ThreadPoolExecutor(jobs()) as pool:
        orders = [(waiting, working) if number % 2 else (working, waiting) for number in range(jobs())]
        for thread in [pool.submit(take_from, *queues) for queues in orders]:
            thread.result()


def next_of(queue: list[Run]) -> Run | None:
    with COUNTING:
        return queue.pop(0) if queue else None


@contextmanager
def progress(runs: list[Run]) -> Iterator[None]:
    """Print how far each run is: on a terminal in one line that changes, elsewhere a line for every tenth."""
    ended, terminal = threading.Event(), sys.stdout.isatty()

    def show() -> None:
        shown: list[int] = []
        while not ended.wait(1.0):
            parts = {run.name: percent(run.home / OUTPUT) for run in runs if run.began and not run.ended}
            line = "  ".join(f"{name} {part} %" for name, part in parts.items())
            tenths = [part // 10 for part in parts.values()]
            if terminal:
                print(f"\r\033[K{line}", end="", flush=True)
            elif tenths != shown and any(tenths):
                print(line, flush=True)
            shown = tenths
        print("\r\033[K" if terminal else "", end="", flush=True)

    thread = threading.Thread(target=show, name="progress")
    if jobs() > 1:  # else the output comes as it is written
        thread.start()
    yield
    ended.set()
    if thread.is_alive():
        thread.join()


def percent(output: Path) -> int:
    """What pytest wrote last about how far it is."""
    if not output.exists():
        return 0
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - 10_000))
        parts = re.findall(rb"\[ *(\d+)%\]", file.read())
    return int(parts[-1]) if parts else 0


def jobs() -> int:
    """How many runs there are at once: half of them wait most of the time for a server or a worker, so that four a
    processor keep it busy."""
    return int(os.environ.get("JOBS") or min(16, 4 * (os.cpu_count() or 1)))


def start_tests(run: Run, arguments: list[str]) -> None:
    """One run from its beginning to its end; beside others its output comes in one piece then."""
    leg = run.leg
    if CTRL_C.is_set():
        leg.reason = leg.reason or "not begun"
        return
    run.began = time.monotonic()
    code, cases = pytest(run, arguments)
    run.ended = time.monotonic()
    run.failed = sum(verdict(case) == "failed" for case in cases)
    tally(run, cases)
    if CTRL_C.is_set():
        leg.reason = f"at {percent(run.home / OUTPUT)} %"
    elif code and not run.failed and not (run.piece and code == NOTHING_COLLECTED):
        # A usage error: not a test that failed, but no success either.
        leg.failed, leg.reason = 1, f"pytest ended with exit code {code}"


def run_again(run: Run, arguments: list[str]) -> None:
    """What failed, once more and alone: beside others a test may miss a limit of time.

    The table says how many passed only now, and the output above names them.
    """
    print(f"\n=== {run.name}: {run.failed} failed beside the others; again, alone", flush=True)
    _, cases = pytest(run, [*arguments, "--last-failed", "--last-failed-no-failures=none"])
    passed = [case for case in cases if verdict(case) == "passed"]
    run.leg.settle(len(passed))
    for other in run.others:
        other.settle(sum(bool(MARKED[other.name].search(case.get("name", ""))) for case in passed))


def pytest(run: Run, arguments: list[str]) -> tuple[int, list[Element]]:
    """Its exit code, and what came out of each test."""
    embedded = [] if "embedded" in run.leg.left_out else ["embedded"]
    head = f"\n=== {run.name} × {' and '.join([*embedded, *(other.name for other in run.others if other.address)])}"
    run.home.mkdir(exist_ok=True)
    results = run.home / "results.xml"
    results.unlink(missing_ok=True)
    cache = f"cache_dir={run.home / 'cache'}"
    command = [sys.executable, "-m", "pytest", f"--junitxml={results}", "-o", cache, *arguments]
    print(head if jobs() == 1 else f"{head} …", flush=True)
    with (run.home / OUTPUT).open("w+") as output:
        code = subprocess.run(
            command, env=environment(run), check=False,
            stdout=output if jobs() > 1 else None, stderr=subprocess.STDOUT if jobs() > 1 else None,
        ).returncode  # fmt: skip
        cases = list(ElementTree.parse(results).iter("testcase")) if results.exists() else []  # noqa: S314 - pytest wrote it
        if jobs() > 1 and (not CTRL_C.is_set() or any(verdict(case) == "failed" for case in cases)):
            output.seek(0)
            print(head, output.read(), sep="\n", flush=True)
    return code, cases


def tally(run: Run, cases: list[Element]) -> None:
    with COUNTING:
        run.leg.tally(cases)
        run.leg.seconds += run.ended - run.began
        run.leg.ran = True
        for other in (other for other in run.others if other.address):
            marked = [case for case in cases if MARKED[other.name].search(case.get("name", ""))]
            other.tally(marked)
            other.seconds += sum(float(case.get("time", 0)) for case in marked)


def environment(run: Run) -> dict[str, str]:
    env = {**os.environ, "LEFT_OUT": ",".join(sorted(run.leg.left_out)), "PIECE": run.piece}
    env["DATABASE_URL"] = database_url(run)
    # Hundreds of processes start: with this set, as on many build machines, each would compile every module anew.
    for name in ["PYTHONDONTWRITEBYTECODE", *(VARIABLES[other] for other in MARKED)]:
        env.pop(name, None)
    return {**env, **{VARIABLES[other.name]: other.address for other in run.others if other.address}}


def database_url(run: Run) -> str:
    """A name of its own for each run: two runs on one server, or in one checkout, must not drop each other's database."""
    where = urlsplit(run.leg.address)
    name = "_".join(filter(None, [where.path.strip("/") or "spillway", str(os.getpid()), run.piece.replace("-", "_")]))
    if run.leg.name == "sqlite":
        return f"sqlite:///{run.home}/{name}.sqlite3"
    return where._replace(path=f"/{name}").geturl()


def report(databases: list[Leg], others: list[Leg]) -> int:
    ran = [leg for leg in databases if leg.ran]
    if CTRL_C.is_set():
        places = [f"{leg.name} {leg.reason}, {leg.failed} failed" for leg in ran]
        print("interrupted:", "; ".join(places) or "nothing ran")
        return 130
    missing = missing_legs([*databases, *others])
    print("\n--- databases")
    print(*databases, sep="\n")
    print("--- brokers, Debezium and Cassandra (among the tests above)")
    embedded = [leg.name for leg in ran if "embedded" not in leg.left_out]
    print(f"{'embedded':9} {'with ' + ', '.join(embedded) if embedded else 'not run'}")
    print(*others, sep="\n")
    for name in missing:
        print(f"REQUIRE asks for {name}, and it did not run")
    passed, failed, skipped = (sum(getattr(leg, word) for leg in ran) for word in ("passed", "failed", "skipped"))
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return int(bool(failed or missing or not ran))


def missing_legs(legs: Iterable[Leg]) -> list[str]:
    return sorted(required() - {leg.name for leg in legs if leg.ran} - {"embedded"})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
