"""Traces: from the request to the mail server, from a transfer request to its batch; off, nothing is imported."""

import logging
import runpy
import sys
import threading
from dataclasses import replace
from uuid import NAMESPACE_URL, uuid5

import pytest
from celery import current_app
from django.contrib.auth.models import User
from django.urls import reverse
from django.views.generic import RedirectView

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.flush.flusher import Flusher
from buffer.ingest.handler import Ingest
from buffer.streams import GROUP
from config.admin.levers import Operator
from config.database.clock import database_now
from config.environment.mail import MailServer
from config.kafka import RecordBatch
from config.kafka.consumer.writer import Writer
from config.kafka.transactional_producer import Unknown
from config.telemetry import tracing
from notifications.email_handler import EmailHandler
from outbox.bookkeeping.watermarks import Watermarks
from outbox.channels.permits import ensure
from outbox.delivery.claim import claim
from outbox.delivery.deliver import deliver
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from outbox.messages.models import OutboxMessage
from outbox.workers.relay import Relay
from tests.buffer.flush.test_flusher import urge
from tests.conftest import TOPIC_ID, order
from tests.logged import lines
from tests.notifications.conftest import _plain_http, caller, new_order  # noqa: F401 (fixtures)
from tests.notifications.smtp_sink import Sink
from tests.outbox.conftest import install, memory  # noqa: F401 (fixtures)
from tests.outbox.scripted import SENT, UNREACHABLE, Scripted, promise
from tests.outbox.workers.test_listen import batch, finish, hear, hint, listen  # noqa: F401 (a fixture)
from tests.throttler.api.test_transactional import sender, topic  # noqa: F401 (fixtures)
from tests.throttler.engine.test_transaction import Recorder, record, send
from tests.tree import arrows, code
from throttler.engine.decisions import Decisions
from throttler.engine.partition import OwnedPartition

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
    assert delivery.about["message_id"] == str(message.pk)
    assert list(OutboxMessage.objects.of_trace(request.trace)) == [message]
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
    said = {line["event"]: line.get("trace_id") for line in lines(caplog)}
    assert (said["request"], said["delivery_failed"]) == (delivery.trace, [delivery.trace])


def test_the_secret_of_a_password_link_is_in_no_span(traces, client, settings):
    settings.SECURE_SSL_REDIRECT = True
    link = "/admin/auth/user/welcome/MQ/c0ffee-5ecret/"
    for secure, path in ((True, link), (False, link), (True, link.rstrip("/"))):
        client.get(path, secure=secure)
    client.get("/admin/find/", secure=True)
    client.get("/nowhere/?q=5ecret", secure=True)
    said = repr(traces.spans())
    assert "5ecret" not in said
    assert said.count("'http.url': 'http://testserver/admin/auth/user/welcome/<uidb64>/<token>/'") == 1
    assert said.count("'http.url': 'https://testserver/admin/auth/user/welcome/<uidb64>/<token>/'") == 2
    assert "'https://testserver/admin/find/'" in said
    assert "'https://testserver/nowhere/'" in said


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
    assert delivery.links == [(STRANGE[3:35], STRANGE[36:52])] * 25
    with tracing.span("crowd", "", links=[STRANGE[:-1] + "0", *(f"{STRANGE[:36]}{n:016x}-01" for n in range(1, 130))]):
        pass
    assert [int(span, 16) for _trace, span in traces.one("crowd").links] == list(range(1, 129))
    with tracing.span("nobody's", STRANGE, links=[STRANGE[:-1] + "0", "00-broken"]):
        pass
    assert traces.one("nobody's").links == []


def test_a_call_of_many_messages_that_fails_is_an_error(traces, install):  # noqa: F811
    handler = install(Scripted(acknowledges="batch"))
    handler.answers = [SENT, UNREACHABLE, UNREACHABLE]
    ensure([handler.name])
    for number in range(3):
        promise(f"order:{number}")
    deliver(claim(handler, "poll", 200), handler, threading.Event())
    delivery = traces.one("deliver memory")
    assert (delivery.failed, delivery.about["failed"]) == ("unreachable", "2")


