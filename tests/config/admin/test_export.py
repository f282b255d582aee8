"""A list as CSV: what the page shows and no more, harmless in a spreadsheet, page by page, written down."""

import csv
import io
import re
import tracemalloc
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.admin import site
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils.html import format_html

from config.admin import export
from config.admin.html import chip, moment
from config.admin.pages import ReadOnlyAdmin, number_column
from config.database.clock import database_now
from notifications.orders.models import Order
from outbox.audit_log.models import OperatorAction
from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import client_with, list_of
from throttler.lanes.models import Lane

pytestmark = pytest.mark.django_db


def act(number, **more):
    now = database_now()
    columns = {"actor_name": "a", "verb": "did", "reason": "r", "result": "done", **more}
    OperatorAction.objects.bulk_create(
        OperatorAction(subject=f"s{index:05d}", created_at=now - timedelta(seconds=index // 5), **columns)
        for index in range(number)
    )


def download(client, model, query=""):
    response = client.post(f"{list_of(model)}csv/{query}")
    assert response.status_code == 200
    return b"".join(response.streaming_content).decode()


ISO = re.compile(r"\d{4}-\d\d-\d\dT[\d:.+]+")


def plain(text):
    """A text without blanks and separators of thousands."""
    return "".join(text.split()).replace(",", "")


def rows_of(text):
    assert text.startswith("\ufeff")
    return list(csv.reader(io.StringIO(text[1:], newline="")))


@pytest.mark.parametrize(
    "first", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", " =", "\u00a0=", "\ufeff="]
)
def test_no_text_is_taken_for_a_formula(first):
    for text in (f"{first}1+1", f'{first}HYPERLINK("http://x")'):
        assert export.harmless(text)[0] == "'" or not export.harmless(text)[0].strip("\ufeff")
        assert export.cell(text)[0] in "'\\H1", export.cell(text)
        assert export.cell(format_html("<b>{}</b>", text))[0] in "'\\H1"


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "＝", "＋", "－", "＠"])
@pytest.mark.parametrize("between", [";", "; ", ";\u00a0", ";;", ';"', '; "" ', "; ;", ";\t"])
def test_no_part_of_a_text_is_taken_for_a_formula_by_a_reader_that_splits_at_semicolons(first, between):
    text = f"a{between}{first}cmd|'/C calc'!A0,b"
    line = export._lines(
        [["7", export.harmless(text), export.cell(text), export.cell(format_html("<b>{}</b>", text)), "b"]]
    )
    for delimiter in ";,\t":
        for (cells,) in [list(csv.reader(io.StringIO(line, newline=""), delimiter=delimiter))]:
            assert not [cell for cell in cells if cell.lstrip()[:1] in tuple(f"{first}=")], cells
    raw = [
        part.lstrip(' "\u00a0\t') for part in line.split(";")
    ]  # as one that takes quotation marks for text, or drops them
    assert not [part for part in raw if part[:1] == first]


def test_a_cell_says_what_the_page_says():
    when = database_now()
    assert export.cell(chip("open")) == "Open"
    assert export.cell(moment(when, "3 min ago")) == when.isoformat()
    assert export.cell(format_html('{}<span class="sw-second sw-code">{}</span>', "a <b>", "c")) == "a <b>; c"
    row = OperatorAction(rows=-1234567)
    assert export.cell(number_column("rows", "Rows", ("row", "rows"))(None, row)) == "-1234567"
    assert export.cell(format_html('<span class="sw-number">{}</span>', "-1+1")) == "'-1+1"
    assert export.cell("\u202egnp.exe") == "\\u202egnp.exe"
    assert export.cell("two\r\nlines\t=1") == "two lines =1"


def test_formulas_of_strangers_are_harmless_in_every_column(boss):
    Lane.objects.create(
        customer_id='=cmd|" /C calc"!A0', partition=0, backlog=3, first=1, drained=0, seen=3, updated_at=database_now()
    )
    act(1, actor_name="@SUM(1)", reason="-2+3")
    from throttler.customers.models import Customer

    lines = rows_of(download(boss, Customer))[1:]
    lines += rows_of(download(boss, OperatorAction))[1:]
    assert lines[0][0] == '\'=cmd|" /C calc"!A0'
    assert not [text for line in lines for text in line if text[:1] in "=+-@\t\r" and text]
    assert "'@SUM(1)" in lines[-1]
    assert "'-2+3" in lines[-1]


