"""The examples of docs/adding.md and docs/email.md, put into a copy of the project as a reader would, and run."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.shares import TOLD_BY
from tests.tree import ROOT, read

pytestmark = pytest.mark.processes

CODE = (
    "manage.py pyproject.toml config outbox buffer notifications throttler spillway_ext client templates tests".split()
)
BLOCK = re.compile(r"^```(python|diff)\n# (\S+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WALKED = re.compile(r"`(\w[\w/]*(?:/|\.py))`")
TRY = """
import json
import re
from datetime import timedelta
from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import transaction
from django.test import Client
from django.utils.module_loading import import_string
from buffer.ledger.stocktake import import_stock
from buffer.ledger.handler import Track
from buffer.models import InventoryStock
from buffer.streams import streams
from config.database.clock import database_now
from config.processes.beat import rotate_and_sweep
from config.kafka import RecordBatch, Replayed
from notifications import channels
from notifications.api.tokens import issue
from config.admin.levers import Operator
from outbox.channels import permits
from outbox.models import OutboxMessage
from outbox.messages.publish import publish
from outbox.topic_replay.models import TopicReplay
from outbox.workers.start import relay_round
from pathlib import Path

found = {"streams": sorted(streams())}

file = Path("stock.csv")
file.write_text("stock_id,item,location,quantity\\nS-1,I,L,10\\n")
import_stock(file, dry_run=False, say=lambda line: None)
handler = Track()
for offset in (1, 2):
    record = Replayed("STOCK_WASTED", 0, offset, 1, b"S-1", b'{"wasteId": "W-1", "stockId": "S-1", "quantity": 3}', [])
    batch = RecordBatch([record], {"STOCK_WASTED": "topic"})
    batch.prepared = handler.prepare(batch)
    with transaction.atomic():
        handler.apply(batch, database_now())

_, token = issue("docs", Operator("docs"))
get = lambda path: Client().get(path, secure=True, headers={"Authorization": f"Bearer {token}"})
found["stock"] = get("/v1/stocks/S-1").json()
found["missing"] = get("/v1/stocks/S-2").json()["status"]
found["without token"] = Client().get("/v1/stocks/S-1", secure=True).status_code
_, customers = issue("shop", Operator("docs"), customer_id="C-1")
refused = Client().get("/v1/stocks/S-1", secure=True, headers={"Authorization": f"Bearer {customers}"})
found["with a customer's token"] = refused.status_code
found["documented"] = "/v1/stocks/{stock_id}" in get("/api/openapi.json").json()["paths"]

try:
    with transaction.atomic():
        publish("e", "order:1", {"to": "+49"}, idempotency_key="bad", channel="texts")
except ValueError as error:
    found["refused"] = str(error)
for number in range(3):
    with transaction.atomic():
        publish("e", f"order:{number}", {"to": "+49", "text": str(number)}, idempotency_key=str(number), channel="texts")
relay_round(5)
found["texts"] = sorted(OutboxMessage.objects.values_list("aggregate", "state", "receipt"))

now = database_now()
for age in (10, 200):
    TopicReplay.objects.create(topic="t", since=now, until=now, reason="r", requested_by="ann", created_at=now,
                               state="done", finished_at=now - timedelta(days=age))
rotate_and_sweep()
found["replays"] = TopicReplay.objects.count()
found["mail"] = channels.configured().send(None, "7").receipt

waiting = OutboxMessage.objects.filter(aggregate="order:9")
page = lambda url: browser.get(url, secure=True).content.decode()
browser = Client()
browser.force_login(get_user_model().objects.create_superuser("ann"))
with transaction.atomic():
    publish("e", "order:9", {"to": "+49", "text": "0"}, idempotency_key="9", channel="texts")
permits.expect_maintenance("texts", now + timedelta(hours=1))
relay_round(5)
found["in maintenance"] = waiting.get().state
found["page in maintenance"] = ">Maintenance<" in page("/admin/outbox/channelstate/texts/change/")
permits.expect_maintenance("texts", now - timedelta(hours=1))
relay_round(5)
found["after it"] = waiting.get().state
found["page after it"] = ">Maintenance<" in page("/admin/outbox/channelstate/texts/change/")

