#!/usr/bin/env python3
"""Fill a throw-away database with plausible rows and take the README's pictures: `python docs/screenshots.py`.

Needs Chromium and `pip install playwright`. Writes docs/images/*.png.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ADDRESS = "127.0.0.1:8765"
SKUS = ["BRD-24", "CRS-06", "MLK-1L", "SUG-5K", "BTR-250", "EGG-30"]
ROLLING = random.Random(42)  # noqa: S311 (the same pictures every time)


def prepare(database: Path) -> None:
    """Environment of the throw-away installation; before Django is imported."""
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "DATABASE_URL": f"sqlite:///{database}",
        "SECRET_KEY": "only for pictures",
        "SECURE_SSL_REDIRECT": "0",
        "ENVIRONMENT_NAME": "production",
        "LOG_LEVEL": "ERROR",
    }
    sys.path.insert(0, str(ROOT))
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, skip_checks=True)


# -- Rows --------------------------------------------------------------------------------------------------
def fill(busy: bool) -> None:
    """A morning at a few warehouses; `busy` adds what a bad morning has."""
    from django.contrib.auth.models import User
    from django.utils import timezone

    now = timezone.now()
    User.objects.create_superuser("ito", password="pictures", first_name="S. Ito")  # noqa: S106
    add_counters(now)
    add_positions(now, busy)
    for number in range(1, 132):
        add_warehouse(f"WH-{number:02d}", now, number)
    if busy:
        add_trouble(now)
    add_trail(now)


def add_counters(now) -> None:  # type: ignore[no-untyped-def]
    from outbox.models import FlowCounter, FlowMinute

    minute = int(now.timestamp() // 60)
    usual = {"read": 12_700, "accepted": 12_400, "redelivered": 3, "batches_sent": 14, "events_sent": 12_300}
    for name, value in usual.items():
        FlowCounter.objects.create(flow="transfer-requests", scope="0", name=name, value=value * 60 * 24)
        for ago in range(60):
            share = (now.timestamp() % 60) / 60 if ago == 0 else 1
            amount = int(value * ROLLING.uniform(0.9, 1.1) * share)
            FlowMinute.objects.create(flow="transfer-requests", name=name, minute=minute - ago, value=amount)
    for ago in range(60):
        change = ROLLING.randint(-40, 46)
        FlowMinute.objects.create(flow="transfer-requests", name="open", minute=minute - ago, value=change)


def add_positions(now, busy: bool) -> None:  # type: ignore[no-untyped-def]
    from outbox.models import Watermark

    for partition in range(12):
        stopped = busy and partition == 7
        Watermark.objects.create(
            group="buffer-ingest", topic="transfer-requests", partition=partition, topic_id="q1Sh-9zWR2yT4m0pKc7n1A",
            next_offset=1_882_041 + partition * 977, end_offset=1_882_049 + partition * 977 + 4_100 * stopped,
            caught_up_at=now - timedelta(minutes=38 * stopped, seconds=0.4),
            updated_at=now + timedelta(hours=1) - timedelta(hours=1, minutes=38) * stopped,
            alarm="The topic was deleted and created again: its id differs from the one that was read." * stopped,
        )  # fmt: skip


def add_warehouse(location: str, now, number: int) -> None:  # type: ignore[no-untyped-def]
    from buffer.models import Bucket
    from outbox.models import FlowCounter

    count = ROLLING.randint(1, 120) if number < 40 else ROLLING.randint(1, 20)
    first = now - timedelta(seconds=ROLLING.randint(10, 250))
    last = first + timedelta(seconds=ROLLING.randint(0, 9))
    idle, cap = last + timedelta(minutes=5), first + timedelta(minutes=30)
    Bucket.objects.create(
        stream="transfer-requests", location_id=location, open_count=count, sequence=18 + number % 7,
        first_arrival=first, last_arrival=last, idle_at=idle, cap_at=cap, due_at=now if number % 9 == 4 else idle,
        topic="transfer-requests", source_partition=number % 12,
    )  # fmt: skip
    counter, _ = FlowCounter.objects.get_or_create(flow="transfer-requests", scope="0", name="open")
    counter.value += count
    counter.save()
    if number in (7, 42):
        for sequence in range(6):
            add_batch(location, now - timedelta(minutes=11 * sequence, seconds=3), 18 + number % 7 - sequence)
        add_orders(location, now, min(count, 12))


def add_orders(location: str, now, number: int, **more) -> list:  # type: ignore[no-untyped-def]
    from buffer.models import BufferedEvent

    rows = []
    for index in range(number):
        order = f"A-{ROLLING.randint(10_000, 99_999)}"
        items = [{"sku": sku, "quantity": ROLLING.randint(1, 9)} for sku in ROLLING.sample(SKUS, 2)]
        message = {"order_id": order, "location_id": location, "ordered_at": now.isoformat(), "items": items}
        came = now - timedelta(seconds=200 - 7 * index)
        fields = {"status": "pending", "revision": index % 3 // 2, "created_at": came, "updated_at": came, **more}
        rows.append(BufferedEvent(
            partition_key=now.year * 100 + now.month, stream="transfer-requests", location_id=location,
            order_id=order, payload=json.dumps(message), payload_hash=uuid.uuid4().hex, source_partition=7,
            source_offset=1_882_000 + ROLLING.randint(0, 10**6), source_timestamp=int(came.timestamp() * 1000),
            **fields,
        ))  # fmt: skip
    return BufferedEvent.objects.bulk_create(rows)


def add_batch(location: str, cut, sequence: int, **more):  # type: ignore[no-untyped-def]
    from buffer.models import Batch

    batch_id = uuid.UUID(int=ROLLING.getrandbits(128), version=4)
    status = more.get("status", "sent")
    state = {"sent": "sent", "parked": "claimed", "claimed": "claimed"}[status]
    orders = add_orders(location, cut, 9, status=state, batch_id=batch_id)
    items = [{"sku": sku, "quantity": ROLLING.randint(4, 60)} for sku in sorted(SKUS)]
    message = {
        "batch_id": str(batch_id), "location_id": location, "flushed_at": cut.isoformat(),
        "order_ids": [order.order_id for order in orders], "items": items,
    }  # fmt: skip
    sent = {"sent_at": cut + timedelta(seconds=0.4), "output_partition": 3, "output_offset": 88_000 + sequence}
    return Batch.objects.create(
        batch_id=batch_id, stream="transfer-requests", location_id=location, sequence=sequence, reason="idle",
        partition_key=cut.year * 100 + cut.month, event_count=len(orders), payload=json.dumps(message),
        headers={"batch_id": str(batch_id), "correlation_id": str(batch_id)},
        months=[cut.year * 100 + cut.month], event_ids=[order.pk for order in orders], claimed_at=cut,
        **{"status": status, **(sent if status == "sent" else {}), **more},
    )  # fmt: skip


def add_trouble(now) -> None:  # type: ignore[no-untyped-def]
    from buffer.models import Bucket

    error = "MessageSizeTooLargeError: the topic allows 524288 bytes"
    refused = add_batch("WH-42", now - timedelta(minutes=26), 31, status="parked", attempts=1, error=error)
    add_group(now, "publish", "batch_refused", f"Batch refused: {error}", error, 1, 26, str(refused.pk))
    add_group(now, "late", "late_event", "Late event: the order was already sent in a batch", "the order is in a batch", 62, 41)
    add_group(now, "decode", "missing_field", "Missing field: items[].quantity", "$.items[0] has no `quantity`", 14, 300)
    add_group(now, "decode", "not_utf8", "Not utf8: text holds a broken character", "invalid start byte at 17", 6, 1100)
    add_group(now, "window", "outside_window", "Outside window: ordered_at is too old", "202409 is not kept", 3, 700)
    Bucket.objects.filter(location_id="WH-13").update(held=True, due_at=None)


def add_group(now, step, reason, title, error, number, minutes, about="") -> None:  # type: ignore[no-untyped-def]
    from outbox.models import DeadLetter, FailureGroup

    first = now - timedelta(minutes=minutes)
    group = FailureGroup.objects.create(
        fingerprint=uuid.uuid4().hex, source="transfer-requests", step=step, reason=reason, title=title,
        open_count=number, total_count=number + 9, first_seen=first, last_seen=now - timedelta(minutes=minutes / 10),
    )  # fmt: skip
    for index in range(number):
        came = first + timedelta(minutes=minutes * 0.9 * index / number)
        order = about or f"A-{ROLLING.randint(10_000, 99_999)}"
        payload = {"order_id": order, "location_id": "WH-42", "items": [{"sku": "BRD-24"}]}
        DeadLetter.objects.create(
            group=group, source="transfer-requests", step=step, reason=reason, error=error,
            error_class="".join(part.capitalize() for part in reason.split("_")), consumer_group="buffer-ingest",
            topic="transfer-requests", partition=3, offset=1_882_041 + index, key=b"WH-42", business_key=order,
            payload=json.dumps(payload).encode(), headers=[["correlation_id", uuid.uuid4().hex]],
            correlation_id=uuid.uuid4().hex, created_at=came, updated_at=came,
        )  # fmt: skip


def add_trail(now) -> None:  # type: ignore[no-untyped-def]
    from outbox.models import OperatorAction

    deeds = [
        (3, "M. Okafor", "flush now", "WH-07", "Truck leaves at nine, the warehouse called", "done"),
        (31, "M. Okafor", "requeue", "Letter A-55790", "Supplier confirmed 12 pieces by phone", "handled again"),
        (52, "A. Petrov", "hold", "WH-13", "Stocktake until noon", "done"),
        (180, "A. Petrov (command)", "discard", "12 letters, Missing field", "Test orders of the training shop", "discarded"),
        (300, "S. Ito", "withdraw", "A-20811 at WH-42", "Customer cancelled, ticket 4471", "done"),
    ]
    for minutes, who, verb, subject, reason, result in deeds:
        OperatorAction.objects.create(
            actor_name=who, verb=verb, subject=subject, reason=reason, result=result,
            created_at=now - timedelta(minutes=minutes),
        )  # fmt: skip


# -- Pictures ----------------------------------------------------------------------------------------------
@contextmanager
def served() -> Iterator[str]:
    command = [sys.executable, "manage.py", "runserver", ADDRESS, "--noreload", "--skip-checks"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://{ADDRESS}/healthz", timeout=1)  # noqa: S310
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://{ADDRESS}/admin/"
    finally:
        server.terminate()
        server.wait()


def pages() -> dict[str, str]:
    """Names of pictures and where they are taken."""
    from buffer.models import Batch, Bucket, BufferedEvent
    from outbox.models import DeadLetter, FailureGroup

    bucket = Bucket.objects.get(location_id="WH-07").pk
    batch = Batch.objects.filter(location_id="WH-07", status="sent").first()
    event = BufferedEvent.objects.filter(location_id="WH-07", status="pending").first()
    letters = [str(pk) for pk in DeadLetter.objects.filter(reason="missing_field").values_list("pk", flat=True)]
    found = {
        "home": "",
        "batches": "buffer/batch/",
        "buckets": "buffer/bucket/",
        "events": "buffer/bufferedevent/",
        "watermarks": "outbox/watermark/",
        "actions": "outbox/operatoraction/",
        "groups": "outbox/failuregroup/",
        "letters": "outbox/deadletter/",
        "bucket": f"buffer/bucket/{bucket}/change/",
        "batch": f"buffer/batch/{batch.pk}/change/" if batch else "",
        "event": f"buffer/bufferedevent/{event.pk}/change/" if event else "",
        "flush": f"buffer/bucket/lever/flush/?id={bucket}",
        "no-hit": "find/?q=A-00000",
    }
    if letters:
        found["letter"] = f"outbox/deadletter/{letters[0]}/change/"
        found["group"] = f"outbox/failuregroup/{FailureGroup.objects.get(reason='missing_field').pk}/change/"
        found["discard"] = "outbox/deadletter/lever/discard/?" + "&".join(f"id={pk}" for pk in letters)
    return found


def take(base: str, wanted: dict[str, str], folder: Path, *, dark: bool = False, width: int = 1440) -> None:
    """Log in once and take every picture, the whole page high."""
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        scheme = "dark" if dark else "light"
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        page.on("console", lambda message: print(f"  {message.type}: {message.text}"))  # noqa: T201
        page.goto(base)
        page.fill("#id_username", "ito")
        page.fill("#id_password", "pictures")
        page.click("input[type=submit]")
        for name, path in wanted.items():
            page.goto(base + path)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=folder / f"{name}.png", full_page=True)
        browser.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder) / "pictures.sqlite3")
        fill(busy=True)
        with served() as base:
            found = pages()
            shown = {name: found[name] for name in ("home", "bucket", "batch", "letters", "discard")}
            take(base, shown, IMAGES)
            take(base, {"home-dark": ""}, IMAGES, dark=True)
            take(base, {"home-narrow": ""}, IMAGES, width=390)


if __name__ == "__main__":
    main()
