"""The drill about Galera: the node that is written to is killed under all flows, and another one takes over."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tests.crash import databases
from tests.crash.run import directory
from tests.crash.wire import wait_for
from tests.drills.client import Client
from tests.drills.stage import Drill, Plan
from tests.drills.whole import adds_up, everybody_at_work, set_up
from tests.processes.galera import Nodes
from tests.processes.proxy import Gate

if TYPE_CHECKING:
    from tests.processes.everybody import Everybody

Say = Callable[[str], None]
OLD = {"THROTTLER_BUFFER_DAYS": "2", "BUFFER_RETENTION_MONTHS": "1"}  # rotation has something to drop


class GaleraNodeKilled(Drill):
    """Nothing that was acknowledged is lost, nothing is there twice; rotation drops on the writer's node alone."""

    watched = False
    own_nodes = True
    staged = (
        "of three nodes the one that is written to is killed; a proxy turns to the second, and the first comes back"
    )

    def run(self, plan: Plan, say: Say) -> bool:
        with tempfile.TemporaryDirectory(prefix="spillway-galera-") as folder, Nodes(Path(folder)) as nodes:
            say("three nodes are synced")
            with closing(Gate(nodes.url(1))) as gate, directory(plan.logs) as logs:
                set_up(gate.url, plan.servers)
                with everybody_at_work(logs, gate.url, plan.servers, say) as everybody:
                    return play(nodes, gate, everybody, say)


def play(nodes: Nodes, gate: Gate, everybody: Everybody, say: Say) -> bool:
    everybody.get_on()
    say("every process has got on; $ python manage.py doctor")
    doctor(everybody, say)
    if not runs_again(nodes, say):
        return False
    rotated = rotation(everybody, "on node 2, which is not written to", nodes.url(2), say)
    if not rotated.startswith("refused"):
        return False
    with closing(Client(gate.url)) as client:
        wait_for(lambda: len(client.kept) > 100, 60, "a hundred commits")
        took_over = turn(nodes, gate, client, say)
        everybody.get_on()
        say(f"every process has got on again {time.monotonic() - took_over:.0f} s after the node was killed")
        came_back = time.monotonic()
        nodes.start_again(1)
        say(f"node 1 is started again beside them, and synced {time.monotonic() - came_back:.1f} s later")
        before = len(client.kept)
        wait_for(lambda: len(client.kept) > before + 10, 60, "commits on node 2", 0.1)
    missing = client.missing(nodes.url(2)) + client.missing(nodes.url(1))
    say(f"a client beside them: {len(client.kept)} commits acknowledged, {len(missing)} of them missing on node 2 or 1, "
        f"{client.pause:.1f} s without one")  # fmt: skip
    doctor(everybody, say)
    if rotation(everybody, "on node 1, which came back", nodes.url(1), say)[:7] != "refused":
        return False
    if rotation(everybody, "on node 3", nodes.url(3), say)[:7] != "refused":
        return False
    if rotation(everybody, "on node 2, the new writer", gate.url, say)[:7] != "dropped":
        return False
    return adds_up(everybody, say) and not missing


def runs_again(nodes: Nodes, say: Say) -> bool:
    """A transaction that loses against one of another node, which shows at its COMMIT, is run again."""
    from django.db import connection, transaction

    from config.processes.worker import until_it_stands

    other, tries = nodes.url(2), []
    for statement in ("CREATE TABLE drill_row (n int PRIMARY KEY, sum int)", "INSERT INTO drill_row VALUES (1, 0)"):
        databases.run(other, statement)

    def add() -> None:
        tries.append(1)
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("UPDATE drill_row SET sum = sum + 1 WHERE n = 1")
            if len(tries) == 1:
                databases.run(other, "UPDATE drill_row SET sum = sum + 10 WHERE n = 1")

    until_it_stands(add, "drill")
    [(total,)] = databases.rows(other, "SELECT sum FROM drill_row")
    say(f"one transaction beside another node's commit on the same row: {len(tries)} tries, sum {total}")
    return bool(len(tries) == 2 and total == 11)


def turn(nodes: Nodes, gate: Gate, client: Client, say: Say) -> float:
    """Kill node 1 and turn the proxy; when that was."""
    from django.db import connections

    killed = time.monotonic()
    nodes.kill(1)
    gate.turn(nodes.ports[2][0])
    say("node 1 is killed with SIGKILL; the proxy leads to node 2")
    connections.close_all()
    before = len(client.kept)
    wait_for(lambda: len(client.kept) > before + 10, 120, "commits on node 2", 0.1)
    say(f"node 2 commits {time.monotonic() - killed:.1f} s later")
    wait_for(answers, 60, "node 2 to let us in", 0.2)
    return killed


def answers() -> bool:
    from django.db import DatabaseError, InterfaceError

    from config.database.clock import database_now

    try:
        return bool(database_now())
    except (DatabaseError, InterfaceError):
        return False


def doctor(everybody: Everybody, say: Say) -> None:
    for line in everybody.platform.manage("doctor", check=False).stdout.splitlines():
        if "galera" in line or line.startswith("FAIL"):
            say(f"  {line[:170]}")


def rotation(everybody: Everybody, where: str, url: str, say: Say) -> str:
    """What a rotation that has something to drop came to: `dropped …`, or `refused: …` with the first reason."""
    done = everybody.platform.manage("rotate_partitions", check=False, DATABASE_URL=url, **OLD)
    lines = [line.strip() for line in (done.stdout or done.stderr).splitlines()]
    dropped, failed = ([line for line in lines if line.startswith(word)] for word in ("dropped", "failed"))
    came_to = f"dropped {len(dropped)} partitions" if dropped and not failed else f"refused: {(failed or lines)[0]}"
    say(f"$ python manage.py rotate_partitions, {where}: {came_to}"[:330])
    return came_to
