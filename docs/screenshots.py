#!/usr/bin/env python3
"""Fill a throw-away database and take the README's pictures: `python docs/screenshots.py`.

Needs Chromium. Writes docs/images/*.png.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
ADDRESS = "127.0.0.1:8765"


def prepare(database: Path) -> None:
    """Environment of the throw-away installation; before Django is imported."""
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "DATABASE_URL": f"sqlite:///{database}",
        "SECRET_KEY": "only for pictures",
        "SECURE_SSL_REDIRECT": "0",
        "ENVIRONMENT_NAME": "production",
        "LOG_LEVEL": "ERROR",
        "EMAIL_CHANNEL": "memory",
        # Playwright runs a loop in this thread; rows are only written between pages.
        "DJANGO_ALLOW_ASYNC_UNSAFE": "1",
    }
    sys.path.insert(0, str(ROOT))
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, skip_checks=True)


@contextmanager
def served() -> Iterator[str]:
    """The web server, and the address of its admin."""
    command = [sys.executable, "manage.py", "runserver", ADDRESS, "--noreload", "--skip-checks"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        while server.poll() is None and not answers():
            time.sleep(0.1)
        yield f"http://{ADDRESS}/admin/"
    finally:
        server.terminate()
        server.wait()


def answers() -> bool:
    try:
        urllib.request.urlopen(f"http://{ADDRESS}/healthz", timeout=1)
    except OSError:
        return False
    return True


def pages() -> dict[str, str]:
    """Names of pictures and where they are taken."""
    from sample_flows import busiest_stock

    from buffer.events.models import Batch, Bucket, BufferedEvent
    from outbox.letters.models import DeadLetter
    from outbox.models import OutboxMessage

    waiting = OutboxMessage.objects.pending().earliest("pk")
    bucket = Bucket.objects.get(location_id="WH-07")
    batch = Batch.objects.filter(location_id="WH-07").latest("sequence")
    event = BufferedEvent.objects.filter(location_id="WH-07", status="pending").earliest("pk")
    letters = DeadLetter.objects.filter(reason="wrong_field").order_by("pk")
    found = {
        "home": "",
        "batches": "buffer/batch/",
        "buckets": "buffer/bucket/",
        "events": "buffer/bufferedevent/",
        "watermarks": "outbox/watermark/",
        "actions": "outbox/operatoraction/",
        "groups": "outbox/failuregroup/",
        "letters": "outbox/deadletter/",
        "bucket": f"buffer/bucket/{bucket.pk}/change/",
        "batch": f"buffer/batch/{batch.pk}/change/",
        "event": f"buffer/bufferedevent/{event.pk}/change/",
        "flush": f"buffer/bucket/lever/flush/?id={bucket.pk}",
        "no-hit": "find/?q=A-00000",
        "message": f"outbox/outboxmessage/{waiting.pk}/change/",
        "channel": "outbox/channelstate/email/change/",
        "stock": f"buffer/inventorystock/{busiest_stock()}/change/",
    }
    for letter in letters[:1]:
        found["letter"] = f"outbox/deadletter/{letter.pk}/change/"
        found["group"] = f"outbox/failuregroup/{letter.group_id}/change/"
        found["discard"] = "outbox/deadletter/lever/discard/?" + "&".join(f"id={row.pk}" for row in letters)
    return found


def take(base: str, wanted: dict[str, str], folder: Path, *, dark: bool = False, width: int = 1440) -> None:
    """Log in once and take every picture, the whole page high."""
    from playwright.sync_api import sync_playwright
    from sample_rows import freshen

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
        page.on("console", lambda message: print(f"  {message.type}: {message.text}"))  # noqa: T201
        page.goto(base)
        page.fill("#id_username", "ito")
        page.fill("#id_password", "pictures")
        page.click("input[type=submit]")
        for name, path in wanted.items():
            freshen()
            page.goto(base + path)
            page.wait_for_load_state("networkidle")
            # As high as the page: Chromium does not paint a frame that lies below the window.
            height = page.evaluate("document.documentElement.scrollHeight")
            page.set_viewport_size({"width": width, "height": max(900, height)})
            page.wait_for_timeout(200)
            page.screenshot(path=folder / f"{name}.png", full_page=True)
            page.set_viewport_size({"width": width, "height": 900})
        browser.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder) / "pictures.sqlite3")
        from sample_flows import fill_flows
        from sample_rows import fill

        fill(busy=True)
        fill_flows()
        with served() as base:
            found = pages()
            shown = {
                name: found[name]
                for name in ("home", "bucket", "batch", "letter", "groups", "discard", "message", "stock")
            }
            take(base, shown, IMAGES)
            take(base, {"home-dark": ""}, IMAGES, dark=True)
            take(base, {"home-narrow": ""}, IMAGES, width=390)


if __name__ == "__main__":
    main()
