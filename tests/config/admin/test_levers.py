"""Who the trail names for a command."""

from __future__ import annotations

import getpass
import os

import pytest

from config.admin import levers


def test_a_command_is_the_deed_of_its_account():
    assert levers.operator_of_terminal().name == f"{getpass.getuser()}, by command"


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found"), OSError("No username set")])
def test_an_account_without_a_name_is_named_by_its_number(monkeypatch, error):
    """As in a container that runs with a number of its own."""

    def nameless():
        raise error

    monkeypatch.setattr(levers.getpass, "getuser", nameless)
    assert levers.operator_of_terminal().name == f"account {os.getuid()}, by command"
