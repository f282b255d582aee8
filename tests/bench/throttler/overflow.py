"""The overflow table with a million messages of one customer: rows in, pages and searches out, pages of the admin."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import uuid4

from django.contrib.auth import get_user_model
from django.db import connection, connections, transaction
from django.test import Client, override_settings
from django.urls import reverse
from django.utils.http import urlencode

from config.database.dialects.ranges import ranges_of
from tests.bench.figures import median, number, ratio
from tests.bench.leg import Plan
from tests.bench.rows import analyse
from throttler.models import Lane, OverflowMessage
from throttler.overflow.django import ROWS, TABLE, DjangoStore
from throttler.overflow.store import LAST_OFFSET, LaneRange, OverflowRow

CUSTOMER, LANES = "long", 700
BATCH = 2000  # rows a transaction, as the writer's
TODAY = datetime.now(UTC).date()
TOPIC = "11111111-2222-3333-4444-555555555555"
PAYLOAD = b"x" * 330
CREATED = int(time.time() * 1e6)
RUNS = 5
OFFSETS = count()


def new_rows(how_many: int, lanes: int = LANES) -> list[OverflowRow]:
    """Over these lanes in turn, with ids as the API makes them; with one lane, the long one."""
    return [
        OverflowRow(
            0, f"c{offset % lanes}" if lanes > 1 else CUSTOMER, TOPIC, offset, TODAY, PAYLOAD, b"", CREATED, 0, f"{uuid4()}"
        )
        for offset, _ in zip(OFFSETS, range(how_many), strict=False)
    ]  # fmt: skip


def fill(waiting: int, before: int = 0) -> None:
    """That many wait for one customer, of which so many did before; the mirror says so."""
    store = DjangoStore()
    for _ in range((waiting - before) // BATCH):
        with transaction.atomic():
            store.store(new_rows(BATCH, lanes=1))
    analyse(TABLE.name)
    now = datetime.now(UTC)
    Lane.objects.update_or_create(
        customer_id=CUSTOMER, partition=0,
        defaults={
            "topic_id": TOPIC, "backlog": waiting, "first": 0, "drained": -1, "seen": next(OFFSETS),
            "day": TODAY, "oldest_at": now, "updated_at": now,
        },
    )  # fmt: skip


def stored(how_many: int) -> float:
    """Rows a second by the store, 2 000 a transaction."""
    batches, store = [new_rows(BATCH) for _ in range(how_many // BATCH)], DjangoStore()
    began = time.perf_counter()
    for batch in batches:
        with transaction.atomic():
            store.store(batch)
    return how_many / (time.perf_counter() - began)


def bare(how_many: int) -> float:
    """The same statements, their parameters built beforehand."""
    ranges, store = ranges_of(connections["default"], TABLE), DjangoStore()
    batches = [store._placed(new_rows(BATCH)) for _ in range(how_many // BATCH)]
    began = time.perf_counter()
    for batch in batches:
        with transaction.atomic():
            for start in range(0, BATCH, ROWS):
                ranges.insert(batch[start : start + ROWS])
    return how_many / (time.perf_counter() - began)


@contextmanager
def without_index() -> Iterator[None]:
    (index,) = OverflowMessage._meta.indexes
    with connection.schema_editor() as editor:
        editor.remove_index(OverflowMessage, index)
    try:
        yield
    finally:
        with connection.schema_editor() as editor:
            editor.add_index(OverflowMessage, index)


def milliseconds(work: Callable[[], object], runs: int = RUNS) -> float:
    """The fastest of some runs."""
    work()
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return 1000 * min(taken)


def lane(customer: str, drained: int, limit: int) -> LaneRange:
    return LaneRange(0, customer, TOPIC, drained, LAST_OFFSET, TODAY - timedelta(days=1), limit)


def reads(waiting: int) -> dict[str, str]:
    """Of the long lane from its middle, and of many."""
    store, middle = DjangoStore(), waiting // 2
    wanted = store.read([lane(CUSTOMER, waiting * 3 // 4, 1)])[0, CUSTOMER][0].notification_id
    hundred = [lane(f"c{customer}", -1, 10) for customer in range(100)]
    return {
        "page of 200, ms": number(milliseconds(lambda: store.read([lane(CUSTOMER, middle, 200)]))),
        "100 lanes × 10, ms": number(milliseconds(lambda: store.read(hundred))),
        "search, found, ms": number(milliseconds(lambda: store.find(lane(CUSTOMER, -1, 1), wanted))),
        "not found, ms": number(milliseconds(lambda: store.find(lane(CUSTOMER, -1, 1), "nobody's"))),
    }


def rows(plan: Plan) -> list[dict[str, str]]:
    """Store, bare, bare, store …: what disturbs the machine meets both. Then without the index, whose building does."""
    found, before, size = [], 0, 10_000 if plan.quick else 40_000
    stored(BATCH)
    for waiting in (10_000, 100_000) if plan.quick else (10_000, 1_000_000):
        fill(waiting, before)
        before = waiting
        ours, same = [], []
        for turn in range(plan.repeat):
            for run, into in [(stored, ours), (bare, same)][:: -1 if turn % 2 else 1]:
                into.append(run(size))
        with without_index():
            plain = [bare(size) for _ in range(plan.repeat)]
        analyse(TABLE.name)
        found.append({
            "buffered": number(waiting), "rows/s": median(ours), "bare statement": median(same), "of it": ratio(ours, same),
            "without the index of ids": median(plain), "of it ": ratio(ours, plain), **reads(waiting),
        })  # fmt: skip
    return found


def page_rows(plan: Plan) -> list[dict[str, str]]:
    """Server time of the admin's pages, the whole request in this process."""
    waiting = 100_000 if plan.quick else 1_000_000
    have = Lane.objects.filter(customer_id=CUSTOMER).values_list("backlog", flat=True).first()
    if have != waiting:
        fill(waiting)
    user, _ = get_user_model().objects.get_or_create(username="boss", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(user)
    with override_settings(SECURE_SSL_REDIRECT=False, ALLOWED_HOSTS=["*"]):
        return [{"buffered": number(waiting)} | {
            f"{name}, ms": number(milliseconds(lambda url=url: asked(client, url))) for name, url in urls(waiting)
        }]  # fmt: skip


def urls(waiting: int) -> Iterator[tuple[str, str]]:
    middle = Lane.objects.get(customer_id=CUSTOMER).drained + waiting // 2
    row = DjangoStore().read([lane(CUSTOMER, middle, 1)])[0, CUSTOMER][0]
    listed = f"{reverse('admin:throttler_customer_messages')}?customer={CUSTOMER}"
    where = urlencode({"customer": CUSTOMER, "partition": 0, "offset": row.offset})
    yield "customers", reverse("admin:throttler_customer_changelist")
    yield "customer", reverse("admin:throttler_customer_change", args=[CUSTOMER])
    yield "first page of messages", listed
    yield "page in the middle", f"{listed}&after={middle}"
    yield "message", f"{reverse('admin:throttler_customer_message')}?{where}"
    yield "search, found", f"{listed}&notification={row.notification_id}"
    yield "search, not found", f"{listed}&notification=nothing"


def asked(client: Client, url: str) -> None:
    if client.get(url).status_code != 200:
        raise RuntimeError(url)
