"""What strangers wrote does nothing on a terminal: no command, no log line on a console passes on what a terminal obeys."""

from __future__ import annotations

import io
import logging

import pytest
from django.core.management import call_command, get_commands, load_command_class

from config.database.clock import database_now
from config.processes.commands import VisibleCommand
from config.telemetry import logs
from config.telemetry.redaction import on_one_line, visible
from outbox.letters.burial import bury
from tests.outbox.test_outbox import letter
from throttler.models import Customer

# Colours and titles of a terminal (C0 and C1), a bell, a line begun anew, directions, half a character, a line separator.
STEERING = [
    "\x1b[31m",
    "\x9b2J",
    "\x1b]0;title\x07",
    "\r",
    "\u202e",
    "\u2066",
    "\u200f",
    "\ud800",
    "\u2028",
    "\x7f",
    "\x08",
]
OURS = {"config", "outbox", "buffer", "throttler", "notifications"}
DJANGOS = {"migrate", "runserver"}  # which we only extend: they print names of ours, in colours


@pytest.mark.parametrize("text", STEERING, ids=ascii)
def test_what_a_terminal_obeys_is_written_out(text):
    shown = visible(f"a{text}b\nc")
    assert shown.replace("\n", "").isprintable()
    assert shown.startswith("a\\")
    assert shown.endswith("b\nc")
    assert on_one_line("a\nb") == "a\\nb"


def test_what_people_read_stays_as_it_is():
    for text in ("naïve — 東京 “ok”", "two\nlines", ""):
        assert visible(text) == text


@pytest.mark.parametrize(
    "name", sorted(name for name, app in get_commands().items() if app in OURS and name not in DJANGOS)
)
def test_no_command_passes_on_what_a_terminal_obeys(name):
    command = load_command_class(get_commands()[name], name)
    assert isinstance(command, VisibleCommand)
    for stream in ("stdout", "stderr"):
        given = io.StringIO()
        setattr(command, stream, type(command.stdout)(given))
        getattr(command, stream).write("".join(STEERING))
        assert given.getvalue().rstrip("\n").isprintable()


@pytest.mark.django_db
@pytest.mark.parametrize("verb", [["list"], ["list", "--json"], ["show", "--all"], ["show", "--all", "--reveal"]])
def test_no_letter_steers_the_terminal(verb):
    told = "".join(STEERING[:7])
    bury(
        [letter(value=told.encode(), business_key=f"A1{told}\nB2", error=f"the server said {told}")],
        "g",
        database_now(),
    )
    out = io.StringIO()
    call_command("dead_letters", *verb, "--reason", "to read it", stdout=out)
    lines = out.getvalue().splitlines()
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("B2") for line in lines), "a key began a line of its own"


@pytest.mark.django_db
def test_no_customer_steers_the_terminal():
    now = database_now()
    name = "shop\u202e-x"
    Customer.objects.create(customer_id=name, rates="1/s", created_at=now, updated_at=now)
    for verb in (["list"], ["show", name]):
        out = io.StringIO()
        call_command("customers", *verb, stdout=out)
        assert "shop\\u202e-x" in out.getvalue()
        assert "\u202e" not in out.getvalue()


def test_a_log_on_a_console_shows_what_a_stranger_sent(settings):
    written = io.StringIO()
    try:
        logs.configure({"level": "INFO", "format": "console"})
        logging.getLogger().handlers[0].setStream(written)
        logging.getLogger("anybody").error("said %s", "".join(STEERING))
        logs.log.error("said", error="\x1b[31mred", answer="\x9b2J")
    finally:
        logs.configure(settings.LOGGING)
    assert "\\x1b[31mred" in written.getvalue()
    assert all(line.isprintable() for line in written.getvalue().splitlines())