def test_a_batch_is_a_span_that_links_to_its_orders(traces, ingest, records, producer, stream, client):
    """From a transfer request to its batch and to its letter, on the way and in the console's search."""
    trace = "5" * 32
    parents = [f"00-{trace}-{number:016x}-01" for number in (1, 2)]
    headers = [
        [("traceparent", parents[0].encode())],
        [("traceparent", b"00-broken")],
        [("traceparent", parents[1].encode())],
    ]
    found = records(order("A1"), order("A2"), b"{")
    found = [replace(record, headers=given) for record, given in zip(found, headers, strict=True)]
    store(stream, found)
    assert list(BufferedEvent.objects.order_by("id").values_list("traceparent", flat=True)) == [parents[0], None]
    Bucket.objects.update(urged="manual", due_at=database_now())
    assert Flusher([stream], producer).tick() == 1
    [sent], batch = producer.sent, Batch.objects.get()
    own = dict(sent.headers)["traceparent"].decode()
    stored, cut, call = traces.one("store transfer-requests"), traces.one("cut batch"), traces.one("send batch")
    assert stored.links == [(trace, parent[36:52]) for parent in parents]
    assert (cut.traceparent, cut.parent, cut.links) == (own, "", [(trace, parents[0][36:52])])
    assert cut.trace == batch.pk.hex
    assert (call.trace, call.parent) == (cut.trace, cut.id)
    client.force_login(User.objects.create_superuser("root"))
    letter = DeadLetter.objects.get()
    pages = [admin_page(row) for row in (BufferedEvent.objects.get(order_id="A1"), batch, letter)]
    hits = client.get("/admin/find/", {"q": trace}).content.decode()
    assert all(page in hits for page in pages)
    hits = client.get("/admin/find/", {"q": f" {parents[0]} "}).content.decode()
    assert all(page in hits for page in pages)
    assert client.get("/admin/find/", {"q": cut.trace}).headers["Location"] == pages[1]
    assert trace in client.get(pages[0]).content.decode()
    assert trace in client.get(pages[2]).content.decode()


def test_a_supplement_is_a_batch_of_a_late_orders_trace(traces, ingest, records, producer, stream, client):
    parent = f"00-{'6' * 32}-{1:016x}-01"
    ingest(records(order("A1")))
    urge()
    Flusher([stream], producer).tick()
    [late] = records(order("A1", items={"S1": 5}))
    ingest([replace(late, headers=[("traceparent", parent.encode())])])
    assert pull("requeue", [DeadLetter.objects.get().pk], Operator("test"), "x").acted == 1
    first, cut = traces.named("cut batch")
    batch = Batch.objects.get(reason="supplement")
    assert (first.links, cut.trace, cut.links) == ([], batch.pk.hex, [(parent[3:35], parent[36:52])])
    assert Flusher([stream], producer).tick()
    assert traces.named("send batch")[-1].parent == cut.id
    client.force_login(User.objects.create_superuser("root"))
    hits = client.get("/admin/find/", {"q": parent}).content.decode()
    assert all(admin_page(row) in hits for row in (batch, DeadLetter.objects.get()))


def store(stream, found) -> None:
    """As a consumer's writer does."""
    writer = Writer(Ingest(stream), Watermarks(), GROUP)
    assert writer.submit(RecordBatch(found, {found[0].topic: TOPIC_ID}), 1, timeout=1)
    assert writer.drain(10)
    writer.close()


def admin_page(row) -> str:
    return reverse(f"admin:{row._meta.label_lower.replace('.', '_')}_change", args=[row.pk])


def test_a_bunch_goes_on_with_the_trace_of_its_request(traces, topic, sender):  # noqa: F811
    assert sender.post("/v1/transactional", {"recipients": ["a", "b"], "message": {}}).status_code == 202
    request = traces.one("POST v1/transactional")
    own = {dict(record.headers)["traceparent"].decode()[:53] for record in topic.records}
    assert own == {request.traceparent[:53]}  # its flags are the library's


def test_the_throttlers_transaction_links_to_what_leaves_live_and_from_the_store(traces):
    parents = [f"00-{'7' * 32}-{number:016x}-01" for number in (1, 2, 3)]
    records = [
        record(offset, headers=[("traceparent", text.encode())]) for offset, text in enumerate(parents, start=10)
    ]
    owned = OwnedPartition(3, "t", 7, decided=10, committed=10, read=10)
    out = send(Recorder(), owned, records)  # at 1/s the first one goes live, the others wait in the store
    drained = Decisions(drained=[(owned, row) for _decoded, row in out.rows[:1]])
    send(Recorder(), owned, [], decisions=drained)
    over = Decisions(overdue=[(owned, row, "expired") for _decoded, row in out.rows[1:2]])
    refusing = Recorder()
    refusing.verdict = Unknown("no answer")
    send(refusing, owned, [], decisions=over)
    live, late, gone = traces.named("throttle")
    assert (live.links, live.about["live"]) == ([(parents[0][3:35], parents[0][36:52])], "1")
    assert (late.links, late.about["drained"]) == ([(parents[1][3:35], parents[1][36:52])], "1")
    assert (gone.links, gone.about["expired"]) == ([(parents[2][3:35], parents[2][36:52])], "1")
    assert (live.failed, late.failed, gone.failed) == ("", "", "Unknown")


