"""SMTP against a real server: every way a try can end."""

import socket
import ssl
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from unittest.mock import Mock

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from config.environment.env import BadSetting
from config.environment.mail import MailServer, esp_from_text, secrets_from_text, sender_from_text, server_from_url
from notifications.channels import smtp
from notifications.channels.smtp import Connection, Smtp
from tests.notifications.mail.test_recipients import mail
from tests.notifications.smtp_sink import Sink

MAIL = mail(headers={"Message-ID": "<1@example.com>"}, text="one\n.\n..two\nthree", html="<p>é</p>")


@pytest.fixture
def sink():
    with Sink() as found:
        yield found


@pytest.fixture
def channel(sink, settings):
    settings.EMAIL_SERVER = MailServer("127.0.0.1", sink.port)
    settings.EMAIL_TIMEOUT_SECONDS = 0.6
    found = Smtp()
    yield found
    found.close()


def test_a_mail_arrives_once_with_its_dots(channel, sink):
    outcome = channel.send(MAIL, "k")
    assert outcome.kind == "sent"
    assert "queued as 1" in outcome.receipt
    [kept] = sink.accepted
    assert kept["message_id"] == "<1@example.com>"
    assert "\r\n.\r\n..two\r\n" in kept["data"]


def test_the_sink_answers_a_client_that_begins_with_tls(sink):
    with socket.create_connection(("127.0.0.1", sink.port), timeout=5) as client, client.makefile("rb") as answers:
        answers.readline()
        client.sendall(b"\x16\x03\x01\x02\x00\xfc\n")
        assert answers.readline() == b"502 unknown command\r\n"


def test_a_mail_that_cannot_be_written_is_refused_for_good(channel, sink, monkeypatch):
    def fail(mail):
        raise IndexError("in the library")

    monkeypatch.setattr("notifications.channels.smtp.mime", fail)
    outcome = channel.send(MAIL, "k")
    assert (outcome.kind, outcome.error) == ("permanent", "the mail cannot be written: IndexError: in the library")
    assert sink.connections == 0


def test_the_connection_is_kept_and_each_try_starts_afresh(channel, sink):
    sink.script.append("rcpt:550")
    assert [channel.send(MAIL, "k").kind for _ in range(4)] == ["permanent", "sent", "sent", "sent"]
    assert sink.connections == 1
    assert sink.commands.count("RSET") == 3


def test_a_mail_that_was_accepted_makes_no_doubt_about_the_next_one(channel, sink):
    assert channel.send(MAIL, "k").kind == "sent"
    sink.script.append("rcpt:drop")
    assert channel.send(MAIL, "l").kind == "unreachable"


@pytest.mark.parametrize(
    ("script", "kind", "accepted"),
    [
        ("connect:421", "unreachable", 0), ("connect:554", "unreachable", 0), ("connect:drop", "unreachable", 0),
        ("connect:slow:5", "unreachable", 0), ("ehlo:451", "unreachable", 0),
        ("mail:421", "unreachable", 0), ("mail:451", "transient", 0), ("mail:550", "auth", 0), ("mail:530", "auth", 0),
        ("mail:552", "permanent", 0), ("mail:drop", "unreachable", 0),
        ("rcpt:450", "transient", 0), ("rcpt:550", "permanent", 0), ("rcpt:421", "unreachable", 0),
        ("rcpt:drop", "unreachable", 0), ("rcpt:slow:5", "unreachable", 0),
        ("data:451", "transient", 0), ("data:554", "permanent", 0), ("data:drop", "unreachable", 0),
        ("dot:451", "transient", 0), ("dot:554", "permanent", 0), ("dot:421", "unreachable", 0),
        # A line that is no reply, and a yes to another question, refuse nothing: no mail dies of them.
        ("rcpt:babble", "unreachable", 0), ("data:babble", "unreachable", 0), ("data:250", "unreachable", 0),
        ("dot:babble", "ambiguous", 0), ("dot:354", "ambiguous", 0),
        ("dot:drop", "ambiguous", 1), ("dot:lose", "ambiguous", 0), ("dot:slow:5", "ambiguous", 1),
    ],
)  # fmt: skip
def test_every_way_it_can_end_has_its_class(channel, sink, script, kind, accepted):
    sink.script.append(script)
    outcome = channel.send(MAIL, "k")
    assert outcome.kind == kind, outcome
    assert outcome.error
    assert "ada@" not in outcome.error
    assert (outcome.least_wait, outcome.retries_last) == ((60, 1200) if kind == "transient" else (0, 0))
    assert len(sink.accepted) == accepted
    assert channel.send(MAIL, "k").kind == "sent"  # whatever it was, the next one goes


