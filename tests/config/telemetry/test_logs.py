"""Lines of the log: said when committed, at most 100 ids in a list, no address in an id."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import uuid
from types import SimpleNamespace

import pytest
from django.db import transaction

from config.telemetry.logs import NAME, RowIds, as_json, begin, bind, line_formatter, log, log_committed
from config.telemetry.redaction import redact
from tests.logged import lines
from tests.tree import ROOT


class Undone(Exception):
    """Ends a transaction without its work."""


@pytest.mark.django_db
def test_a_line_says_what_is_committed_and_nothing_else(caplog, django_capture_on_commit_callbacks):
    with caplog.at_level("INFO"):
        with django_capture_on_commit_callbacks(execute=True):
            with pytest.raises(Undone), transaction.atomic():
                log_committed("messages_sent", messages=1)
                raise Undone
            log_committed("messages_retried", "warning", messages=2)
            assert lines(caplog) == []  # not yet
        assert [(line["event"], line["messages"]) for line in lines(caplog)] == [("messages_retried", 2)]
        assert caplog.records[-1].levelname == "WARNING"


class Unread:
    """A row whose ids nobody may ask for."""

    def __getattr__(self, name):
        raise AssertionError(f"{name} was read")


@pytest.mark.django_db
def test_a_level_that_is_not_wanted_is_not_said_and_costs_no_ids(caplog):
    with caplog.at_level("ERROR", NAME):
        caplog.handler.setLevel("NOTSET")
        log.warning("worker_gone", ids=RowIds([Unread()], message_id="id"))
        unread = RowIds([Unread()], message_id="id")
        log_committed("messages_sent", ids=unread | unread)
        assert lines(caplog) == []
        log.error("worker_failed")
        assert [line["level"] for line in lines(caplog)] == ["error"]


@pytest.mark.django_db
def test_a_line_says_what_its_rows_were_when_it_was_asked_for(caplog, django_capture_on_commit_callbacks):
    row = SimpleNamespace(id="as it was")
    with caplog.at_level("INFO"), django_capture_on_commit_callbacks(execute=True):
        log_committed("messages_sent", ids=RowIds([row], message_id="id"))
        row.id = "changed before the commit"
    assert lines(caplog)[-1]["message_id"] == ["as it was"]


def test_what_is_bound_to_a_request_stands_in_each_of_its_lines(caplog):
    bind(correlation_id="c-1")
    bind(event="not this")
    try:
        log.warning("worker_gone")
        try:
            raise Undone("ada@example.com")
        except Undone:
            log.exception("worker_failed")
    finally:
        begin()
    log.warning("worker_back")
    gone, failed, back = lines(caplog)
    assert (gone["event"], gone["correlation_id"]) == ("worker_gone", "c-1")
    assert "correlation_id" not in back
    assert "Undone" in failed["exception"]
    assert "ada@example.com" not in failed["exception"]


def test_a_line_has_at_most_a_hundred_ids_and_counts_the_rest():
    rows = [(number, f"order:{number}", "") for number in range(1234)]
    fields = RowIds(rows, message_id=0, order_id=1, correlation_id=2).fields
    assert fields == {
        "message_id": [str(number) for number in range(100)],
        "order_id": [f"order:{number}" for number in range(100)],
        "more": 1134,
    }
    assert RowIds([], message_id=0, order_id=1).fields == {"more": 0}
    assert RowIds(["a", None], order_id=None).fields == {"order_id": ["a", ""], "more": 0}
    traces = RowIds([f"00-{7:032x}-{8:016x}-01", ""], trace_id=None)
    assert traces.fields == {"trace_id": [f"{7:032x}", ""], "more": 0}
    made = map(str, range(1234))
    read_once = RowIds(made, 1234, order_id=None)
    assert [read_once.fields for _ in range(2)] == [{"order_id": [*map(str, range(100))], "more": 1134}] * 2
    assert next(made) == "100"
    assert (RowIds(iter("ab"), 2, order_id=None) | RowIds([7], message_id=None)).fields["order_id"] == ["a", "b"]
    both = RowIds(["a"], order_id=None) | traces | RowIds([7], message_id=None)
    assert both.fields == traces.fields | {"order_id": ["a"], "message_id": ["7"]}


@pytest.mark.parametrize("text", ["plain", "\u202eevil", "\udcff", "\x9b"])
def test_a_line_is_ascii_json_whatever_an_id_holds(text):
    pk = uuid.uuid4()
    ids = RowIds([(pk, text)], message_id=0, order_id=1).fields
    for field in (text, "plain"):
        line = as_json({**ids, "reason": field, "first": pk, "worker": Undone, "seen": {text}})
        assert line.isascii()
        assert line == json.dumps(json.loads(line), separators=(",", ":"))
        seen = repr({text}) if text == "\udcff" else [text]
        rest = {"reason": field, "first": str(pk), "worker": repr(Undone), "more": 0, "seen": seen}
        assert json.loads(line) == {"message_id": [str(pk)], "order_id": [text], **rest}
        assert json.loads(as_json({"reason": text})) == {"reason": text}


def test_a_line_on_a_console_begins_with_its_time_and_shows_ids(caplog):
    pk = uuid.uuid4()
    with caplog.at_level("INFO", NAME):
        log.info("messages_sent", ids=RowIds([pk], message_id=None))
    line = line_formatter("console").format(caplog.records[-1])
    assert line.startswith(str(caplog.records[-1].msg["timestamp"]))
    assert f"message_id=['{pk}'] more=0" in line


@pytest.mark.parametrize(("name", "said"), [("library", "%s is away"), ("library", {"ada": 1}), (NAME, "away")])
def test_a_line_of_somebody_else_is_one_of_ours(name, said):
    error = (Undone, Undone("ada@example.com"), None)
    record = logging.LogRecord(name, logging.WARNING, "", 0, said, (), error)
    line = json.loads(line_formatter("json").format(record))
    assert line["exception"].endswith("Undone: <address>\n")
    assert (line["event"], line["logger"], line["level"]) == (str(said), name, "warning")
    assert "timestamp" in line


def test_a_long_line_is_written_at_once():
    """Each datagram is what one write has brought."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        program = (
            "import django; django.setup(); from config.telemetry.logs import log, RowIds;"
            "log.error('messages_sent', ids=RowIds(['x' * 400] * 100, order_id=None))"
        )
        environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "LOG_FORMAT": "json"}
        subprocess.run([sys.executable, "-c", program], stderr=theirs, env=environment, cwd=ROOT, check=True)
        ours.setblocking(False)
        text = ours.recv(1 << 20)
    assert text.endswith(b"}\n")
    assert json.loads(text)["order_id"] == ["x" * 400] * 100


