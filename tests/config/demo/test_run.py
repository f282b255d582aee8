"""The demo's account, its folder, its status line: what it says, and what it does not call a proof."""

from __future__ import annotations

import os
import socket
import subprocess
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

import pytest

from config import flows
from config.demo import run
from config.demo.folder import emptied_folder
from config.demo.status import status_line
from config.environment.env import BadSetting
from tests.tree import ROOT


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def account(said: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """account(sent, arrived, answers, proof): whether it is a proof; its lines are in `said`."""

    def summary(sent: int, arrived: int, answers: int, proof: int = 0) -> bool:
        done = subprocess.CompletedProcess([], proof, "Everything adds up." if proof == 0 else "", "no such table")
        monkeypatch.setattr(run, "command", lambda *_: done)
        monkeypatch.setattr(run, "manage", lambda *_: f"{arrived}\n")
        return run.Demo(said.append, ROOT, {}, 8000, 25, None, answers, sent)._summary()

    return summary


def test_what_was_sent_and_arrived_is_a_proof(account: Any, said: list[str]) -> None:
    assert account(sent=10, arrived=10, answers=1)
    assert said[-2:] == ["Everything adds up.", "Nothing is missing."]


@pytest.mark.parametrize(
    ("figures", "why"),
    [
        ({"sent": 0, "arrived": 0, "answers": 1}, "No sample was sent: this account proves nothing."),
        ({"sent": 1200, "arrived": 1199, "answers": 1}, "1,200 samples were sent and 1,199 arrived."),
        ({"sent": 10, "arrived": 10, "answers": 0}, "The admin did not answer once."),
    ],
)
def test_an_account_that_proves_nothing_says_why(account: Any, said: list[str], figures: Any, why: str) -> None:
    assert not account(**figures)
    assert said[-1] == why
    assert "Nothing is missing." not in said


def test_a_failed_verify_is_shown_with_its_error(account: Any, said: list[str]) -> None:
    assert not account(sent=10, arrived=10, answers=1, proof=1)
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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


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

    monkeypatch.setattr("config.demo.status.flows", lambda: [Busy()])
    assert status_line() == "first 1,000,000,000   second 1,000,000,000"
    assert len(status_line()) <= 100 - len("99999 s   ")
