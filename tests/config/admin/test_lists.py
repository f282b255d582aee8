"""Lists: every row once, nothing counted, the same queries for ten rows and for a hundred."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.contrib.admin import site
from django.db import connection

from buffer.events.models import Batch, BufferedEvent
from config.admin.lists import Keyset
from config.admin.pages import ReadOnlyAdmin
from config.database.clock import database_now
from outbox.audit_log.models import OperatorAction
from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import list_of, page_of, queries_of, walk
from tests.conftest import order

pytestmark = pytest.mark.django_db
SUBJECT = r"V: (s\d{3})"


def act(number, **more):
    now = database_now()
    OperatorAction.objects.bulk_create(
        OperatorAction(actor_name="a", verb="v", subject=f"s{index:03d}", reason="r", result="done", **{
            # Five share each moment: ties must neither repeat nor vanish at the edge of a page.
            "created_at": now - timedelta(seconds=index // 5), **more})
        for index in range(number)
    )  # fmt: skip


def test_paging_shows_every_row_once_in_both_directions(boss):
    act(117)
    pages, last = walk(boss, list_of(OperatorAction), "next", SUBJECT)
    assert [len(page) for page in pages] == [50, 50, 17]
    assert len({row for page in pages for row in page}) == 117
    back, _ = walk(boss, last, "prev", SUBJECT)
    assert back == pages[::-1]


@pytest.mark.skipif(connection.vendor != "mysql", reason="MySQL alone plans a list of keys once for each index")
def test_the_rows_of_a_page_are_read_by_their_keys_and_no_other_index_is_tried(boss, rows):
    asked = queries_of(boss, list_of(DeadLetter))
    read = [sql for sql in asked if " IN (" in sql and "FROM `outbox_deadletter`" in sql]
    assert read
    assert all("FROM `outbox_deadletter` FORCE INDEX (`PRIMARY`)" in sql for sql in read)


def test_a_broken_cursor_starts_again(boss):
    act(3)
    response = boss.get(f"{list_of(OperatorAction)}?before=nonsense~", follow=True)
    assert response.status_code == 200


def test_keys_travel_through_a_url_unchanged(db):
    act(1)
    row = OperatorAction.objects.get()
    by_time = Keyset("created_at")
    assert by_time.page(OperatorAction.objects.all(), by_time.cursor(row), False, 5) == ([], False)
    assert by_time.page(OperatorAction.objects.all(), by_time.cursor(row), True, 5) == ([], False)


def test_no_list_counts_and_no_list_asks_per_row(boss, ingest, records):
    urls = [*map(list_of, (Batch, BufferedEvent, DeadLetter, OperatorAction)), "/admin/"]
    ingest(records(order("A0"), b"broken"))
    act(2)
    few = {url: queries_of(boss, url) for url in urls * 2}  # what is asked once a process is known from now on
    ingest(records(*[order(f"A{number}", f"WH-{number}") for number in range(1, 45)]))
    ingest(records(*[b"broken %d" % number for number in range(40)]))
    act(40)
    for url in urls:
        many = queries_of(boss, url)
        assert len(many) == len(few[url]), url
        if url != "/admin/":
            assert not [sql for sql in many if "COUNT(" in sql.upper()]


def test_a_page_asks_the_same_however_much_waits(boss, ingest, records, rows):
    boss.get(page_of(rows.bucket))
    few = len(queries_of(boss, page_of(rows.bucket)))
    ingest(records(*[order(f"D{number}") for number in range(30)]))
    assert len(queries_of(boss, page_of(rows.bucket))) == few


def test_exact_search(boss, rows):
    html = boss.get(f"{list_of(BufferedEvent)}?q=C1").content.decode()
    assert page_of(rows.waiting) in html
    assert html.count('class="field-state"') == 1
    assert "Nothing has the key c1" in boss.get(f"{list_of(BufferedEvent)}?q=c1").content.decode()
    place = boss.get(f"{list_of(DeadLetter)}?q={rows.late.position}").content.decode()
    assert page_of(rows.late) in place


def test_a_list_narrowed_by_a_link_says_so(boss, rows):
    html = boss.get(f"{list_of(Batch)}?stream=transfer-requests&location_id=WH-2").content.decode()
    assert "Only transfer-requests, WH-2." in html
    assert str(rows.parked.pk) in html
    assert str(rows.sent.pk) not in html


def test_letters_of_a_group_are_named_after_it(boss, rows):
    html = boss.get(f"{list_of(DeadLetter)}?group__id__exact={rows.late.group_id}").content.decode()
    assert f"Only “{rows.late.group.title}”." in html


def test_filters(boss, rows):
    closed = boss.get(f"{list_of(DeadLetter)}?state=resolved").content.decode()
    assert page_of(rows.late) not in closed
    assert page_of(rows.parked) in boss.get(f"{list_of(Batch)}?state=parked").content.decode()
    assert boss.get(f"{list_of(Batch)}?state=%27").status_code == 200
    assert boss.get(f"{list_of(Batch)}?batch_id={uuid4()}").status_code == 200


@pytest.mark.parametrize(
    "lookup", ["payload__contains", "payload", "error__regex", "group__title__startswith", "pk__gt"]
)
def test_hidden_text_cannot_be_guessed_through_the_address(reader, rows, lookup):
    """A viewer without the right to see payloads once read them letter by letter, by what the list still showed."""
    letters = list_of(DeadLetter)
    answer = reader.get(f"{letters}?{lookup}=a&state=resolved")
    assert (answer.status_code, answer.url) == (302, f"{letters}?state=resolved")
    assert reader.post(f"{letters}csv/?{lookup}=a").status_code == 302
    assert reader.get(f"{letters}?group__id__exact={rows.late.group_id}").status_code == 200


def test_a_parameter_that_a_list_does_not_have_is_named_and_the_list_is_shown(boss, rows):
    """It was 400, "its session has ended"."""
    for model, page in site._registry.items():
        answer = boss.get(f"{list_of(model)}?groups__permissions__x=open", follow=True)
        assert answer.status_code == 200, model
        assert not isinstance(page, ReadOnlyAdmin) or answer.redirect_chain == [(f"{list_of(model)}?", 302)], model
    letters = boss.get(f"{list_of(DeadLetter)}?status=open&state=requeued", follow=True)
    assert letters.redirect_chain == [(f"{list_of(DeadLetter)}?state=requeued", 302)]
    (said,) = map(str, letters.context["messages"])
    assert said == "This list has no filter “status”. It has state, source, when. The list is shown without it."


def test_a_value_that_a_filter_does_not_have_is_named_and_the_list_is_shown(boss, rows):
    for query, words in (
        ("state=closed", "“closed” is no choice of “state”; there are open, "),
        ("when=noon", "“noon” is no choice of “when”; there are all, hour"),
        ("group__id__exact=x", "The address held a value that cannot be read. The list is shown without it."),
    ):
        answer = boss.get(f"{list_of(DeadLetter)}?{query}", follow=True)
        assert answer.status_code == 200
        assert words in answer.content.decode()


def test_every_list_takes_only_the_lookups_that_it_names():
    for model, page in site._registry.items():
        if isinstance(page, ReadOnlyAdmin):
            fields = {field.name for field in model._meta.get_fields()}
            named = {*page.links, *(found.parameter_name for found in page.list_filter)}
            assert {name for name in fields if page.lookup_allowed(name, "x")} <= named
            assert not page.lookup_allowed(f"{model._meta.pk.name}__startswith", "x")