letters = page("/admin/outbox/deadletter/")
found["columns"] = re.findall(r'class="text"><span>([^<]+)<', letters)
print(json.dumps(found))
"""


def blocks():
    """(language, file, text) of every example."""
    text = read(ROOT / "docs" / "adding.md") + read(ROOT / "docs" / "email.md")
    return BLOCK.findall(text)


def apply(language: str, file: Path, example: str) -> None:
    """What a reader does with an example: make the file, add to its end, or change the lines that the place shows."""
    if not file.exists():
        file.write_text(example)
    elif language == "python":
        file.write_text(f"{file.read_text()}\n{example}")
    else:
        for hunk in re.split(r"^@@\n", example, flags=re.MULTILINE):
            lines = hunk.splitlines(keepends=True)
            before, after = ("".join(line[1:] for line in lines if line[0] in kept) for kept in (" -", " +"))
            assert file.read_text().count(before) == 1, f"{file.name} shows this place not once:\n{before}"
            file.write_text(file.read_text().replace(before, after))


class Gateway(BaseHTTPRequestHandler):
    """Takes a text, refuses one for good, and is out of order for another."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = {"0": 200, "1": 400, "2": 503}[body["text"]]
        self.send_response(status)
        self.end_headers()
        self.wfile.write(b'{"id": "text-1"}')

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def gateway():
    server = HTTPServer(("127.0.0.1", 0), Gateway)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/messages"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def copy(tmp_path_factory, gateway):
    """The project with all examples, each put in as a reader would."""
    copy = tmp_path_factory.mktemp("copy")
    for name in CODE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    for language, path, example in blocks():
        apply(language, copy / path, example)
    settings = copy / "config" / "settings.py"
    settings.write_text(
        settings.read_text().replace("http://127.0.0.1:8900/messages", gateway) + 'EMAIL_CHANNEL = "pigeon"\n'
    )
    run(copy, "manage.py", "makemigrations", "outbox", "--name", "channel_maintenance")
    return copy


@pytest.fixture(scope="module")
def found(copy):
    """What the examples did."""
    run(copy, "manage.py", "check")
    run(copy, "manage.py", "migrate", "--verbosity", "0")
    return json.loads(run(copy, "-c", "import django\ndjango.setup()\n" + TRY).splitlines()[-1])


def run(copy, *arguments, **environment) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=copy, capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, **dict.fromkeys(TOLD_BY, ""), "DJANGO_SETTINGS_MODULE": "config.settings", "PYTHONPATH": str(copy), "DEMO": "1",
             "DATABASE_URL": f"sqlite:///{copy}/db.sqlite3", "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
             "ALLOWED_HOSTS": "testserver", **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_example_names_its_file():
    paths = {path for _, path, _ in blocks()}
    assert len(paths - {"config/settings.py"}) >= 10
    assert "config/settings.py" in paths


def test_every_walk_leads_through_folders_and_files_that_exist():
    rows = [line for line in read(ROOT / "docs" / "adding.md").splitlines() if line.startswith("| [")]
    assert len(rows) >= 10
    for row in rows:
        places = WALKED.findall(row)
        assert len(places) >= 2, row
        assert all((ROOT / place).exists() for place in places), row


# All examples at once make the settings longer than a file may be; each alone does not.
RULES = ["tests/test_layers.py", "tests/test_rooms.py", "--deselect=tests/test_layers.py::test_files_are_short"]
PRODUCTION = {
    "DEMO": "0", "DEBUG": "0", "ALLOWED_HOSTS": "spillway.example", "CSRF_TRUSTED_ORIGINS": "https://spillway.example",
    "SECRET_KEY": "x" * 25 + "0123456789abcdefghijklmnopqrstuvwxyz",
}  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ["-m", "ruff", "check", "--no-cache", "."],
        ["-m", "ruff", "format", "--no-cache", "--check", "."],
        ["-m", "mypy", "."],
        ["manage.py", "makemigrations", "--check", "--dry-run"],
        ["manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        ["-m", "pytest", "-q", "-p", "no:cacheprovider", *RULES],
    ],
    ids=["ruff", "format", "mypy", "migrations", "deploy", "rooms"],
)
def test_with_all_examples_the_project_passes_what_make_check_runs(copy, arguments):
    run(copy, *arguments, **(PRODUCTION if "--deploy" in arguments else {}))


def test_a_stream_is_known_by_its_name(found):
    assert found["streams"] == ["returns", "transfer-requests"]


def test_a_stock_topic_counts_once_and_a_route_tells_it(found):
    assert found["stock"] == {"id": "S-1", "quantity": 7}


def test_a_route_refuses_asks_for_a_token_and_is_documented(found):
    assert (found["missing"], found["without token"], found["documented"]) == (404, 401, True)
    assert found["with a customer's token"] == 403


def test_a_channel_sends_refuses_and_waits(found):
    assert "nothing else" in found["refused"]
    assert found["texts"] == [
        ["order:0", "sent", "text-1"], ["order:1", "dead_lettered", ""], ["order:2", "pending", ""],
    ]  # fmt: skip


def test_a_sweep_runs_with_the_rotation(found):
    assert found["replays"] == 1


def test_a_way_for_mail_is_chosen_by_its_name(found):
    assert found["mail"] == "feather-7"


def test_a_channel_in_maintenance_keeps_its_messages_and_says_so(found):
    assert (found["in maintenance"], found["page in maintenance"]) == ("pending", True)
    assert (found["after it"], found["page after it"]) == ("sent", False)


def test_a_list_has_the_new_columns(found):
    assert found["columns"][-5:] == ["Cause", "Flow", "Position", "Arrived", "Changed"]
