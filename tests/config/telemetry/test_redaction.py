"""What must not get into letters, logs and traces: rows that a database repeats, addresses, search keys."""

import io
import json
import logging

import pytest
from django.conf import settings
from django.db import DataError, IntegrityError, connection, transaction
from django.test import Client
from django.urls import reverse

from config.database.clock import database_now
from config.kafka import RecordBatch
from config.telemetry import logs
from config.telemetry.logs import RowIds
from config.telemetry.redaction import error_text, masked_error, redact, trace_of
from notifications.mail.suppression import Suppression
from outbox.letters.burial import LetterHandler
from outbox.letters.models import DeadLetter
from tests.notifications.post import email  # noqa: F401 (a fixture)

SECRET = "ada@example.com"
ROW = f"DETAIL:  Failing row contains (1, {SECRET},\nsecond line of {SECRET})."


def refused(text):
    """As Django raises it: with the driver's error as its cause."""
    try:
        try:
            raise ValueError(text)
        except ValueError as cause:
            raise DataError(text) from cause
    except DataError as error:
        return error


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"null value in column \"b\"\n{ROW}\nCONTEXT:  COPY x: {SECRET}", 'null value in column "b"'),
        (f"(1062, \"Duplicate entry '{SECRET}' for key 'address'\")", "(1062, \"Duplicate entry … for key 'address'\")"),
        (f"(1366, \"Incorrect string value: '{SECRET}' for column `a`\")", '(1366, "Incorrect string value: … for column `a`")'),
        (f'invalid input syntax for type integer: "{SECRET}"', "invalid input syntax for type integer: …"),
        ("UNIQUE constraint failed: a.b", "UNIQUE constraint failed: a.b"),
        ("", ""),
    ],
)  # fmt: skip
def test_an_error_is_told_without_the_row(text, kept):
    assert error_text(DataError(text)) == kept
    trace = trace_of(refused(text))
    assert SECRET not in trace
    assert f"DataError: {kept}" in trace or not kept
    assert f"ValueError: {kept}" in trace or not kept


@pytest.mark.django_db
def test_no_database_says_whose_row_it_was():
    Suppression.objects.create(address_hash=SECRET, address=SECRET, reason="manual", since=database_now())
    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        Suppression.objects.create(address_hash=SECRET, address=SECRET, reason="manual", since=database_now())
    assert connection.vendor == "sqlite" or SECRET in str(caught.value)
    assert SECRET not in error_text(caught.value)
    assert SECRET not in trace_of(caught.value)


@pytest.mark.django_db
def test_a_letter_holds_what_the_database_said_without_the_row(records):
    class Probe(LetterHandler):
        source, name, group, topics = "aggregator", "probe", "probe", ["transfer-requests"]

        def prepare(self, batch):
            """Nothing."""

        def write(self, batch, now):
            """Nothing."""

    (record,) = records(b"{}")
    batch = RecordBatch([record], {record.topic: ""})
    Probe().park(batch, record, refused(f"value too long\n{ROW}"), "", database_now())
    assert DeadLetter.objects.get().error == "value too long"


@pytest.fixture
def lines():
    """What the log writes, as lines of JSON."""
    stream = io.StringIO()
    logs.configure({"level": "INFO", "format": "json"})
    handler = logging.getLogger().handlers[0]
    handler.setStream(stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    logs.configure(settings.LOGGING)


def test_the_log_tells_errors_without_the_row(lines):
    error = refused(f"value too long\n{ROW}")
    logs.log.warning("database_unavailable", error=str(error))
    try:
        raise error
    except DataError:
        logs.log.exception("writer_failed")
        logging.getLogger("django.request").exception("Internal Server Error")
    first, second, third = lines()
    assert first["error"] == "value too long"
    for line in (second, third):
        assert "value too long" in line["exception"]
        assert SECRET not in str(line)


# -- Traces ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["error", "why", "reason", "path"])
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("no such user ada@example.com", "no such user <address>"),
        ('no such user "ada smith"@example.com.', "no such user <address>"),
        ("/admin/x/ada_40example.com/change/", "/admin/x/<address>/change/"),
        ("/find?to=ada%2B1%40shop.example.com&n=1", "/find?to=<address>&n=1"),
        ("/admin/throttler/customer/c_4012/change/", "/admin/throttler/customer/c_4012/change/"),
        ("a batch_40 of 40%40", "a batch_40 of 40%40"),
        ("took=4012.5 ms, x+4021.5, part_40.5, c_4012.7", "took=4012.5 ms, x+4021.5, part_40.5, c_4012.7"),
        *[(f"to <{spelt}>: no", "to <<address>>: no") for spelt in (
            "ada+40example.com", "ada+2Bx+40example.com", "ada=40example.com", "ada=2Bx=40example.com", "ada%2540example.com",
            "ada%40localhost", "ada%40b%C3%BCcher.example", "ada%40[192.0.2.1]", r"ada\u0040example.com", r"ada\u002bx\u0040example.com",
            r"ada\\u0040example.com", r"ada\x40example.com", r"ada\u{40}example.com", r"ada\U00000040example.com",
            "ada&#64;example.com", "ada&#064;example.com", "ada&#x40;example.com", "ada&commat;example.com", "ada&amp;#64;example.com",
            "ada&#43;x&#64;example&#46;com", "ada＠example.com", r"ada\uff20example.com", "ada﹫example.com", "ada+AEA-example.com", "adä%40bücher.example",
        )],
    ],
)  # fmt: skip
def test_words_of_others_are_told_without_addresses(name, text, kept):
    assert redact({name: text}) == {name: kept}
    assert redact({name: [text, None]}) == {name: [text, None]}  # a list has words of ours


