"""Searching a list by the beginning of a key: after the whole key, at most a page, by an index, never of what is hidden."""

import pytest
from django.contrib.admin import site
from django.db import models
from django.utils import timezone

from buffer.ledger.models import InventoryItem
from config.admin.pages import ReadOnlyAdmin
from config.admin.search import beginning_with
from config.database.clock import database_now
from config.fields import IdentifierField
from notifications.orders.models import Order
from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import list_of
from tests.notifications.conftest import order as order

pytestmark = pytest.mark.django_db


def items(*names):
    now = timezone.now()
    InventoryItem.objects.bulk_create(
        InventoryItem(pk=name, source_partition=0, source_offset=0, created_at=now, updated_at=now) for name in names
    )


def shown(client, model, query, words):
    html = client.get(list_of(model), {"q": query}).content.decode()
    return [word for word in words if f">{word}<" in html], html


NAMES = ["ab", "abc", "abcd", "abC", "abc%", "abc_", "abcÿ", "abd", "xabc"]


def test_bytes_are_compared_and_no_sign_stands_for_others(boss):
    items(*NAMES)
    for text in ("abc", "abC", "abc%", "abc_", "abcÿ", "xab", "zzz"):
        begun = beginning_with(InventoryItem.objects.all(), "pk", text)
        assert set(begun) == {name for name in NAMES if name.startswith(text)}, text
    assert beginning_with(InventoryItem.objects.all(), "pk", "ab") == []


def test_the_whole_key_comes_first_and_a_beginning_is_said(boss):
    items("shoe", "shoe-1", "shoe-2", "hat")
    assert shown(boss, InventoryItem, "shoe", ["shoe", "shoe-1", "shoe-2", "hat"])[0] == ["shoe"]
    names, html = shown(boss, InventoryItem, "sho", ["shoe", "shoe-1", "shoe-2", "hat"])
    assert names == ["shoe", "shoe-1", "shoe-2"]
    assert "Only what begins with “sho”." in html
    assert "the whole key, then its beginning" in shown(boss, InventoryItem, "zzz", [])[1]


def test_no_more_than_a_page_is_found(boss):
    items(*(f"n-{number:03d}" for number in range(60)))
    names, html = shown(boss, InventoryItem, "n-0", [f"n-{number:03d}" for number in range(60)])
    assert len(names) == 50
    assert "what begins with “n-0”, the first 50" in html


def test_an_id_and_a_number_of_an_order_are_found_by_their_beginning(boss):
    now = database_now()
    order = Order.objects.create(
        user_email="tom@example.com", total_amount=1, currency="EUR", created_at=now, updated_at=now
    )
    number = str(order.pk)[-10:]
    for text in (str(order.pk)[:20], str(order.pk).replace("-", "")[:20].upper(), number[:6], f"#{number[:6].upper()}"):
        assert str(order.pk) in shown(boss, Order, text, [])[1], text
    for text in ("tom", "tom@example", "%", "0_0"):
        assert str(order.pk) not in shown(boss, Order, text, [])[1], text


def test_no_id_is_looked_for_by_what_has_its_dashes_elsewhere(order, django_assert_num_queries):
    digits = order.pk.hex[:8]
    for text in (digits, f"{digits}-", str(order.pk)[:20].upper(), str(order.pk)):
        assert beginning_with(Order.objects.all(), "id", text) == [order.pk], text
    with django_assert_num_queries(0):
        for text in (f"{digits[0]}-{digits[1:]}", f"{digits}--", f"-{digits}", f"{digits[:4]}-"):
            assert beginning_with(Order.objects.all(), "id", text) == [], text


def test_a_letter_is_found_by_the_beginning_of_what_it_is_about(boss):
    now = database_now()
    DeadLetter.objects.create(group_id=1, source="ledger", step="decode", reason="r", business_key="A001-77", created_at=now, updated_at=now)  # fmt: skip
    assert "A001-77" in shown(boss, DeadLetter, "A001", [])[1]
    assert "A001-77" not in shown(boss, DeadLetter, "a001", [])[1]


def test_what_is_searched_by_its_beginning_begins_an_index_and_compares_bytes():
    for model, page in site._registry.items():
        for rows, name in page.ranges() if isinstance(page, ReadOnlyAdmin) else ():
            field = model._meta.pk if name == "pk" else model._meta.get_field(name)
            assert isinstance(field, IdentifierField | models.UUIDField), (model, name)
            fixed = {condition.lhs.target.name for condition in rows.query.where.children}
            keys = [index.fields for index in model._meta.indexes]
            keys += [list(constraint.fields) for constraint in model._meta.constraints if hasattr(constraint, "fields")]
            there = any({*key[: len(fixed)]} == fixed and key[len(fixed) :][:1] == [name] for key in keys)
            assert there or (field.primary_key and not fixed), (model, name)
            assert name not in ("user_email", "address", "recipient"), "hidden values are not found by guessing"
