"""A million dead letters in sixty groups, made by the database itself, and how long the console's pages take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from statistics import median

from django.db import connection
from django.db.models import Count, F
from django.test import Client
from django.test.utils import CaptureQueriesContext, override_settings

from config.database.clock import database_now
from outbox.groups.models import FailureGroup, GroupHour, hour_of
from outbox.letters.models import DeadLetter
from tests.bench import databases
from tests.bench.leg import Plan
from tests.bench.rows import DIGITS, NUMBER

LETTERS, GROUPS, DAYS = 1_000_000, 60, 30
OLD, OLD_HALF = 1, 60  # groups whose letters are all older than 700 000 others: of 3 000 letters, of 150 000
SOURCES = ("transfer-requests", "outbox", "PAYMENT_SUCCESS", "throttler")
COLUMNS = (
    "id group_id source step reason error error_class traceback status consumer_group topic topic_id partition offset timestamp "
    "revision key payload payload_sha256 headers business_key correlation_id created_at updated_at note"
).split()
VALUES = """{id}, grp, 'transfer-requests', 'decode', 'wrong_field', CONCAT('Object missing required field items, record ', n, ''),
 '', '', CASE WHEN MOD(n, 10) < 6 THEN 'open' WHEN MOD(n, 10) < 8 THEN 'resolved' WHEN MOD(n, 10) = 8 THEN 'requeued'
 ELSE 'discarded' END, 'buffer-ingest', 'transfer-requests', 't', MOD(n, 12), n, 1000, 0, NULL, {payload}, '', '[]',
 CONCAT('A-', n, ''), '', {created}, {created}, ''"""


def fill(number: int = LETTERS) -> None:
    """The letters and their groups; the tables are empty before."""
    now = database_now()
    start, step = now - timedelta(days=DAYS), str(DAYS * 86_400_000 // number)
    step += "::bigint" if connection.vendor == "postgresql" else ""
    _make_groups(now)
    ids, created, payload = _spelt()
    names = ", ".join(map(connection.ops.quote_name, COLUMNS))
    old = number * 3 // 10
    grp = f"CASE WHEN n < {old} AND MOD(n, 100) = 0 THEN {OLD} WHEN n < {old} AND MOD(n, 2) = 1 THEN {OLD_HALF} ELSE 2 + MOD(n, 58) END"
    filled = VALUES.format(id=ids, created=created, payload=payload)
    sql = (
        f"INSERT INTO outbox_deadletter ({names}) {DIGITS}, numbers(n, ms, grp) AS (SELECT {NUMBER}, "
        f"{int(start.timestamp() * 1000)} + ({NUMBER}) * {step}, 0 FROM d a, d b, d c, d d4, d e, d f WHERE {NUMBER} < %s) "
        f"SELECT {filled.replace('grp', grp, 1)} FROM numbers"
    )
    databases.execute(sql, [number])
    vendor = connection.vendor
    databases.execute("ANALYZE outbox_deadletter" if vendor != "mysql" else "ANALYZE TABLE outbox_deadletter")
    if vendor == "postgresql":
        databases.execute("VACUUM outbox_deadletter")
    _count_groups()


def _spelt() -> tuple[str, str, str]:
    """Id, moment and payload from `ms` and `n`, in the words of this database."""
    if connection.vendor == "postgresql":
        hexes = "LPAD(TO_HEX(ms), 12, '0') || '70008000' || LPAD(TO_HEX(n), 12, '0')"
        return f"({hexes})::uuid", "TO_TIMESTAMP(ms / 1000.0)", '\'{"order_id": "A"}\'::bytea'
    hexes = "LOWER(CONCAT(LPAD(HEX(ms), 12, '0'), '70008000', LPAD(HEX(n), 12, '0')))"
    return hexes, "FROM_UNIXTIME(ms / 1000)", '\'{"order_id": "A"}\''


def _make_groups(now: datetime) -> None:
    states = ["new", "open", "acknowledged", "regressed", "ignored"]
    FailureGroup.objects.bulk_create(
        FailureGroup(
            pk=pk, fingerprint=f"{pk:032}", source=SOURCES[pk % 4], step="decode", reason="wrong_field",
            title=f"Wrong field: cause {pk}", first_seen=now, last_seen=now, state=states[pk % 5],
            owner_name="Ada" if pk % 5 == 2 else "",
        ) for pk in range(1, GROUPS + 1)
    )  # fmt: skip
    GroupHour.objects.bulk_create(
        GroupHour(group_id=pk, hour=hour_of(now) - back, arrived=1 + (pk * back) % 50)
        for pk in range(1, GROUPS + 1) for back in range(168)
    )  # fmt: skip


def _count_groups() -> None:
    for status, name in (("open", "open_count"), ("requeued", "requeued_count")):
        found = DeadLetter.objects.filter(status=status).order_by().values_list("group_id").annotate(n=Count("pk"))
        for pk, number in found:
            FailureGroup.objects.filter(pk=pk).update(**{name: number})
    FailureGroup.objects.update(total_count=F("open_count") * 2)


def pages() -> dict[str, str]:
    """The addresses by what they are called in the figures."""
    letters, groups = "/admin/outbox/deadletter/", "/admin/outbox/failuregroup/"
    newest = DeadLetter.objects.newest_first()
    middle = newest.filter(group_id=7)[1000:1001][0].pk
    old = newest.filter(group_id=OLD)[0].pk
    return {
        "home": "/admin/",
        "groups": groups,
        "groups, filtered": f"{groups}?state=open&flow=outbox&owner=nobody&when=day",
        "a group": f"{groups}7/change/",
        "an old group": f"{groups}{OLD}/change/",
        "an old group of 150 000": f"{groups}{OLD_HALF}/change/",
        "letters": letters,
        "letters, discarded": f"{letters}?state=discarded",
        "letters, all": f"{letters}?state=all",
        "letters of an old group": f"{letters}?group__id__exact={OLD}",
        "letters of an old group, all": f"{letters}?group__id__exact={OLD}&state=all",
        "letters of an old group of 150 000, all": f"{letters}?group__id__exact={OLD_HALF}&state=all",
        "a page further": f"{letters}?group__id__exact=7&state=all&before={middle}",
        "a page back": f"{letters}?group__id__exact=7&state=all&after={middle}",
        "a letter": f"{letters}{old}/change/",
        "search in the list": f"{letters}?q=A-4711",
        "search": "/admin/find/?q=A-4711",
    }


def measure(client: Client) -> Iterator[dict[str, str]]:
    """Median of five requests and the number of queries of each page."""
    for name, url in pages().items():
        client.get(url)
        took, busy = [], []
        for _ in range(5):
            began, worked = time.perf_counter(), time.process_time()
            answer = client.get(url)
            took.append(time.perf_counter() - began)
            busy.append(time.process_time() - worked)
            assert answer.status_code in (200, 302), (url, answer.status_code)
        with CaptureQueriesContext(connection) as queries:
            client.get(url)
        page, python = median(took) * 1000, median(busy) * 1000
        yield {"page": name, "ms": f"{page:.0f}", "of them here": f"{python:.0f}", "queries": str(len(queries))}


def rows(plan: Plan) -> Iterator[dict[str, str]]:
    """Part of `make bench`."""
    from django.contrib.auth.models import User

    fill(LETTERS // 5 if plan.quick else LETTERS)
    client = Client()
    client.force_login(User.objects.create_superuser("boss"))
    with override_settings(SECURE_SSL_REDIRECT=False, ALLOWED_HOSTS=["*"]):
        yield from measure(client)
