"""The demo's account, its folder, its status line: what it says, and what it does not call a proof."""

from __future__ import annotations

import itertools
import json
import os
import re
import socket
import subprocess
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

from config import flows
from config.demo import run
from config.demo.run import emptied_folder, status_line
from config.environment.env import BadSetting
from config.processes.supervisor import Supervisor
from tests.crash.platform import free_port
from tests.tree import ROOT


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def account(said: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """account(sent, arrived, answers, proof): whether it is a proof; its lines are in `said`."""

    def summary(sent: dict, arrived: dict, answers: int = 1, proof: int = 0, begun: dict | None = None) -> bool:
        done = subprocess.CompletedProcess([], proof, "Everything adds up." if proof == 0 else "", "no such table")
        monkeypatch.setattr(run, "command", lambda *_: done)
        monkeypatch.setattr(run, "manage", lambda *_: json.dumps(arrived))
        demo = run.Demo(said.append, tmp_path, {}, 8000, 25, None, answers)
        if sent:
            demo.account_file.write_text(json.dumps({"begun": begun or sent, "sent": sent}))
        return demo._summary()

    return summary


def figures(said: list[str]) -> dict[str, int]:
    """The lines of the account that are numbers of samples."""
    lines = (line.rpartition(" ") for line in said if re.fullmatch(r"\w[\w ,]+ [\d,]+", line))
    return {name.strip(): int(number.replace(",", "")) for name, _, number in lines}


def test_what_was_sent_and_arrived_is_a_proof(account: Any, said: list[str]) -> None:
    assert account(sent={"buffer": 7, "ledger": 3}, arrived={"buffer": 7, "ledger": 3, "outbox": 0})
    assert said[-2:] == ["Everything adds up.", "Nothing is missing."]
    assert figures(said)["from elsewhere"] == 0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sent": {}, "arrived": {"buffer": 0}}, "No sample was sent: this account proves nothing."),
        ({"sent": {}, "arrived": {"buffer": 6}}, "No sample was sent: this account proves nothing."),
        (
            {"sent": {"buffer": 1200}, "arrived": {"buffer": 1199}},
            "1,200 samples of buffer were sent and 1,199 arrived.",
        ),
        ({"sent": {"buffer": 9}, "arrived": {}}, "9 samples of buffer were sent and 0 arrived."),
        ({"sent": {"buffer": 10}, "arrived": {"buffer": 10}, "answers": 0}, "The admin did not answer once."),
    ],
)
def test_an_account_that_proves_nothing_says_why(account: Any, said: list[str], given: Any, why: str) -> None:
    assert not account(**given)
    assert said[-1] == why
    assert "Nothing is missing." not in said


def test_what_strangers_send_is_counted_as_theirs(account: Any, said: list[str]) -> None:
    """Six records by hand, two orders by the API: no fault, and not a proof of our samples either."""
    assert account(sent={"buffer": 10, "notifications": 5}, arrived={"buffer": 16, "notifications": 7})
    assert (figures(said)["samples sent"], figures(said)["from elsewhere"], figures(said)["samples arrived"]) == (
        15,
        8,
        23,
    )
    assert not account(sent={"buffer": 10, "notifications": 5}, arrived={"buffer": 16, "notifications": 4})
    assert said[-1] == "5 samples of notifications were sent and 4 arrived."


def test_a_sample_of_which_nobody_said_that_it_is_in_is_no_strangers(account: Any, said: list[str]) -> None:
    """The simulation was killed in the middle, or its broker did not answer."""
    assert account(sent={"buffer": 10}, begun={"buffer": 12}, arrived={"buffer": 11})
    assert (figures(said)["sent, nobody said so"], figures(said)["from elsewhere"]) == (2, 0)


