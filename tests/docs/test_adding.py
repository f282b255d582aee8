"""The examples of docs/adding.md and docs/email.md, put into a copy of the project as a reader would, and run."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from django.db import connection

from tests.tree import ROOT, read

pytestmark = pytest.mark.skipif(
    connection.vendor != "sqlite", reason="the copy has an SQLite of its own: once is enough"
)

CODE = ["manage.py", "config", "outbox", "buffer", "notifications", "throttler", "templates"]
BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TRY = """
import json
from django.conf import settings
from django.db import transaction
from django.test import Client
from django.utils.module_loading import import_string
from buffer.ledger.opening import import_stock
from buffer.ledger.handler import Track
from buffer.models import InventoryStock
from buffer.streams import streams
from config.database.clock import database_now
from config.processes.housekeeping import rotate_and_sweep
from config.kafka import RecordBatch, Replayed
from notifications import channels
from notifications.api.tokens import issue
from outbox.bookkeeping.audit import Operator
from outbox.models import OutboxMessage
from outbox.messages.publish import publish
from outbox.replay.models import TopicReplay
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
                               state="done", finished_at=now - __import__("datetime").timedelta(days=age))
rotate_and_sweep()
found["replays"] = TopicReplay.objects.count()
found["mail"] = channels.configured().send(None, "7").receipt
print(json.dumps(found))
"""


def blocks():
    text = read(ROOT / "docs" / "adding.md") + read(ROOT / "docs" / "email.md")
    return BLOCK.findall(text)


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
def found(tmp_path_factory, gateway):
    """What the examples did in a copy of the project."""
    copy = tmp_path_factory.mktemp("copy")
    for name in CODE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    for path, code in blocks():
        with (copy / path).open("a", encoding="utf-8") as file:
            file.write("\n" + code)
    settings = copy / "config" / "settings.py"
    settings.write_text(
        settings.read_text().replace("http://127.0.0.1:8900/messages", gateway) + "EMAIL_CHANNEL = 'pigeon'\n"
    )
    (copy / "try.py").write_text("import django\ndjango.setup()\n" + TRY)
    run(copy, "manage.py", "check")
    run(copy, "manage.py", "migrate", "--verbosity", "0")
    return json.loads(run(copy, "try.py").splitlines()[-1])


def run(copy, *arguments) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=copy, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "PYTHONPATH": str(copy), "DEMO": "1",
             "DATABASE_URL": f"sqlite:///{copy}/db.sqlite3", "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1",
             "ALLOWED_HOSTS": "testserver"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_example_names_its_file():
    paths = {path for path, _ in blocks()}
    assert len(paths - {"config/settings.py"}) >= 6
    assert "config/settings.py" in paths


def test_a_stream_is_known_by_its_name(found):
    assert found["streams"] == ["returns", "transfer-requests"]


def test_a_stock_topic_counts_once_and_a_route_tells_it(found):
    assert found["stock"] == {"id": "S-1", "quantity": 7}


def test_a_route_refuses_asks_for_a_token_and_is_documented(found):
    assert (found["missing"], found["without token"], found["documented"]) == (404, 401, True)


def test_a_channel_sends_refuses_and_waits(found):
    assert "nothing else" in found["refused"]
    assert found["texts"] == [
        ["order:0", "sent", "text-1"], ["order:1", "dead_lettered", ""], ["order:2", "pending", ""],
    ]  # fmt: skip


def test_a_sweep_runs_with_the_rotation(found):
    assert found["replays"] == 1


def test_a_way_for_mail_is_chosen_by_its_name(found):
    assert found["mail"] == "feather-7"
