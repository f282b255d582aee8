"""Run by test_acme.py in a process of its own, where SPILLWAY_APPS names Acme: what it adds works like what is ours."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace

import pytest
from acme.models import DepotNote, Visit
from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from buffer.events.models import Batch, Bucket, BufferedEvent
from buffer.ingest.after_restore import versions_in
from buffer.ledger.topics import sources
from buffer.models import InventoryStock, InventoryTracking
from buffer.streams import streams
from config.admin.levers import Operator
from config.celery import app as celery
from config.database.clock import database_now
from config.flows import letters_of, mask_of
from config.probes import doctor
from config.processes.beat import rotate_and_sweep
from outbox.audit_log.models import OperatorAction
from outbox.channels.handlers import handler_of
from outbox.letters.levers import pull
from outbox.letters.models import DeadLetter
from spillway_ext import mail, publish
from tests.conftest import ORDERED_AT

pytestmark = pytest.mark.django_db
pytest_plugins = ["spillway_ext.testing"]


@pytest.fixture
def stream():
    return streams()["parcel-scans"]


def scan(number: str, **parcels: int) -> dict:
    listed = [{"parcel_no": parcel, "weight_g": weight} for parcel, weight in parcels.items()]
    return {"scan_id": number, "depot": "D1", "scanned_at": ORDERED_AT, "parcels": listed}


@pytest.fixture
def browser(settings):
    settings.SECURE_SSL_REDIRECT = False
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client


def test_a_batch_a_supplement_and_what_was_sent_are_in_their_words(spillway, stream, browser):
    spillway.push("parcel-scans", scan("A", P1=5, P2=7), scan("B", P1=6))
    spillway.wait(seconds=2)
    assert spillway.published("depot-digests") == []
    spillway.wait(seconds=3)
    (digest,) = spillway.published("depot-digests")
    assert {**digest, "batch_id": 0, "flushed_at": 0} == {
        "batch_id": 0, "flushed_at": 0, "depot": "D1", "scan_ids": ["A", "B"],
        "parcels": [{"parcel_no": "P1", "weight_g": 6}, {"parcel_no": "P2", "weight_g": 7}],
    }  # fmt: skip
    sent = SimpleNamespace(value=spillway.sink.sent[0].value, headers=spillway.sink.sent[0].headers)
    assert [key for key, _version in versions_in(stream, sent, "")] == [("A", "D1"), ("B", "D1")]
    batch = Batch.objects.get()
    page = browser.get(reverse("admin:buffer_batch_change", args=[batch.pk])).content.decode()
    assert "parcel_no" in page
    assert "P1" in page
    assert "weight_g" not in page, "the stream does not say that it may be read"

    spillway.push("parcel-scans", scan("A", P1=9, P2=7))
    assert pull("requeue", [spillway.letters()[0].pk], Operator("test"), "x").acted == 1
    spillway.wait(seconds=5)
    late = spillway.published("depot-digests")[-1]
    assert (late["depot"], late["scan_ids"], late["supplement_of"]) == ("D1", ["A"], str(batch.pk))
    assert late["parcels"] == [{"parcel_no": "P1", "weight_g": 9}]


def test_a_refused_scan_is_a_letter_with_its_key_and_what_may_be_read(spillway):
    spillway.push("parcel-scans", scan("A"), b"\xffnot JSON")
    assert [(letter.source, letter.business_key) for letter in spillway.letters()] == [
        ("parcel-scans", "A"), ("parcel-scans", ""),
    ]  # fmt: skip
    assert "depot" in mask_of("parcel-scans")[0]
    assert letters_of("parcel-scans").locked[0] == "scan_id"


@pytest.mark.skipif(connection.vendor != "sqlite", reason="the embedded broker belongs to SQLite")
def test_the_same_goes_through_the_embedded_broker(spillway_on_kafka):
    spillway_on_kafka.push("parcel-scans", scan("A", P1=5), b"no JSON", key="D1")
    spillway_on_kafka.wait(seconds=5)
    spillway_on_kafka.push("parcel-scans", scan("B", P1=6), key="D1")
    spillway_on_kafka.wait(seconds=5)
    assert [digest["scan_ids"] for digest in spillway_on_kafka.published("depot-digests")] == [["A"], ["B"]]
    assert [letter.reason for letter in spillway_on_kafka.letters()] == ["invalid_json"]


def test_a_promised_mail_is_seen(spillway):
    closed = mail({"to": "depot@example.com", "subject": "Closed", "text": "On Monday."}, "D1/closed", database_now())
    with transaction.atomic():
        publish("depot.closed", "depot:D1", closed, idempotency_key="D1/closed")
    (seen,) = spillway.mails()
    assert (seen.to, seen.subject) == ("depot@example.com", "Closed")


def test_a_topic_that_nobody_reads_is_named(spillway):
    with pytest.raises(LookupError, match="no flow reads 'parcels'; these are read: .*parcel-scans"):
        spillway.push("parcels", {})


def test_points_move_once_and_their_letters_have_a_key(spillway, settings):
    settings.LEDGER_UNKNOWN_STOCK = "create"
    earned = {"earning_id": "E1", "customer_id": "C1", "points": 30}
    spillway.push("points-earned", earned, earned)
    assert list(InventoryTracking.objects.values_list("reference_type", "delta")) == [("POINTS_EARNED", 30)]
    spillway.push("points-earned", {"earning_id": "E2", "points": 1})
    (letter,) = spillway.letters()
    assert letter.business_key == "E2"
    assert "points" in mask_of(letter.source)[0]
    assert "earning_id" in letters_of(letter.source).locked


def test_a_ledger_of_points_says_points(spillway, browser, settings):
    earned = {"earning_id": "E1", "customer_id": "C1", "points": 30}
    spillway.push("points-earned", earned)
    (letter,) = spillway.letters()
    assert letter.error.startswith("balance C1 is not known: import it")
    settings.LEDGER_UNKNOWN_STOCK = "create"
    spillway.push("points-earned", {**earned, "earning_id": "C1"})
    stock, movement = InventoryStock.objects.get(), InventoryTracking.objects.get()
    page = reverse("admin:buffer_inventorystock_change", args=[stock.pk])
    said = {
        page: ["Balance C1", "points, the sum of its movements", "Correction…", "Earning"],
        reverse("admin:buffer_inventorystock_changelist"): ["balance", "30 points"],
        reverse("admin:buffer_inventorytracking_changelist"): ["balance", "+30 points", "Earning"],
        reverse("admin:buffer_inventorytracking_change", args=[movement.pk]): [
            "points put in",
            "moved this balance alone",
        ],
        f"{reverse('admin:find')}?q=C1": ["balance C1"],
        reverse("admin:index"): ["6 stock, 1 balance topics"],
        reverse("admin:outbox_deadletter_change", args=[letter.pk]): ["balance C1: +30 points"],
    }
    for address, words in said.items():
        shown = browser.get(address, follow=True).content.decode()
        assert [word for word in words if word not in shown] == [], address
    take = reverse("admin:buffer_inventorystock_lever", args=["stocktake"])
    assert "Correction of C1" in browser.get(take, {"id": "C1"}).content.decode()
    form = {"id": "C1", "seen": "30", "counted": "20", "adjustment": "a", "reason": "a booking came twice"}
    assert "Balance C1 is 20 now; -10 was recorded." in browser.post(take, form, follow=True).content.decode()
    assert OperatorAction.objects.get(verb="adjust_stock").subject == "Balance C1"
    adjusted = InventoryTracking.objects.exclude(pk=movement.pk).get()
    shown = browser.get(reverse("admin:buffer_inventorytracking_change", args=[adjusted.pk])).content.decode()
    assert "points taken out" in shown
    assert "Balance C1" in browser.get(page).content.decode()


def test_roles_get_their_rights_with_the_first_migrate():
    rights = {
        group.name: set(group.permissions.filter(content_type__app_label="acme").values_list("codename", flat=True))
        for group in Group.objects.all()
    }
    looking = {"view_depotnote", "view_visit"}
    assert rights["Depot desk"] == rights["Support"] == rights["Auditor"] == looking
    assert rights["Operator"] == {*looking, "change_depotnote"}


def test_its_pages_its_routes_and_its_task_are_there(browser):
    DepotNote.objects.create(depot="D1", text="closed on Monday", created_at=database_now())
    assert b"closed on Monday" in browser.get(reverse("admin:acme_depotnote_changelist")).content
    home = browser.get(reverse("admin:index")).content.decode()
    assert "Notes of depots" in home
    assert "Added by extensions: Acme parcels (acme)." in home
    assert browser.get("/acme/hello").content == b"parcels"
    assert "/v1/depots/{depot}/notes" in browser.get("/api/openapi.json").json()["paths"]
    assert browser.get("/api/docs").status_code == 200
    celery.loader.import_default_modules()  # as a worker does
    assert "acme.tasks.count_depots" in celery.tasks
    assert celery.conf.beat_schedule["count-depots"]["schedule"] == 3600
    handler_of("pigeon").send([object()])
    metrics = browser.get("/metrics").content.decode()
    assert "acme_depot_notes 1.0" in metrics
    assert "acme_pigeons_total 1.0" in metrics


def test_its_partitions_are_made_and_its_rows_swept(browser):
    Visit.objects.create(depot="D1")
    old = database_now() - timedelta(days=31)
    DepotNote.objects.create(depot="D1", text="old", created_at=old)
    call_command("rotate_partitions")
    rotate_and_sweep()
    assert not DepotNote.objects.exists()
    assert "acme_visit" in browser.get(reverse("admin:partitions")).content.decode()


def test_doctor_and_the_command_name_who_adds_what(capsys):
    findings = {finding.name: finding for finding in doctor.examine()}
    assert findings["extension acme"].ok
    assert "streams: parcel-scans" in findings["extension acme"].detail
    assert findings["depots"].detail == "0 notes"
    call_command("extensions")
    printed = capsys.readouterr().out
    assert "written for spillway_ext 1.0" in printed
    assert "points-earned" in printed


@pytest.fixture
def taken_away(settings):
    """The next start, without SPILLWAY_APPS: what was stored before is there."""

    def without() -> None:
        settings.STREAMS = {name: entry for name, entry in settings.STREAMS.items() if name != "parcel-scans"}
        settings.MOVEMENTS = {name: entry for name, entry in settings.MOVEMENTS.items() if name != "points-earned"}
        settings.HANDLERS = {name: path for name, path in settings.HANDLERS.items() if name != "pigeon"}
        settings.FLOWS = [path for path in settings.FLOWS if not path.startswith("acme.")]
        for known in (streams, sources):
            known.cache_clear()

    yield without
    for known in (streams, sources):
        known.cache_clear()


def test_without_it_pages_stay_up_and_say_what_is_missing(spillway, browser, settings, taken_away):
    spillway.push("parcel-scans", scan("A", P1=5), scan("B"))
    spillway.wait(seconds=5)
    spillway.push("parcel-scans", scan("C", P1=5))
    settings.LEDGER_UNKNOWN_STOCK = "create"
    spillway.push("points-earned", {"earning_id": "E1", "customer_id": "C1", "points": 30})
    carried = publish("depot.closed", "D1", {"text": "coo"}, channel="pigeon", idempotency_key="a")
    taken_away()
    letter = DeadLetter.objects.get()
    rows = [("deadletter", letter), ("failuregroup", letter.group)]
    pages = [reverse(f"admin:outbox_{model}_change", args=[row.pk]) for model, row in rows]
    pages += [reverse(f"admin:outbox_{model}_changelist") for model, _row in rows]
    for model in (Batch, Bucket, BufferedEvent, InventoryStock, InventoryTracking):
        pages += [reverse(f"admin:buffer_{model._meta.model_name}_changelist")]
        pages += [
            reverse(f"admin:buffer_{model._meta.model_name}_change", args=[row.pk]) for row in model.objects.all()
        ]
    pages += [reverse("admin:index"), f"{reverse('admin:find')}?q=A"]
    for page in pages:
        assert browser.get(page, follow=True).status_code == 200, page
    assert "SPILLWAY_APPS" in browser.get(pages[0]).content.decode()
    message = browser.get(reverse("admin:outbox_outboxmessage_change", args=[carried])).content.decode()
    assert "Nothing takes messages of its channel, pigeon." in message
    assert "next try" not in message
    batch = browser.get(reverse("admin:buffer_batch_change", args=[Batch.objects.get().pk])).content.decode()
    assert "Its stream is not configured." in batch
    assert "{idle}" not in batch
