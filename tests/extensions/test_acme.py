"""A package of another company beside Spillway: its own tests pass in a process whose settings name it."""

from pathlib import Path

import pytest

from tests.databases import empty_database, run_with

HERE = Path(__file__).parent
NAMED = {"SPILLWAY_APPS": "acme.apps.Acme", "PYTHONPATH": str(HERE)}


def test_what_an_extension_adds_works_like_what_is_ours(django_db_blocker, tmp_path):
    with django_db_blocker.unblock(), empty_database("acme", tmp_path) as url:
        checked = run_with(url, "manage.py", "makemigrations", "--check", "--dry-run", "acme", **NAMED)
        assert checked.returncode == 0, checked.stdout + checked.stderr
        options = ("-p", "no:cacheprovider", "--quiet", "--override-ini=python_files=with_*.py")
        done = run_with(url, "-m", "pytest", str(HERE / "with_acme.py"), *options, **NAMED)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.mark.parametrize("command", ["check", "track_inventory"])
def test_a_module_that_cannot_be_imported_ends_a_command_before_it_reads_anything(command):
    done = run_with("sqlite://", "manage.py", command, **NAMED | {"SPILLWAY_APPS": "wrong.Broken"})
    assert done.returncode == 1
    said = "MOVEMENTS['points-earned']: broken.earned cannot be imported: RuntimeError: no licence"
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_what_does_not_fit_ends_a_command_with_one_line():
    done = run_with("sqlite://", "manage.py", "check", **NAMED | {"SPILLWAY_APPS": "wrong.LabelTaken"})
    assert (done.returncode, done.stderr) == (
        1, "spillway: SPILLWAY_APPS: wrong.outbox and Spillway both add the app label 'outbox'\n",
    )  # fmt: skip
