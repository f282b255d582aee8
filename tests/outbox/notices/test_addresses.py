"""Where notices may go: nothing inside this network, no file, no program; and what of an address is ever shown."""

from __future__ import annotations

import socket
import subprocess
import sys
import time

import pytest
from django.conf import settings

from config.letters import Refusal
from config.processes import worker
from outbox.notices.addresses import SenderProcess, Words, look_at, seal, send, unseal
from outbox.notices.sender_process import Fence, Target, fault_of_hosts, is_inside, without_secrets
from outbox.notices.services import INCIDENTS, WITHOUT_KEY
from tests.outbox.notices.receiver import TOKEN

HELLO = Words("Hello", "It is a test.")


def sends(address: str, words: Words = HELLO):
    return send(address, about_to=lambda keeps_incidents: words)


def target(address: str) -> Target:
    """As the process that sends understands an address."""
    known = {"incidents": INCIDENTS, "without_key": WITHOUT_KEY}
    return Target({"url": address, "schemas": settings.NOTIFY_SCHEMAS, "connect": 1.0, "read": 1.0, **known})


# -- Addresses inside this network ---------------------------------------------------------------------------
@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.1.2.3", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",  # noqa: S104
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "::ffff:127.0.0.1",
        "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1",
    ],
)  # fmt: skip
def test_an_address_is_inside(address):
    assert is_inside(address)
    assert not Fence([]).may_reach(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_an_address_is_public(address):
    assert not is_inside(address)
    assert Fence([]).may_reach(address)


@pytest.mark.parametrize(
    "place", ["", "localhost", "somewhere.example", "/run/docker.sock", "a socket of this machine"]
)
def test_what_is_no_address_is_not_reached(place):
    assert not Fence(["localhost"]).may_reach(place)


@pytest.mark.parametrize("allowed", ["127.0.0.1", "127.0.0.0/8", "[::1]"])
def test_what_a_setting_allows_is_reached_and_nothing_else(allowed):
    fence = Fence([allowed])
    assert fence.may_reach("::1" if "[" in allowed else "127.0.0.1")
    assert not fence.may_reach("10.0.0.1")


@pytest.mark.parametrize(
    "address",
    [
        "json://127.0.0.1:1/", "json://2130706433:1/", "json://0x7f000001:1/", "json://localhost:1/", "json://localhost.:1/",
        "json://[::1]:1/", "json://169.254.169.254/latest", "json://10.1.2.3/", "json://user:pass@192.168.0.1/",
        "mailto://user:pass@example.org?smtp=127.0.0.1&to=a@example.org",
    ],
)  # fmt: skip
def test_a_host_inside_this_network_is_seen_however_it_is_written(address):
    assert "is inside this network" in fault_of_hosts(target(address), Fence([]))


@pytest.mark.parametrize(
    "address",
    ["json://127.1:1/", "json://0:1/", "json://0177.0.0.1/", "json://[::ffff:127.0.0.1]:1/", "https://127.0.0.1/"],
)
def test_an_address_that_is_written_oddly_is_none(address):
    assert target(address).fault


def test_a_host_inside_is_refused_when_it_is_saved_and_when_something_is_sent(receiver, settings):
    settings.NOTIFY_ALLOWED_HOSTS = []
    with pytest.raises(Refusal, match="inside this network"):
        look_at(receiver.plain)
    outcome = sends(receiver.plain)
    assert (outcome.ok, outcome.unsure, receiver.bodies) == (False, False, [])
    assert "inside this network" in outcome.error


@pytest.mark.parametrize(
    "address",
    [
        "syslog://", "dbus://", "gnome://", "macosx://", "windows://", "rsyslog://127.0.0.1", "mqtt://127.0.0.1/topic",
        "growl://127.0.0.1", "file:///etc/passwd", "exec://ls", "apprise://127.0.0.1/token", "blink1://", "",
    ],
)  # fmt: skip
def test_only_services_that_are_known_to_be_harmless(address):
    fault = target(address).fault
    assert "no address that can be notified" in fault or "is not in NOTIFY_SCHEMAS" in fault


def test_a_schema_that_somebody_does_not_want_is_refused(settings, receiver):
    settings.NOTIFY_SCHEMAS = ["slack"]
    with pytest.raises(Refusal, match=r"json:// is not in NOTIFY_SCHEMAS"):
        look_at(receiver.plain)


@pytest.mark.parametrize(
    ("schemas", "address", "refused"),
    [
        ("jsons", "json://127.0.0.1/", "json"),
        ("jsons", "JSON://127.0.0.1/", "json"),
        ("jsons", " json://127.0.0.1/", "json"),
        ("jsons", "json://127.0.0.1/?secure=yes", "json"),
        ("jsons", "jsons://127.0.0.1/", ""),
        ("jsons", "JSONS://127.0.0.1/", ""),
        ("JSONS", "jsons://127.0.0.1/", ""),
        ("json", "jsons://127.0.0.1/", "jsons"),
        ("xmls", "xml://127.0.0.1/", "xml"),
        ("forms", "form://127.0.0.1/", "form"),
        ("ntfys", "ntfy://127.0.0.1/topic", "ntfy"),
        ("ntfys", "https://ntfy.sh/topic", ""),
        ("ntfy", "https://ntfy.sh/topic", "ntfys"),
        ("gotifys", "gotify://127.0.0.1/token", "gotify"),
        ("mmosts", "mmost://127.0.0.1/abcdefghijkl", "mmost"),
        ("rockets", "rocket://user:pass@127.0.0.1/#room", "rocket"),
        ("mailtos", "mailto://user:pass@example.org?smtp=127.0.0.1", "mailto"),
        ("mailtos", "mailtos://user:pass@example.org?smtp=127.0.0.1&mode=insecure", "mailto"),
        ("mailtos", "mailtos://user:pass@example.org?smtp=127.0.0.1", ""),
        ("workflows", "workflow://127.0.0.1:1/abcdefgh/1234567890abcdef/", ""),
        ("slack", "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7", ""),
        ("discord", "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7", "slack"),
    ],
)
def test_a_schema_that_is_named_allows_itself_and_none_in_the_clear(settings, schemas, address, refused):
    settings.NOTIFY_SCHEMAS = [schemas]
    assert target(address).fault == (f"{refused}:// is not in NOTIFY_SCHEMAS" if refused else "")


@pytest.mark.parametrize("host", ["db.inside.example", "localhost"])
def test_a_refusal_does_not_say_what_a_host_inside_resolves_to(monkeypatch, host):
    answers = [(2, 1, 6, "", ("93.184.216.34", 0)), (2, 1, 6, "", ("10.1.2.3", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **o: answers)
    fault = fault_of_hosts(target(f"json://{host}/"), Fence([]))
    assert fault == f"{host} is inside this network, and NOTIFY_ALLOWED_HOSTS does not name it"


def test_a_file_of_this_machine_is_not_read(tmp_path):
    secret = tmp_path / "template.json"
    secret.write_text('{"text": "{{ app_body }} of ours"}')
    with pytest.raises(Refusal):
        look_at(f"slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7?template={secret}")


def fenced(program: str, allowed: tuple[str, ...] = ()) -> str:
    """What a program says that runs behind the fence, in a process of its own."""
    code = f"import socket, os, sys; from outbox.notices.sender_process import Fence; fence = Fence({allowed!r}); {program}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return run.stdout.strip() or run.stderr.strip().splitlines()[-1]


REBOUND = """
answers = [[(2, 1, 6, '', ('93.184.216.34', 80))], [(2, 1, 6, '', ('127.0.0.1', 80))]]
socket.getaddrinfo = lambda *a, **o: answers.pop(0)
fence.close()
print(fence.may_reach(socket.getaddrinfo('evil.example', 80)[0][4][0]), flush=True)
socket.create_connection(('evil.example', 80), 1)
"""


def test_a_name_that_turns_inwards_between_the_look_and_the_connection_is_not_followed():
    """What is checked is the address of the connection itself."""
    code = f"import socket; from outbox.notices.sender_process import Fence; fence = Fence([])\n{REBOUND}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout.strip() == "True"
    assert "it leads inside this network" in run.stderr
    assert "127.0.0.1" not in run.stderr


@pytest.mark.parametrize(
    ("act", "why"),
    [
        ("socket.socket().connect(('localhost', 80))", "leads inside this network"),
        ("socket.socket(socket.AF_UNIX).connect('/run/x')", "a socket of this machine"),
        (
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 514))",
            "leads inside this network",
        ),
        ("open('/etc/passwd')", "read or write a file"),
        ("open('/tmp/notice', 'w')", "read or write a file"),
        ("os.system('true')", "start a program"),
        ("os.fork()", "start a program"),
        ("__import__('subprocess').run(['true'])", "start a program"),
    ],
)
def test_the_process_that_sends_reaches_and_reads_and_starts_nothing(act, why):
    assert why in fenced(f"fence.close(); {act}")


def test_an_allowed_name_opens_what_it_resolves_to():
    program = "fence.close(); socket.getaddrinfo('localhost', 80); print(fence.may_reach('127.0.0.1'))"
    assert fenced(program, ("localhost",)) == "True"
    assert fenced(program, ("other.example",)) == "False"


# -- Sending -------------------------------------------------------------------------------------------------
def test_a_webhook_and_one_shaped_as_slacks_are_told(receiver):
    assert look_at(receiver.plain) == "JSON at 127.0.0.1"
    assert sends(receiver.plain).ok
    assert sends(receiver.slack_shaped).ok
    plain, slack = receiver.bodies
    assert (plain["title"], plain["message"]) == ("Hello", "It is a test.")
    assert slack["text"] == "Hello\r\nIt is a test."
    assert slack["path"] == f"/hooks/{TOKEN}"


def test_who_refuses_did_not_get_it_and_no_secret_stands_in_the_fault(receiver):
    receiver.answers = [500, 302]
    assert sends(receiver.plain).error == "HTTP 500"
    redirected = sends(receiver.plain)
    assert (redirected.ok, redirected.error, len(receiver.bodies)) == (False, "HTTP 302", 2)
    nobody = sends("json://127.0.0.1:1/secret-hook-of-ours")
    assert (nobody.unsure, nobody.error) == (False, "nobody answers there")


def test_who_hangs_is_not_waited_for_and_may_have_got_it(receiver):
    receiver.answers = ["hang"]
    outcome = sends(receiver.plain)
    assert (outcome.ok, outcome.unsure) == (False, True)
    assert "no answer" in outcome.error


def test_a_url_cannot_say_that_it_is_waited_for_longer_or_tried_twice(receiver):
    receiver.answers = [500, 200, 200]
    assert not sends(f"{receiver.plain}?retry=5&wait=0&redirect=yes&rto=300").ok
    assert len(receiver.bodies) == 1


def test_who_is_told_to_stop_waits_for_the_answer_to_a_notice(receiver, monkeypatch, settings):
    """Else it is sent again. Before that, nothing has left."""
    say, awaited = SenderProcess._say, []

    def listening(sender_process, line, seconds):
        awaited.append(("body" in line, [until - time.monotonic() for until in worker._calls.values()]))
        return say(sender_process, line, seconds)

    monkeypatch.setattr(SenderProcess, "_say", listening)
    assert sends(receiver.plain).ok
    (_, before), (going, (left,)) = awaited
    assert (before, going, worker._calls) == ([], True, {})
    assert 0 < left <= settings.NOTIFY_TIMEOUT_SECONDS


def test_nothing_is_sent_when_it_is_not_ours_any_more(receiver):
    assert send(receiver.plain, about_to=lambda keeps_incidents: None) is None
    assert receiver.bodies == []


def test_when_the_worker_is_gone_the_process_that_sends_ends_without_sending(receiver):
    sender_process = SenderProcess(receiver.plain)
    assert sender_process.ready()
    sender_process.process.stdin.close()
    assert sender_process.process.wait(10) == 0
    assert receiver.bodies == []


def test_parts_of_an_address_are_taken_out_of_a_fault():
    url = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7"
    assert without_secrets("no such hook: A1BRTD4JD/TIiajkdnlazkcOXrIdevi7", url) == "no such hook: •••/•••"


# -- The secret ----------------------------------------------------------------------------------------------
def test_an_address_is_sealed_with_the_secret_key(settings):
    sealed = seal("slack://a/b/c")
    assert "slack" not in sealed
    assert unseal(sealed) == "slack://a/b/c"
    settings.SECRET_KEY_FALLBACKS, settings.SECRET_KEY = [settings.SECRET_KEY], "another" * 10
    assert unseal(sealed) == "slack://a/b/c"
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(Refusal, match="another SECRET_KEY"):
        unseal(sealed)


@pytest.mark.parametrize(
    ("stored", "fault"),
    [
        ("file:../etc/passwd", "letters, digits"), ("file:/etc/passwd", "letters, digits"), ("file:.hidden", "letters, digits"),
        ("file:missing", "cannot be read"), ("file:empty", "is empty"), ("file:bytes", "it is no text in UTF-8"),
    ],
)  # fmt: skip
def test_a_secret_file_is_named_and_lies_in_one_directory(settings, tmp_path, stored, fault):
    settings.NOTIFY_SECRETS_DIR = str(tmp_path)
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(Refusal, match=fault):
        unseal(stored)


def test_a_secret_file_is_read_when_something_is_sent(settings, tmp_path):
    with pytest.raises(Refusal, match="NOTIFY_SECRETS_DIR"):
        unseal("file:ops")
    settings.NOTIFY_SECRETS_DIR = str(tmp_path)
    (tmp_path / "ops").write_text("slack://a/b/c\n")
    assert seal("file:ops") == "file:ops"
    assert unseal("file:ops") == "slack://a/b/c"


def test_the_name_of_a_service_is_shown_and_never_its_token():
    shown = look_at("https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7")
    assert shown == "Slack"


def test_a_host_that_is_not_known_now_is_met_again_when_something_is_sent(monkeypatch):
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("nobody.invalid", 80)
    assert look_at("json://nobody.invalid/") == "JSON at nobody.invalid"
    assert sends("json://nobody.invalid/").unsure is False
