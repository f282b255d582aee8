"""An order is found by what a customer reads out: the number in the mail, the address in any case; by an index."""

from __future__ import annotations

import uuid

import pytest
from django.db import connection

from config.database.clock import database_now
from notifications.mail.content import short
from notifications.orders import changes
from notifications.orders.models import Order
from tests.notifications.conftest import new_order

pytestmark = pytest.mark.django_db


def test_the_database_counts_the_same_digits_as_a_mail(order):
    found = Order.objects.get(pk=order.pk)
    assert found.number_in_mail == short(order.pk)
    assert list(Order.objects.numbered(short(order.pk).lower())) == [order]


def test_an_address_is_found_in_any_case_and_the_api_compares_exactly(db):
    mine = changes.create("Ada.Lovelace@Example.com", 100, "EUR", database_now())
    new_order()
    assert Order.objects.get(pk=mine.pk).user_email == "Ada.Lovelace@example.com"
    assert list(Order.objects.of_any_case("ADA.LOVELACE@example.com")) == [mine]
    assert not Order.objects.of("ada.lovelace@example.com")
    assert list(Order.objects.of("Ada.Lovelace@example.com")) == [mine]


@pytest.mark.django_db(transaction=True)
def test_a_search_is_a_look_into_an_index(db):
    now = database_now()
    Order.objects.bulk_create(
        Order(user_email=f"Ada{n}@example.com", total_amount=1, currency="EUR", created_at=now, updated_at=now)
        for n in range(6000)
    )
    with connection.cursor() as cursor:
        cursor.execute(
            "ANALYZE TABLE notifications_order" if connection.vendor == "mysql" else "ANALYZE notifications_order"
        )
    assert "order_number" in Order.objects.numbered(short(uuid.uuid4())).explain()
    assert "order_address" in Order.objects.of_any_case("ada7@example.com").explain()
    assert "order_address" in Order.objects.of("Ada7@example.com").newest_first()[:20].explain()
