"""Traces: from the request to the mail server, from a transfer request to its batch; off, nothing is imported."""

import logging
import sys
import threading

import pytest

from config.environment.mail import MailServer
from config.telemetry import tracing
from notifications.handler import EmailHandler
from outbox.channels.admission import ensure
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.messages.models import OutboxMessage
from outbox.workers.relay import Relay
from tests.notifications.conftest import Caller, _plain_http, caller, new_order, order  # noqa: F401 (fixtures)
from tests.notifications.smtp_sink import Sink
from tests.outbox.conftest import install, memory  # noqa: F401 (fixtures)
from tests.outbox.scripted import Scripted, promise
from tests.outbox.workers.test_listen import batch, finish, hear, hint, listen  # noqa: F401 (a fixture)
from tests.tree import arrows, code

pytestmark = pytest.mark.django_db(transaction=True)
STRANGE = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"


@pytest.fixture
def traces():
    """What this process exports meanwhile."""
    pytest.importorskip("opentelemetry", reason="the extra `otel` is not installed: no trace is tested")
    from tests.otlp import exported

    with exported() as receiver:
        yield receiver


@pytest.fixture
def mails(settings, install):  # noqa: F811
    """The e-mail channel in front of a real mail server."""
    with Sink() as sink:
        settings.EMAIL_SERVER = MailServer("127.0.0.1", sink.port)
        settings.EMAIL_CHANNEL = "smtp"
        handler = EmailHandler()
        handler.name = "email"
        install(handler)
        ensure(["email"])
        yield handler, sink
        handler.channel.close()


@pytest.mark.parametrize("path", ["poll", "cdc"])
def test_one_trace_leads_from_the_request_to_the_mail_server(traces, mails, caller, listen, path):  # noqa: F811
    handler, sink = mails
    assert caller.change(new_order().pk, "pay").status_code == 200
    message = OutboxMessage.objects.get()
    if path == "poll":
        assert Relay(handler, threading.Event()).tick() == 1
    else:
        listener = listen(handler)
        hear(listener, batch(hint(message.pk)))
        finish(listener)
    assert len(sink.accepted) == 1
    [request] = [span for span in traces.spans() if span.name.startswith("POST")]
    delivery, call = traces.one("deliver email"), traces.one("send smtp")
    assert message.traceparent[3:52] == f"{request.trace}-{request.id}"
    assert (delivery.trace, delivery.parent) == (request.trace, request.id)
    assert (call.trace, call.parent) == (request.trace, delivery.id)
    assert delivery.about["message_id"] == message.pk.hex
    assert "ada@example.com" not in repr(traces.spans())


def test_a_try_that_fails_says_why_and_probes_leave_no_span(traces, mails, caller, caplog):  # noqa: F811
    handler, sink = mails
    sink.script += ["rcpt:550"]
    with caplog.at_level(logging.INFO):
        caller.change(new_order().pk, "pay")
        for path in ("/healthz", "/readyz", "/metrics", "/healthz?x=1"):
            caller.get(path)
        Relay(handler, threading.Event()).tick()
    delivery, call = traces.one("deliver email"), traces.one("send smtp")
    assert (delivery.failed, delivery.about["outcome"], call.failed) == ("permanent", "permanent", "permanent")
    assert (
        len([span for span in traces.spans() if "http.method" in span.about or "http.request.method" in span.about])
        == 1
    )
    said = {
        record.msg["event"]: record.msg.get("trace_id") for record in caplog.records if isinstance(record.msg, dict)
    }
    assert said["request"] == said["delivery_failed"] == delivery.trace


def test_a_call_with_many_messages_links_to_each_trace_once(traces, install, settings):  # noqa: F811
    settings.OUTBOX_BATCH = 200
    handler = install(Scripted(acknowledges="batch"))
    ensure([handler.name])
    for number in range(130):
        promise(f"order:{number}")
    OutboxMessage.objects.update(traceparent=STRANGE)
    OutboxMessage.objects.filter(pk=OutboxMessage.objects.latest("id").pk).update(traceparent="00-broken")
    deliver(claim(handler, "poll", 200), handler, threading.Event())
    delivery = traces.one("deliver memory")
    assert delivery.trace != STRANGE[3:35]
    assert delivery.links == [(STRANGE[3:35], STRANGE[36:52])] * 128


def test_off_nothing_of_opentelemetry_is_imported(memory, monkeypatch):  # noqa: F811
    importers = [module.name for module in code() if any(name.startswith("opentelemetry") for name in module.imports())]
    assert importers == ["config/telemetry/spans.py"]
    assert [name for name, used in arrows().items() if importers[0] in used] == ["config/telemetry/tracing.py"]
    for name in [
        name for name in sys.modules if name.split(".")[0] == "opentelemetry" or name.endswith("telemetry.spans")
    ]:
        monkeypatch.delitem(sys.modules, name)
    assert tracing.start_tracing() is False
    promise()
    assert Relay(memory, threading.Event()).tick() == 1
    assert tracing.span("one") is tracing.span("another")  # not even an object
    assert not [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]
