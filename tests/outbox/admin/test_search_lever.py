"""The search offers to requeue an open letter at once, to whoever may; an order's id and number find its letters."""

from __future__ import annotations

import pytest
from django.urls import reverse

from notifications.channels.local import Memory
from notifications.mail.content import short
from notifications.orders.models import Order
from outbox.channels.handlers import Outcome
from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import client_with, page_of
from tests.notifications.post import email, go, paid

__all__ = ["email"]
pytestmark = pytest.mark.django_db(transaction=True)
SEEN = ("view_deadletter", "view_order")


@pytest.fixture
def letter(email) -> DeadLetter:
    """Of a mail that was refused."""
    paid()
    Memory.script.append(Outcome("permanent", "no such mailbox"))
    go(email)
    return DeadLetter.objects.get()


def found(client, key: str) -> str:
    return client.get(reverse("admin:find"), {"q": key}, follow=True).content.decode()


def test_an_order_is_found_with_its_letter_by_id_and_number(boss, letter):
    order = Order.objects.get()
    lever = f"{reverse('admin:outbox_deadletter_lever', args=['requeue'])}?id={letter.pk}"
    for key in (str(order.pk), short(order.pk), f"#{short(order.pk).lower()}"):
        html = found(boss, key)
        assert page_of(order) in html
        assert page_of(letter) in html
        assert f'href="{lever}"' in html


def test_letters_are_found_by_their_correlation_id(boss, letter):
    DeadLetter.objects.update(correlation_id="c0ffee-17")
    assert boss.get(reverse("admin:find"), {"q": "c0ffee-17"}).url == page_of(letter)
    assert "Nothing has the key" in found(boss, "c0ffee-1")


def test_without_the_right_no_lever_is_offered(letter):
    order = str(Order.objects.get().pk)
    html = found(client_with(*SEEN), order)
    assert page_of(letter) in html
    assert "lever/requeue" not in html
    assert "lever/requeue" in found(client_with(*SEEN, "requeue_deadletter"), order)


def test_a_closed_letter_is_found_without_a_lever(boss, letter):
    DeadLetter.objects.update(status="resolved")
    html = found(boss, str(Order.objects.get().pk))
    assert page_of(letter) in html
    assert "lever/requeue" not in html


def test_the_order_of_somebody_else_has_no_part_in_it(boss, letter):
    paid("bela@example.com")
    other = Order.objects.latest("pk")
    assert page_of(letter) not in found(boss, str(other.pk))
    assert page_of(letter) not in found(boss, short(other.pk))
