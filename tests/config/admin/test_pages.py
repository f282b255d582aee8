"""What pages say, and what none of them does: edit a row, complete a text, show figures to whoever may not look."""

import re

import pytest

from buffer.events.models import Batch, Bucket, BufferedEvent
from outbox.groups.models import FailureGroup
from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import client_with, lever_of, list_of, page_of, seen
from tests.tree import ROOT

pytestmark = pytest.mark.django_db


def test_login_and_errors(client, boss):
    assert "Spillway" in seen(client, "/admin/login/")
    assert boss.get("/admin/buffer/batch/00000000-0000-0000-0000-000000000000/change/").status_code == 302
    missing = boss.get("/admin/nowhere/")
    assert missing.status_code == 404
    assert b"There is no such page" in missing.content


@pytest.mark.parametrize("url", ["/admin/", "/admin/?part=1", "/admin/find/?q=", "/admin/auth/user/add/"])
def test_what_is_not_in_the_table_of_pages_obeys_the_policy_too(boss, rows, url):
    seen(boss, url)


def test_empty_lists_say_what_would_be_there(boss):
    assert "No dead letters need work" in seen(boss, list_of(FailureGroup))
    assert "Nothing waits" in seen(boss, list_of(Bucket))


@pytest.mark.parametrize("name", ["sent", "waiting", "late"])
def test_a_payload_shows_what_its_flow_names_to_everybody(boss, reader, rows, name):
    row = getattr(rows, name)
    for client in (boss, reader):
        assert "&quot;location_id&quot;</b>: &quot;WH-1&quot;" in seen(client, page_of(row))
    assert "“see payloads”" in seen(reader, page_of(row))
    assert "Reveal for 15 min" in seen(boss, page_of(row))


def test_without_the_right_to_look_there_is_no_page(rows):
    nobody = client_with("view_bucket")
    assert nobody.get(page_of(rows.bucket)).status_code == 200
    assert nobody.get(page_of(rows.late)).status_code == 403
    assert nobody.get(list_of(Batch)).status_code == 403
    assert nobody.get(lever_of(DeadLetter, "requeue", rows.late)).status_code == 403
    assert b"Reading the trail needs the right" in nobody.get("/admin/").content


@pytest.mark.parametrize("rights", [[], ["view_user"], ["view_accesslog"]])
def test_without_a_right_to_any_flow_there_are_no_figures(rows, rights):
    nobody = client_with(*rights)
    for url in ("/admin/", "/admin/?part=1"):
        html = seen(nobody, url)
        assert "Ask somebody who manages access" in html
        assert "need you" not in html
        assert "sw-flows" not in html
    refused = nobody.get("/admin/partitions/")
    assert refused.status_code == 403
    assert b"Somebody who manages access can grant it" in refused.content
    assert ('"/admin/auth/user/"' in html) == ("view_user" in rights)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "app_label=auth&model_name=user&field_name=operatoraction",
        "app_label=outbox&model_name=operatoraction&field_name=actor_name",
    ],
)
def test_nothing_is_completed(boss, query):
    assert boss.get(f"/admin/autocomplete/?{query}").status_code == 404


def test_rows_cannot_be_edited_by_djangos_own_doors(boss, rows):
    before = BufferedEvent.objects.values().get(pk=rows.waiting.pk)
    boss.post(page_of(rows.waiting), {"status": "sent", "order_id": "X"})
    assert boss.get(f"{list_of(BufferedEvent)}add/").status_code == 403
    assert boss.post(page_of(rows.waiting).replace("change", "delete"), {"post": "yes"}).status_code == 403
    assert BufferedEvent.objects.values().get(pk=rows.waiting.pk) == before


def test_a_batch_says_what_when_and_where(boss, rows):
    html = seen(boss, page_of(rows.sent))
    assert "transfer-batches/0/0" in html  # topic/partition/offset
    assert "A1" in html
    assert "A2" in html
    assert "Somebody asked for it." in html
    refused = seen(boss, page_of(rows.parked))
    assert "The broker refuses this batch." in refused
    assert page_of(rows.refused) in refused


def test_a_bucket_says_why_it_is_not_due(boss, rows):
    html = seen(boss, page_of(rows.bucket))
    assert "Not due yet." in html
    assert "in any case" in html
    Bucket.objects.filter(pk=rows.bucket.pk).update(urged="manual")
    assert "Due now." in seen(boss, page_of(rows.bucket))
    Bucket.objects.filter(pk=rows.bucket.pk).update(held=True)
    assert "Held." in seen(boss, page_of(rows.bucket))


def test_the_sidebar_starts_with_what_fails_first(boss):
    html = seen(boss, list_of(Batch))
    order = [
        html.index(f'id="{name}"') for name in ("outbox-failuregroup", "outbox-deadletter", "buffer-batch", "auth-user")
    ]
    assert order == sorted(order)


def test_the_badge_names_the_installation(boss, settings):
    settings.ENVIRONMENT_NAME = "rehearsal"
    assert "rehearsal" in seen(boss, "/admin/")


def test_on_a_phone_each_cell_says_its_column():
    """Rows become blocks there and the heads are hidden: `data-label` must repeat them, in their order."""
    tables = 0
    for template in sorted((ROOT / "templates" / "admin").rglob("*.html")):
        for table in re.findall(r'<table class="sw-rows">(.*?)</table>', template.read_text(), re.DOTALL):
            heads = [re.sub(r"<[^>]+>", "", head) for head in re.findall(r"<th [^>]*>(.*?)</th>", table)]
            assert re.findall(r'<td data-label="([^"]+)"', table) == heads, template
            assert table.count("<td") == len(heads), template
            tables += 1
    assert tables >= 9


def test_a_time_breaks_between_the_clock_and_the_age(boss, rows):
    html = boss.get(page_of(rows.sent)).content.decode()
    assert re.search(r"<time [^>]+><span>\d\d:\d\d:\d\d,</span> <span>\d+ s ago</span></time>", html)


@pytest.mark.parametrize("key", ["999999999", "a_20b", "\x00"])
def test_a_row_that_is_gone_leads_home_and_says_so(key):
    response = client_with("view_watermark").get(f"/admin/outbox/watermark/{key}/change/", follow=True)
    assert response.redirect_chain == [("/admin/", 302)]
    assert "doesn’t exist. Perhaps it was deleted?" in response.content.decode()