def test_after_a_limit_the_next_try_takes_a_connection_of_its_own(channel, sink):
    sink.replies["rcpt"] = "450 You have exceeded the maximum number of mails per connection"
    assert channel.send(MAIL, "k").kind == "throttled"
    sink.replies.clear()
    assert channel.send(MAIL, "k").kind == "sent"
    assert sink.connections == 2


def test_nobody_there_is_unreachable(channel, settings):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings.EMAIL_SERVER = MailServer("127.0.0.1", port)
    assert Smtp().send(MAIL, "k").kind == "unreachable"
    settings.EMAIL_SERVER = MailServer("no-such-host.invalid", 25)
    assert Smtp().send(MAIL, "k").kind == "unreachable"


def test_a_wrong_password_pauses_the_channel_and_is_in_no_error(settings):
    with Sink(login=("ada", "right")) as sink:
        server = MailServer("127.0.0.1", sink.port, "ada", "right")
        settings.EMAIL_SERVER = server
        assert Smtp().send(MAIL, "k").kind == "sent"
        settings.EMAIL_SERVER = replace(server, password="wrong-secret")
        outcome = Smtp().send(MAIL, "k")
        assert outcome.kind == "auth"
        assert "wrong-secret" not in outcome.error + repr(settings.EMAIL_SERVER)
        sink.script.append("auth:454")
        assert Smtp().send(MAIL, "k").kind == "unreachable"


@pytest.mark.parametrize("security", ["tls", "ssl"])
def test_a_server_that_speaks_no_tls_is_told_nothing(channel, sink, settings, security):
    settings.EMAIL_SERVER = MailServer("127.0.0.1", sink.port, "ada", "secret", security)
    assert Smtp().send(MAIL, "k").kind == "unreachable"
    assert not [command for command in sink.commands if command.startswith(("AUTH", "MAIL"))]