def test_every_list_is_a_file_and_each_cell_stands_on_the_page(boss, rows):
    """So nothing hidden gets out: who adds a column to a list adds it to both."""
    Order.objects.create(user_email="tom.riddle@example.com", total_amount=1200, currency="EUR", created_at=database_now(), updated_at=database_now())  # fmt: skip
    filled = 0
    for model, page in site._registry.items():
        if not isinstance(page, ReadOnlyAdmin):
            continue
        html = re.sub(r"<svg.*?</svg>", "", boss.get(list_of(model)).content.decode(), flags=re.DOTALL)
        shown = plain(unescape(re.sub(r"<[^>]*>", "", html)))
        header, *lines = rows_of(download(boss, model))
        assert len(header) == len(page.list_display) + 1
        filled += bool(lines)
        for line in lines:
            for text in line[1:] if model is not OperatorAction else ():  # each file adds one
                for part in text.removeprefix("'").split("; "):
                    assert ISO.fullmatch(part) or plain(part) in shown, (model, text)
        assert "tom.riddle" not in str(lines)
    assert filled > 6


def test_a_file_has_what_the_filters_leave_and_all_pages_of_it(boss, monkeypatch):
    monkeypatch.setattr(export, "PAGE", 7)
    act(60)
    act(5, subject_type="auth.user", verb="other")
    lines = rows_of(download(boss, OperatorAction, "?what=auth.user&before=2020-01-01~1"))
    assert len(lines) == 1 + 5
    text = download(boss, OperatorAction, "?to=2100-01-01")
    assert len(re.findall(r"Did: s\d{5}", text)) == len(set(re.findall(r"Did: s\d{5}", text))) == 60


def test_a_file_is_written_down_when_it_begins_and_when_it_ends(boss, monkeypatch):
    monkeypatch.setattr(export, "PAGE", 2)
    act(5)
    before = OperatorAction.objects.count()
    download(boss, OperatorAction, "?q=somebody@example.com&what=auth.user")
    begun, ended = OperatorAction.objects.order_by("pk")[before:]
    assert (begun.verb, begun.subject, begun.result, begun.rows) == ("download", "Operator actions as CSV", "begun", 0)
    assert (ended.result, ended.rows, ended.subject_type) == ("complete", 0, "outbox.operatoraction")
    assert begun.detail["filters"]["what"] == "auth.user"
    assert "somebody" not in str(begun.detail)


def test_a_file_that_breaks_off_says_how_far_it_came(boss, monkeypatch):
    monkeypatch.setattr(export, "PAGE", 2)
    act(9)
    response = boss.post(f"{list_of(OperatorAction)}csv/")
    assert OperatorAction.objects.order_by("-pk")[0].result == "begun"
    content = response._iterator
    next(content), next(content)
    content.close()
    last = OperatorAction.objects.order_by("-pk")[0]
    assert (last.result, last.rows) == ("broken off", 2)


def test_a_link_fetches_no_file_and_whoever_may_not_look_gets_none(boss, reader):
    response = boss.get(f"{list_of(DeadLetter)}csv/?state=all")
    assert (response.status_code, response["Location"]) == (302, "../?state=all")
    assert client_with("view_batch").post(f"{list_of(DeadLetter)}csv/").status_code == 403
    assert OperatorAction.objects.filter(verb="download").count() == 0
    assert OperatorAction.objects.filter(verb="refused").count() == 1
    assert reader.post(f"{list_of(DeadLetter)}csv/").status_code == 200


def test_a_bad_filter_leads_to_the_list_that_says_so(boss):
    for query in ("?from=soon", "?group__id__exact=x"):
        response = boss.post(f"{list_of(DeadLetter)}csv/{query}")
        assert (response.status_code, response["Location"]) == (302, f"../{query}")


def test_memory_and_queries_do_not_grow_with_the_rows(boss, monkeypatch):
    """One query a page, and never more than a page in memory."""
    monkeypatch.setattr(export, "PAGE", 100)

    def measure(rows):
        act(rows)
        response = boss.post(f"{list_of(OperatorAction)}csv/")
        content, length = response.streaming_content, 0
        next(content)
        tracemalloc.start()
        for part in content:
            length += len(part)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return length, peak

    small, low = measure(500)
    large, high = measure(4500)
    assert large > 8 * small
    assert high < 3 * low, "nine times the rows"
    with CaptureQueriesContext(connection) as captured:
        download(boss, OperatorAction)
    read = [query for query in captured if "SELECT" in query["sql"] and "outbox_operatoraction" in query["sql"]]
    assert len(read) <= 2 + 5000 // 100 + 1
