"""`make screenshots`: fill a throw-away database with a bad morning, and take pictures of the admin in three looks.

Needs Chromium. What the documents show goes to docs/images/; with `--all FOLDER` every page goes there instead.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.services.prerequisites import browser

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
CHROMIUM = browser() or "chromium"
PORT = os.environ.get("PORT", "8765")
# The pictures of the documents; home and the console in all three looks.
EVERY_LOOK = ("home", "groups", "group", "letter", "batch-running")
LIGHT = ("batch-preview", "batch-hold", "letter-revealed", "discard", "customer", "message", "stock", "batch", "bucket")


def prepare(database: Path) -> None:
    """Environment of the throw-away installation; before Django is imported."""
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "DATABASE_URL": f"sqlite:///{database}",
        "SECRET_KEY": "only for pictures",
        "SECURE_SSL_REDIRECT": "0",
        "DEBUG": "1",
        "ENVIRONMENT_NAME": "production",
        "LOG_LEVEL": "ERROR",
        "EMAIL_CHANNEL": "memory",
        # Playwright runs a loop in this thread; rows are only written between pages.
        "DJANGO_ALLOW_ASYNC_UNSAFE": "1",
    }
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0, skip_checks=True)


@contextmanager
def served() -> Iterator[str]:
    """The web server, and its address."""
    base = f"http://127.0.0.1:{PORT}"
    command = [sys.executable, "manage.py", "runserver", f"127.0.0.1:{PORT}", "--noreload", "--skip-checks"]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while server.poll() is None and not answers(base):
            time.sleep(0.1)
        yield base
    finally:
        server.terminate()
        server.wait()


def answers(base: str) -> bool:
    try:
        urllib.request.urlopen(f"{base}/healthz", timeout=1)  # noqa: S310 (our own server)
    except OSError:
        return False
    return True


def take(base: str, wanted: Collection[tuple[str, str]], folder: Path) -> None:
    """Pictures `<page>.png`, `<page>-dark.png` and `<page>-narrow.png`, the whole page high."""
    from playwright.sync_api import sync_playwright

    from tests.screenshots.camera import sign_in
    from tests.screenshots.pages import PAGES

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        people = {who: sign_in(browser, base, who) for who in {PAGES[name].who for name, _ in wanted}}
        for name, seen in wanted:
            page = people[PAGES[name].who].new_page()
            picture(page, base, name, seen, folder / (f"{name}.png" if seen == "light" else f"{name}-{seen}.png"))
            page.close()
        browser.close()


def picture(page: Any, base: str, name: str, seen: str, file: Path) -> None:
    from tests.screenshots.camera import HIGH, LOOKS, look, show
    from tests.screenshots.letters import hold_on
    from tests.screenshots.pages import PAGES
    from tests.screenshots.rows import freshen

    freshen()
    hold_on()
    look(page, seen)
    show(page, base + PAGES[name].find(), PAGES[name])
    page.wait_for_load_state("networkidle")
    # As high as the page: Chromium does not paint a frame that lies below the window.
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({"width": LOOKS[seen][1], "height": max(HIGH, height)})
    page.wait_for_timeout(200)
    page.screenshot(path=file, full_page=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.screenshots", description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every page in every look, into this folder")
    parser.add_argument("--only", nargs="+", metavar="PAGE", help="these pages alone")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder) / "pictures.sqlite3")
        from tests.screenshots.others import fill_all
        from tests.screenshots.pages import PAGES

        fill_all()
        names = arguments.only or (list(PAGES) if arguments.all else [])
        wanted = [(name, seen) for name in names or EVERY_LOOK for seen in ("light", "dark", "narrow")]
        wanted += [] if names else [(name, "light") for name in LIGHT]
        target = arguments.all or IMAGES
        target.mkdir(parents=True, exist_ok=True)
        with served() as base:
            take(base, wanted, target)


if __name__ == "__main__":
    main()