@pytest.fixture
def drain(said: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """drain(*lines): a demo whose flows are in these states one after the other, then in the last one for ever."""

    def begin(*lines: str) -> run.Demo:
        left, clock = [*lines], itertools.count(step=10)
        monkeypatch.setattr(run.time, "sleep", lambda _: None)
        monkeypatch.setattr(run.time, "monotonic", lambda: float(next(clock)))
        answer = lambda *_: subprocess.CompletedProcess([], 0, left.pop(0) if left[1:] else left[0], "")  # noqa: E731
        monkeypatch.setattr(run, "command", answer)
        demo = run.Demo(said.append, tmp_path, {}, 8000, 25, None)
        monkeypatch.setattr(demo, "_admin_answers", lambda: 1)
        monkeypatch.setattr(demo, "_summary", lambda: True)
        return demo

    return begin


def test_the_end_is_waited_for_with_what_keeps_it(drain: Any, said: list[str]) -> None:
    assert drain("orders waiting 3", "email pending 7", "")._finish(Supervisor(ROOT, {}))
    assert [line.split("   ")[-1] for line in said[1:]] == ["orders waiting 3", "email pending 7"]


def test_what_does_not_move_is_not_waited_for_for_ever(drain: Any, said: list[str]) -> None:
    assert drain("email pending 2")._finish(Supervisor(ROOT, {}))
    assert said[-1] == "Still on its way, and not waited for any longer: email pending 2"
    assert len(said) < 10


def test_what_always_comes_anew_is_not_waited_for_for_ever(drain: Any, said: list[str]) -> None:
    assert drain(*(f"email pending {number}" for number in range(1, 200)))._finish(Supervisor(ROOT, {}))
    assert said[-1].startswith("Still on its way")
    assert len(said) < 100


def test_a_failed_verify_is_shown_with_its_error(account: Any, said: list[str]) -> None:
    assert not account(sent={"buffer": 10}, arrived={"buffer": 10}, proof=1)
    assert "no such table" in said


@pytest.mark.parametrize("text", ["0", "5", "19.9", "-1", "nan", "soon"])
def test_a_run_too_short_for_an_account_is_refused_at_once(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match=text):
        run.seconds_argument(text)
    assert run.seconds_argument("20") == 20


@pytest.fixture
def port(settings: Any, tmp_path: Path) -> int:
    settings.BASE_DIR = tmp_path
    return free_port()


@pytest.mark.processes
def test_a_folder_belongs_to_one_demo_at_a_time(port: int, said: list[str]) -> None:
    with emptied_folder(port, said.append) as folder:
        (folder / "spillway.sqlite3").write_text("rows")
        with pytest.raises(BadSetting, match=rf"port {port} .*process {os.getpid()} since .*PORT={port + 1}"):
            with emptied_folder(port, said.append):
                pass
        assert (folder / "spillway.sqlite3").read_text() == "rows"
        with emptied_folder(free_port(), said.append) as other:
            assert other != folder
    with emptied_folder(port, said.append):
        pass


@pytest.mark.processes
def test_the_next_demo_says_what_it_deletes(port: int, said: list[str]) -> None:
    with emptied_folder(port, said.append) as folder:
        (folder / "logs").mkdir()
        (folder / "logs" / "web.log").write_bytes(bytes(2_500_000))
    assert said == []
    with emptied_folder(port, said.append) as folder:
        assert list(folder.iterdir()) == []
    assert said == [f"Deleting what the last demo left in var/demo/{port} (2.5 MB)."]


@pytest.mark.processes
def test_a_taken_port_costs_no_data(port: int, said: list[str]) -> None:
    with emptied_folder(port, said.append) as folder:
        (folder / "spillway.sqlite3").write_text("rows")
    with socket.create_server(("127.0.0.1", port)), pytest.raises(BadSetting, match=f"--port {port}"):
        with emptied_folder(port, said.append):
            pass
    assert (folder / "spillway.sqlite3").read_text() == "rows"


@pytest.mark.django_db
def test_a_status_line_fits_a_hundred_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for flow in flows.flows() for name in flow.headline]
    assert all(f"{name} 0" in status_line() for name in names), "a headline that no summary has"

    class Busy(flows.Flow):
        headline = ("first", "second", "third")

        def summary(self) -> Any:
            return [("first", 10**9), ("hidden", 1), ("second", 10**9), ("third", 10**60)]

    monkeypatch.setattr("config.demo.run.flows", lambda: [Busy()])
    assert status_line() == "first 1,000,000,000   second 1,000,000,000"
    assert len(status_line()) <= 100 - len("99999 s   ")
