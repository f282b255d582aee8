"""What must not get into letters, logs and traces: rows that a database repeats, addresses, search keys."""

import io
import json
import logging

import pytest
from django.conf import settings
from django.db import DataError, IntegrityError, connection, transaction
from django.test import RequestFactory

from config.database.clock import database_now
from config.kafka import RecordBatch
from config.telemetry import logs
from config.telemetry.redaction import masked_error, redact, said, trace_of, without_query
from config.telemetry.tracing import hide_query
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
    assert said(DataError(text)) == kept
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
    assert SECRET not in said(caught.value)
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
class Span:
    def __init__(self, attributes):
        self.attributes = attributes

    def is_recording(self):
        return True

    def set_attributes(self, changed):
        self.attributes = {**self.attributes, **changed}


def test_a_span_holds_no_search_key():
    span = Span({
        "http.target": f"/admin/find/?q={SECRET}", "http.url": f"https://x.example/v1/orders?user_email={SECRET}",
        "url.full": f"https://x.example/v1/orders?user_email={SECRET}", "url.query": f"q={SECRET}", "http.method": "GET",
    })  # fmt: skip
    hide_query(span, RequestFactory().get("/admin/find/", {"q": SECRET}))
    assert span.attributes == {
        "http.target": "/admin/find/", "http.url": "https://x.example/v1/orders",
        "url.full": "https://x.example/v1/orders", "url.query": "", "http.method": "GET",
    }  # fmt: skip
    assert without_query({"http.method": "GET"}) == {}


def test_a_log_says_no_address():
    """A mail server repeats the one it was given."""
    event = redact({"error": "550 <ada@example.com>: no such user", "recipient_count": 1})
    assert event == {"error": "550 <<address>>: no such user", "recipient_count": 1}


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
    ],
)
def test_words_of_others_are_told_without_addresses(name, text, kept):
    assert redact({name: text}) == {name: kept}
    assert redact({name: [text, None]}) == {name: [text, None]}  # a list has words of ours


def test_of_a_path_what_stands_beside_an_address_stays():
    assert redact({"path": "/nowhere/ada@example.com/x"}) == {"path": "/nowhere/<address>/x"}


def test_a_traceback_says_no_address_and_can_be_told_to_say_less():
    error = ValueError("no line for 'Ada Lovelace' of ada@example.com")
    assert "ada@example.com" not in trace_of(error)
    assert trace_of(error, masked_error).rstrip().endswith("ValueError: no line for •••• of ••••")