def certificate(folder, name):
    """A self-signed certificate and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    own, start = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), datetime.now(UTC) - timedelta(hours=1)
    made = x509.CertificateBuilder(own, own, key.public_key(), 1, start, start + timedelta(days=1))
    named = x509.SubjectAlternativeName([x509.DNSName(name)])
    form = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    file = folder / "certificate.pem"
    pem = made.add_extension(named, critical=False).sign(key, SHA256()).public_bytes(Encoding.PEM)
    file.write_bytes(pem + key.private_bytes(*form))
    return str(file)


@pytest.mark.parametrize("security", ["tls", "ssl"])
@pytest.mark.parametrize(
    ("name", "trusted", "kind"),
    [("localhost", True, "sent"), ("localhost", False, "unreachable"), ("elsewhere", True, "unreachable")],
)
def test_a_server_is_told_nothing_unless_somebody_vouches_for_its_certificate(
    settings, monkeypatch, tmp_path, security, name, trusted, kind
):
    file = certificate(tmp_path, name)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", file)
    monkeypatch.setattr(smtp, "tls_context", cache(smtp.tls_context.__wrapped__))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(file)
    with Sink(login=("ada", "secret"), tls=tls, encrypted=security == "ssl") as sink:
        settings.EMAIL_SERVER = MailServer("localhost", sink.port, "ada", "secret", security)
        assert Smtp().send(MAIL, "k").kind == kind
        told = [command for command in sink.commands if command.startswith(("AUTH", "MAIL"))]
        assert (len(told), len(sink.accepted)) == ((2, 1) if kind == "sent" else (0, 0))


def test_certificates_are_read_once_for_all_connections_and_not_at_all_in_plain(
    channel, settings, monkeypatch, tmp_path
):
    file = certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", file)
    read = Mock(wraps=ssl.create_default_context)
    monkeypatch.setattr(smtp, "tls_context", cache(smtp.tls_context.__wrapped__))
    monkeypatch.setattr(ssl, "create_default_context", read)
    assert channel.send(MAIL, "k").kind == "sent"
    assert read.call_count == 0
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(file)
    with Sink(tls=tls) as sink:
        settings.EMAIL_SERVER = MailServer("localhost", sink.port, security="tls")
        assert [Smtp().send(MAIL, "k").kind for _ in range(3)] == ["sent"] * 3
    assert read.call_count == 1


def test_a_mail_that_is_too_large_is_not_offered(channel, sink):
    outcome = channel.send(mail(text="x" * 1_000_001), "k")
    assert (outcome.kind, sink.accepted) == ("permanent", [])
    assert "the server takes 1000000" in outcome.error


def test_a_server_that_hung_up_meanwhile_is_called_again(channel, sink):
    channel.send(MAIL, "k")
    for task in list(sink._tasks):
        sink._loop.call_soon_threadsafe(task.cancel)
    time.sleep(0.1)
    assert channel.send(MAIL, "k").kind == "sent"
    assert sink.connections == 2


def test_slow_answers_do_not_add_up(channel, sink, settings, monkeypatch):
    settings.EMAIL_TIMEOUT_SECONDS = 1.0
    hurry, allowed = Connection._hurry, []

    def note(line, smtp):
        hurry(line, smtp)
        allowed.append(smtp.sock.gettimeout() if smtp.sock else 1.0)

    monkeypatch.setattr(Connection, "_hurry", note)
    sink.script.extend(["mail:slow:0.7", "rcpt:slow:0.9"])  # neither alone is too slow
    assert channel.send(MAIL, "k").kind == "unreachable"
    assert allowed[-1] <= 0.3, "a step gets what the others left of the whole try"


# -- settings ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("url", "server"),
    [
        ("smtp://mail.example.com", MailServer("mail.example.com", 25)),
        ("smtp://a%40b:p%2Fw@mail.example.com/?tls", MailServer("mail.example.com", 587, "a@b", "p/w", "tls")),
        ("smtp://mail.example.com:2525/?ssl=true", MailServer("mail.example.com", 2525, security="ssl")),
        ("smtps://mail.example.com", MailServer("mail.example.com", 465, security="ssl")),
    ],
)
def test_a_url_names_the_server(url, server):
    assert server_from_url(url) == server


@pytest.mark.parametrize(
    "url", ["", "mail.example.com", "http://x", "smtp://", "smtp://x:99999", "smtp://x/?tsl", "smtp://[::1"]
)
def test_a_bad_url_stops_the_start(url):
    with pytest.raises(BadSetting, match="^EMAIL_URL: "):
        server_from_url(url)


def test_a_sender_and_a_provider_that_cannot_work_stop_the_start():
    assert sender_from_text("Shop <orders@example.com>") == "Shop <orders@example.com>"
    for text in ("no address", "orders@", "Shop <@example.com>", "a@b.cd\nBcc: x@y.zz"):
        with pytest.raises(BadSetting, match=r"^EMAIL_FROM: [^\n]*$"):
            sender_from_text(text)
    assert esp_from_text("resend") == "resend"
    for name in ("", "nope", "../x", "resend.x"):
        with pytest.raises(BadSetting, match="^EMAIL_ESP: "):
            esp_from_text(name)


def test_secrets_are_listed_by_provider_with_room_for_one_rotation():
    one, other, third = (f"whsec_{letter * 22}==" for letter in "abc")
    assert secrets_from_text(f"resend:{one}, resend:{other},postmark:user:a-long-password,") == {
        "resend": [one, other], "postmark": ["user:a-long-password"],
    }  # fmt: skip
    for text in ("resend", "resend:", ":x", f"resend:{one},resend:{other},resend:{third}"):
        with pytest.raises(BadSetting, match="^EMAIL_WEBHOOK_SECRETS: "):
            secrets_from_text(text)


@pytest.mark.parametrize(
    "entry", ["resend:whsec_", "resend:whsec_?", f"resend:whsec_{'a' * 21}", "resend:c2hvcnQ=", "generic:" + "x" * 15]
)
def test_a_secret_that_could_be_guessed_stops_the_start(entry):
    with pytest.raises(BadSetting, match="^EMAIL_WEBHOOK_SECRETS: .* 16 bytes, or mistyped$"):
        secrets_from_text(entry)