JOB = """
import logging, django
django.setup()
from config.celery import app
app.log.setup(loglevel="WARNING")
from config.telemetry.logs import log
log.info("messages_sent")
log.warning("messages_dead")
logging.getLogger("celery.beat").info("sends a due task")
"""


@pytest.mark.parametrize(("level", "said"), [("INFO", ["messages_sent", "messages_dead"]), ("ERROR", [])])
def test_beat_and_celerys_workers_log_from_log_level_on(level, said):
    """They are started with --loglevel WARNING, which is of Celery's own lines."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings", "LOG_FORMAT": "json", "LOG_LEVEL": level}
    done = subprocess.run([sys.executable, "-c", JOB], capture_output=True, env=environment, cwd=ROOT, check=True)
    assert [json.loads(line)["event"] for line in done.stderr.splitlines()] == said


def test_an_id_that_others_choose_loses_an_address(caplog):
    pk = uuid.uuid4()
    for times in (1, 50):
        with caplog.at_level("INFO", NAME):
            rows = [(pk, "ada@example.com", None), (pk, "A1", "ada@example.com")]
            log.info("messages_sent", ids=RowIds(rows * times, message_id=0, order_id=1, correlation_id=2))
        line = lines(caplog)[-1]
        assert line["message_id"] == [str(pk)] * 2 * times
        assert (line["order_id"], line["correlation_id"]) == (["<address>", "A1"] * times, ["", "<address>"] * times)
    assert redact({"order_id": [pk, "ada@example.com"]}) == {"order_id": [pk, "<address>"]}
    event = {"order_id": ["A1", "ada@example.com"], "correlation_id": "for ada@example.com", "by": "ada@example.com"}
    assert redact({**event, "message_id": ["0198"], "file": "a@b"}) == {
        "order_id": ["A1", "<address>"], "correlation_id": "for <address>", "by": "<address>", "message_id": ["0198"],
        "file": "a@b",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["plain", "not plain: é"])
def test_a_line_is_json_whatever_stands_beside_a_text(text):
    """The standard library writes NaN, which no reader takes, and refuses a key that is no text."""
    key = uuid.uuid4()
    assert json.loads(as_json({"value": float("nan"), "text": text, "by": {key: 1}}), parse_constant=pytest.fail) == {
        "value": None,
        "text": text,
        "by": {str(key): 1},
    }
