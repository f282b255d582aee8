"""Draining the outbox: the real relay with a channel that takes anything, beside bare SQL and a peer."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from datetime import timedelta
from pathlib import Path

from django.db import connection, transaction

from config.database.clock import database_now
from config.database.upsert import uuid_text
from config.fields import uuid7
from outbox.delivery.candidates import find_lower_bound
from outbox.models import OutboxMessage
from tests.bench import databases, worker
from tests.bench.figures import median, number, ratio
from tests.bench.leg import Plan
from tests.bench.rows import DIGITS, NUMBER, analyse, moment
from tests.outbox.bulk import MESSAGES, beginning
from tests.services.packages import CACHE

MESSAGE, ATTEMPT = "outbox_outboxmessage", "outbox_deliveryattempt"
TABLES = [
    MESSAGE, ATTEMPT, "outbox_idempotencykey", "outbox_channelstate", "outbox_flowcounter", "outbox_flowminute",
]  # fmt: skip
PAYLOAD = '{"text":"' + "x" * 480 + '"}'
NOOP = {"DJANGO_SETTINGS_MODULE": "tests.bench.outbox.noop"}
SELECT = (
    f"SELECT id, event_type, aggregate, payload, attempts, available_at, created_at FROM {MESSAGE} "
    "WHERE channel = 'noop' AND state = 'pending' AND available_at <= %s AND id >= %s AND id <= %s "
    "ORDER BY available_at, id LIMIT {} FOR UPDATE SKIP LOCKED"
)
PEER = "post_office"


def drain_rows(plan: Plan) -> list[dict[str, str]]:
    """Ours, the ceiling and the peer in turn: what disturbs the machine meets all of them."""
    found = []
    count = 10_000 if plan.quick else 40_000
    for size in (100, 500):
        ours, ceilings, theirs, unlogged = [], [ceiling(count, size)], [], []
        for _ in range(plan.repeat):
            ours.append(drained(count, size))
            ceilings.append(ceiling(count, size))
            if plan.connect_port or os.environ.get("PEERS") == "1":
                theirs.append(peer(count // 10, size))
                unlogged.append(peer(count // 10, size, log=0))
        found.append({
            "batch": str(size), "Spillway": median(ours), "bare claim and mark": median(ceilings),
            "of it": ratio(ours, ceilings), PEER: median(theirs) if theirs else "–", "times it": ratio(ours, theirs),
            f"{PEER} without its log": median(unlogged) if unlogged else "–", "times that": ratio(ours, unlogged),
        })  # fmt: skip
    return found


def empty() -> None:
    for table in TABLES:
        databases.execute(f"TRUNCATE TABLE {table}")


def fill(count: int, correlation_id: str = "", traceparent: str = "") -> None:
    """So many due messages, each of an aggregate of its own."""
    now = database_now()
    for start in range(0, count, 2000):
        rows = [
            (uuid_text(uuid7()), "noop", "order.paid", f"order:{n}", PAYLOAD, correlation_id, traceparent)
            for n in range(start, min(start + 2000, count))
        ]
        MESSAGES.run(rows, beginning(now))


def drained(count: int, size: int, *, clean: bool = True) -> float:
    """Messages a second of `relay_outbox --once`, from the end of its first batch to the end of its last."""
    if clean:
        empty()
    fill(count)
    analyse(MESSAGE)
    began = database_now()
    worker.run("relay_outbox", "--channel", "noop", "--once", OUTBOX_BATCH=str(size), **NOOP)
    ((left,),) = databases.rows(f"SELECT COUNT(*) FROM {MESSAGE} WHERE state <> 'sent'")
    if left:
        raise RuntimeError(f"{left} of {count} messages are not sent")
    since = moment(began)
    ends = databases.rows(
        f"SELECT finished_at, COUNT(*) FROM {ATTEMPT} WHERE finished_at >= %s GROUP BY finished_at ORDER BY 1", [since]
    )
    return sum(batch for _, batch in ends[1:]) / (ends[-1][0] - ends[0][0]).total_seconds()


def ceiling(count: int, size: int) -> float:
    """Messages a second of bare statements: lock and read, claim, commit, mark sent, commit. No order, no
    attempts, no counters, no leases that end."""
    empty()
    fill(count)
    analyse(MESSAGE)
    # As the relay does it: no partition before today's or after is looked into.
    first, last = (row for (row,) in databases.rows(f"SELECT id FROM {MESSAGE} ORDER BY id LIMIT 1")
                   + databases.rows(f"SELECT id FROM {MESSAGE} ORDER BY id DESC LIMIT 1"))  # fmt: skip
    done, started = 0, time.perf_counter()
    while taken := claim_and_mark(size, first, last):
        done += taken
    if done != count:
        raise RuntimeError(f"{done} of {count} messages were claimed")
    return count / (time.perf_counter() - started)


def claim_and_mark(size: int, first: object, last: object) -> int:
    now = database_now()
    token = uuid_text(uuid.uuid4())
    with transaction.atomic():
        ids = [row[0] for row in databases.rows(SELECT.format(size), [moment(now), first, last])]
        if not ids:
            return 0
        mark("state = 'processing', lease_token = %s, lease_until = %s, attempts = attempts + 1", ids,
             token, moment(now + timedelta(minutes=5)))  # fmt: skip
    mark("state = 'sent', sent_at = %s, lease_until = NULL", ids, moment(now), token=token)
    return len(ids)


def mark(changes: str, ids: list, *values: object, token: str = "") -> None:
    guard = "state = 'processing' AND lease_token = %s" if token else "state = 'pending'"
    if connection.vendor == "postgresql":
        where, listed = "id = ANY(%s)", [ids]
    else:
        where, listed = f"id IN ({', '.join(['%s'] * len(ids))})", ids
    bounds = [min(ids), max(ids)]
    sql = f"UPDATE {MESSAGE} SET {changes} WHERE {where} AND id >= %s AND id <= %s AND {guard}"
    changed = databases.execute(sql, [*values, *listed, *bounds, *([token] if token else [])])
    if changed != len(ids):
        raise RuntimeError(f"{changed} of {len(ids)} rows changed")


# -- the peer -----------------------------------------------------------------------------------------
def peer(count: int, size: int, log: int = 2) -> float:
    """django-post_office in a process of its own; installed for the bench alone, not beside our packages. By default
    it writes a log row for each mail, as we write an attempt; `log=0` writes none."""
    place = CACHE / "bench-peers"
    needed = Path(__file__).with_name("post_office.txt")
    if not (place / "post_office").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(place)]
        subprocess.run([*command, "-r", str(needed)], check=True)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.bench.outbox.post_office", str(count), str(size), str(log)], cwd=worker.ROOT, check=True,
        env={**os.environ, "PYTHONPATH": str(place), "DJANGO_SETTINGS_MODULE": "tests.bench.outbox.post_office"},
        capture_output=True, text=True,
    )  # fmt: skip
    return float(ran.stdout.split()[-1])


# -- a table full of sent messages --------------------------------------------------------------------
NUMBERS = f"{DIGITS}, numbers(n) AS (SELECT {NUMBER} FROM d a, d b, d c, d d4, d e, d f WHERE {NUMBER} < %s)"
SENT = f"""INSERT INTO {MESSAGE}
(id, channel, event_type, aggregate, payload, correlation_id, traceparent, state, attempts, available_at, expires_at,
 times_uncertain, times_revived, error_class, error, receipt, created_at, sent_at, lease_token, lease_until)
{NUMBERS}
SELECT {{id}}, 'noop', 'order.paid', CONCAT('order:', n, ''), '{{{{}}}}', '', '', 'sent', 1, %s, %s, 0, 0, '', '', '', %s, %s,
 NULL, NULL FROM numbers"""
HEX = {
    "postgresql": "CONCAT(LPAD(TO_HEX(%s + n), 12, '0'), '7000b', LPAD(TO_HEX(n), 15, '0'))::uuid",
    "mysql": "CONCAT(LPAD(LOWER(HEX(%s + n)), 12, '0'), '7000b', LPAD(LOWER(HEX(n)), 15, '0'))",
}
A_MILLION = 1_000_000


def add_sent(millions: int) -> None:
    """Sent messages of today, all in the partition where the pending ones are: the worst place for them."""
    now = database_now()
    midnight = int(now.timestamp()) // 86_400 * 86_400 * 1000
    at = moment(now - timedelta(hours=1))
    for part in range(millions):
        # A few to the same millisecond would be one id: each million starts a millisecond apart, n tells them.
        sql = SENT.format(id=HEX[connection.vendor]).replace("{{}}", "{}")
        databases.execute(sql, [A_MILLION, midnight + part * A_MILLION, at, at, at, at])
        print(f"    {part + 1} million sent messages", flush=True)
    analyse(MESSAGE)


def full_rows(plan: Plan) -> list[dict[str, str]]:
    """The same drain before and after the table has been filled, and the plan of the claim."""
    count, millions = (10_000, 1) if plan.quick else (20_000, 5)
    before = [drained(count, 500) for _ in range(plan.repeat)]
    empty()
    add_sent(millions)
    after = [drained(count, 500, clean=False) for _ in range(plan.repeat)]
    return [{
        "sent messages": number(millions * A_MILLION), "empty table": median(before), "full table": median(after),
        "of it": ratio(after, before), "claim reads by": index_of_claim(),
    }]  # fmt: skip


def index_of_claim() -> str:
    """The index that finds due messages; an error when it is none, or when something is sorted."""
    fill(500)
    now = database_now()
    query = OutboxMessage.objects.due("noop", now).from_id(find_lower_bound())[:100].query
    sql, params = query.sql_with_params()
    prefix = "EXPLAIN" if connection.vendor == "postgresql" else "EXPLAIN FORMAT=JSON"
    text = "\n".join(str(row[0]) for row in databases.rows(f"{prefix} {sql}", params))
    names = ("outboxmessage_due", "channel_available_at_id_idx")
    if not any(name in text for name in names) or "Sort  (" in text or 'filesort": true' in text:
        raise RuntimeError(f"the claim does not use its index:\n{text}")
    return names[0]