def test_a_sampler_decides_where_a_trace_begins_and_a_parent_for_those_below(traces):
    from opentelemetry.sdk.trace import sampling

    spans = tracing._spans
    spans.tracer.sampler = sampling.ParentBased(sampling.ALWAYS_OFF)
    with tracing.span("nobody's", ""):
        carried = tracing.traceparent()
        with tracing.span("below nobody's"):
            assert tracing.traceparent()[:36] == carried[:36]
            assert not int(tracing.traceparent()[-2:], 16) & tracing.SAMPLED
    with tracing.span("somebody's", STRANGE), tracing.span("below somebody's"):
        carried = tracing.traceparent()
    outer, inner = traces.one("somebody's"), traces.one("below somebody's")
    assert (outer.parent, inner.parent, inner.traceparent) == (STRANGE[36:52], outer.id, carried)
    assert len(traces.spans()) == 2
    assert tracing.traceparent() == ""


def test_a_span_that_its_traceparent_has_named_is_kept_whatever_a_sampler_says(traces):
    from opentelemetry.sdk.trace import sampling

    tracing._spans.tracer.sampler = sampling.ParentBased(sampling.ALWAYS_OFF)
    own = f"00-{uuid5(NAMESPACE_URL, 'batch').hex}-{'cd' * 8}-01"
    with tracing.span("cut batch", "", known_as=own, orders=2):
        assert tracing.traceparent() == own
    with tracing.span("send batch", own):
        pass
    kept = [(span.name, span.trace, span.about) for span in traces.spans()]
    assert kept == [("cut batch", own[3:35], {"orders": "2"}), ("send batch", own[3:35], {})]


def test_what_a_block_raises_ends_its_span_and_is_left_behind(traces):
    with pytest.raises(LookupError), tracing.span("torn", "", order="A1"):
        tracing.annotate(step="send")
        raise LookupError("ada@example.com")
    with tracing.span("late", "", began=1_000):
        pass
    assert traces.one("late").began == 1_000
    torn = traces.one("torn")
    assert (torn.failed, torn.about, torn.parent) == ("LookupError", {"order": "A1", "step": "send"}, "")
    assert tracing.traceparent() == ""


class Torn(Exception):
    """What no server says."""


def torn(*_args, **_kwargs):
    from opentelemetry import trace

    trace.get_current_span().add_event("step", {"of": "two"})
    raise Torn("ada@example.com")


def test_what_a_request_or_a_task_raises_is_said_by_its_class_alone(traces, client, monkeypatch):
    monkeypatch.setattr(RedirectView, "get", torn)
    client.raise_request_exception = False
    assert client.get("/", secure=True).status_code == 500
    current_app.task(torn, name="torn", shared=False).apply()
    current_app.tasks.pop("torn")
    spans = [span for span in traces.spans() if span.name in ("GET ", "GET", "run/torn")]
    assert len(spans) == 2
    for span in spans:
        kinds = [about for name, about in span.events if name == "exception"]
        assert kinds
        assert all(kind == {"exception.type": f"{__name__}.Torn"} for kind in kinds)
        assert ("step", {"of": "two"}) in span.events
        assert span.failed == "Torn"
    assert "ada@example.com" not in repr(spans)


def test_off_nothing_of_opentelemetry_is_imported(memory, monkeypatch):  # noqa: F811
    importers = [module.name for module in code() if any(name.startswith("opentelemetry") for name in module.imports())]
    assert importers == ["config/telemetry/spans.py"]
    assert [name for name, used in arrows().items() if importers[0] in used] == ["config/telemetry/tracing.py"]
    for name in [
        name for name in sys.modules if name.split(".")[0] == "opentelemetry" or name.endswith("telemetry.spans")
    ]:
        monkeypatch.delitem(sys.modules, name)
    runpy.run_path(tracing.__file__)  # as a process that starts imports it
    assert tracing.start_tracing() is False
    promise()
    assert Relay(memory, threading.Event()).tick() == 1
    assert tracing.span("one") is tracing.span("another")  # not even an object
    assert not [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]