@pytest.mark.parametrize(
    "spelt",
    ["ada%40example.com", r"ada\u0040example.com", "ada&#64;example.com", "ada&commat;example.com", "ada＠example.com"],
)
@pytest.mark.parametrize("many", [1, 20])
def test_an_id_that_others_choose_is_told_without_an_address_in_any_spelling(spelt, many, lines):
    logs.log.info("orders_withdrawn", ids=RowIds([f"order_4012.5:{spelt}"] * many, order_id=None), by=spelt)
    logs.log.info("orders_withdrawn", ids=RowIds(["order_4012.shop"] * many, order_id=None))
    first, second = lines()
    assert first["order_id"] == ["order_4012.5:<address>"] * many
    assert first["by"] == "<address>"
    assert second["order_id"] == ["order_4012.shop"] * many


# -- Lines of others ---------------------------------------------------------------------------------
TOKEN = f"d1bh2x-{'0a' * 16}"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"Forbidden: /admin/welcome/Mg/{TOKEN}/", "Forbidden: /admin/welcome/Mg/<secret>/"),
        (f'"GET /admin/welcome/Mg/{TOKEN}?next=/x HTTP/1.1" 301', '"GET /admin/welcome/Mg/<secret> HTTP/1.1" 301'),
        ("Error handling request /v1/orders?user_email=ada", "Error handling request /v1/orders"),
        ("Retrying https://api.example/mails?key=hidden after 1 s", "Retrying https://api.example/mails after 1 s"),
        ("Authorization: Bearer hidden", "Authorization: Bearer <secret>"),
        (f"token spillway_{'0a' * 6}_{'x-_Y' * 10}", "token <secret>"),
        ("amqp://user:hidden@broker.example:5672//", "amqp://user:<address>:5672//"),
        (r"{'to': 'ada\u0040example.com'}", "{'to': '<address>'}"),
        (f"value too long\n{ROW}", "value too long"),
        ("Task outbox.tasks.relay_outbox[0198a1f2-1111-7000-8000-00000000000a] done", None),
    ],
)
@pytest.mark.parametrize("logger", ["celery", "kafka.conn", "gunicorn.error", "urllib3"])
def test_a_line_of_others_says_no_secret_and_no_address(lines, logger, text, kept):
    logging.getLogger(logger).critical(text)
    try:
        raise RuntimeError(text)
    except RuntimeError:
        logging.getLogger(logger).critical("failed", exc_info=True)
    plain, failed = lines()
    assert plain["event"] == (kept or text)
    assert kept is None or text not in failed["exception"]


@pytest.mark.django_db
def test_a_refusal_says_nothing_that_a_stranger_sent(lines, settings):
    settings.ALLOWED_HOSTS = ["spillway.example"]
    settings.SECURE_SSL_REDIRECT = False
    Client().get("/admin/", headers={"Host": "chosen-by-a-stranger.example:80\x1b[1m'\""})
    client = Client(enforce_csrf_checks=True, headers={"Host": "spillway.example"})
    link = reverse("admin:auth_user_welcome", args=["Mg", TOKEN])
    client.post(link)
    client.post(link, headers={"Origin": "https://chosen-by-a-stranger.example"})
    for path in (link.removesuffix("/"), f"/nowhere/Mg/{TOKEN}", f"/admin/nowhere/Mg/{TOKEN}/"):
        client.get(path)
    told = lines()
    assert [line["logger"] for line in told if line["logger"] != "spillway"] == [
        "django.security.DisallowedHost", "django.security.csrf", "django.security.csrf",
    ]  # fmt: skip
    assert not [line for line in told if "stranger" in str(line) or TOKEN in str(line) or "exception" in line]
    assert {line["path"] for line in told if line["logger"] == "spillway"} >= {
        "/admin/auth/user/welcome/<uidb64>/<token>/", "/nowhere/Mg/<secret>",
    }  # fmt: skip


@pytest.mark.parametrize("logger", ["django.server", "gunicorn.error"])
def test_who_has_a_handler_of_its_own_writes_lines_of_ours(logger):
    other = logging.getLogger(logger)
    other.addHandler(logging.StreamHandler())
    other.propagate = False
    logs.configure(settings.LOGGING)
    assert (other.handlers, other.propagate) == ([], True)


def test_a_traceback_says_no_address_and_can_be_told_to_say_less():
    error = ValueError("no line for 'Ada Lovelace' of ada@example.com")
    assert "ada@example.com" not in trace_of(error)
    assert trace_of(error, masked_error).rstrip().endswith("ValueError: no line for •••• of ••••")
