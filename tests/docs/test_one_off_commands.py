"""deploy/systemd/spillway: one command as the units run it, with the secrets that are root's alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tree import ROOT

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="the wrapper is root's"),
]
WRAPPER = ROOT / "deploy" / "systemd" / "spillway"
# What systemd-run 252 does with the options that the wrapper gives; it was tried against the real one by hand, too.
STAND_IN = f"""#!{sys.executable}
import os, shlex, shutil, sys, tempfile
options = [word for word in sys.argv[1:] if word.startswith("--")][: sys.argv[1:].index("/bin/sh")]
properties = [option.partition("=")[2] for option in options if option.startswith("--property=")]
command = sys.argv[1 + sys.argv[1:].index("/bin/sh"):]
held, environment = tempfile.mkdtemp(), {{"PATH": os.environ["PATH"], "OPTIONS": " ".join(options)}}
for name, _, value in (one.partition("=") for one in properties):
    if name == "LoadCredential":
        shutil.copy(value.partition(":")[2], os.path.join(held, value.partition(":")[0]))
    elif name == "EnvironmentFile":
        lines = (line.strip() for line in open(value) if line.strip() and line[0] != "#")
        environment |= {{line.partition("=")[0]: shlex.split(line.partition("=")[2])[0] for line in lines if line[-1] != "="}}
    elif name == "WorkingDirectory":
        os.chdir(value)
os.execve("/bin/sh", command, environment | {{"CREDENTIALS_DIRECTORY": held}})
"""
MANAGE = """
import json, os, sys
read = {name: open(path).read() for name, path in os.environ.items() if name.endswith("_FILE")}
print(json.dumps({"arguments": sys.argv[1:], "secrets": read, "from": os.environ["EMAIL_FROM"],
                  "options": os.environ["OPTIONS"], "input": sys.stdin.read()}))
sys.exit(3)
"""


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """A host with settings, secrets and the code, and the environment that the wrapper is called with."""
    for folder in ("bin", "etc", "srv/.venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    runner = tmp_path / "bin" / "systemd-run"
    runner.write_text(STAND_IN)
    runner.chmod(0o755)
    (tmp_path / "srv" / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "srv" / "manage.py").write_text(MANAGE)
    (tmp_path / "etc" / "spillway.env").write_text((WRAPPER.parent / "spillway.env.example").read_text())
    for name in ("secret_key", "database_url", "database_url_migrate", "anymail_resend_api_key", "email_url~"):
        (tmp_path / "etc" / name).write_text(f"the {name}")
    return {
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
        "SPILLWAY_SETTINGS": str(tmp_path / "etc"),
        "SPILLWAY_CODE": str(tmp_path / "srv"),
    }


def spillway(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [WRAPPER, *words], env=environment, capture_output=True, text=True, check=False, input="two\nlines", timeout=60
    )


def test_a_command_has_the_settings_the_secrets_its_words_its_input_and_its_exit_code(installed):
    done = spillway(installed, "dead_letters", "requeue", "--reason", "it's $mended; *")
    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (3, "")
    assert report["arguments"] == ["dead_letters", "requeue", "--reason", "it's $mended; *"]
    assert report["secrets"] == {
        "SECRET_KEY_FILE": "the secret_key",
        "DATABASE_URL_FILE": "the database_url",
        "ANYMAIL_RESEND_API_KEY_FILE": "the anymail_resend_api_key",
    }
    assert report["from"] == "Example Shop <orders@spillway.example>"
    assert report["input"] == "two\nlines"
    for option in ("--uid=spillway", "--gid=spillway", "--wait", "--pipe", "--property=NoNewPrivileges=yes"):
        assert option in report["options"].split()


@pytest.mark.parametrize(
    ("words", "owner"),
    [
        (("migrate", "--plan"), True),
        (("rotate_partitions",), True),
        (("--owner", "dbshell"), True),
        (("doctor",), False),
    ],
)
def test_only_what_changes_tables_is_their_owner(installed, words, owner):
    done = spillway(installed, *words)
    assert ("the database_url_migrate" in done.stdout) == owner
    assert '"DATABASE_URL_MIGRATE_FILE"' not in done.stdout


def test_whoever_is_not_root_or_has_no_address_reads_why(installed):
    (Path(installed["SPILLWAY_SETTINGS"]) / "database_url").unlink()
    done = spillway(installed, "doctor")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"spillway: {installed['SPILLWAY_SETTINGS']}/database_url is missing")
    (Path(installed["PATH"].partition(":")[0]) / "id").write_text("#!/bin/sh\necho 1000\n")
    (Path(installed["PATH"].partition(":")[0]) / "id").chmod(0o755)
    done = spillway(installed, "doctor")
    assert done.returncode == 1
    assert "run 'sudo spillway doctor'" in done.stderr


@pytest.mark.parametrize("words", [(), ("--help",), ("--owner",)])
def test_without_a_command_it_says_how(installed, words):
    done = spillway(installed, *words)
    assert done.returncode == 0
    assert done.stdout.startswith("usage: spillway [--owner] COMMAND")


def test_the_example_environment_reads_the_same_in_a_shell():
    example = WRAPPER.parent / "spillway.env.example"
    done = subprocess.run(
        ["/bin/sh", "-c", f"set -aeu; . {example}; env"], env={}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert "EMAIL_FROM=Example Shop <orders@spillway.example>\n" in done.stdout
