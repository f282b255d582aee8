"""Somebody calls about an order: pages call it what its mails do, and the search finds its letter, with the lever for who may."""

from __future__ import annotations

import pytest
from django.urls import reverse

from config.flows import called, promise_in_words, source_in_words
from notifications.channels.local import Memory
from notifications.mail.content import short
from notifications.orders.models import Order
from outbox.channels.handlers import Outcome
from outbox.letters.models import DeadLetter
from outbox.models import OutboxMessage
from tests.config.admin.conftest import client_with, lever_of, list_of, page_of
from tests.notifications.post import email, go, paid

__all__ = ["email"]
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def letter(email) -> DeadLetter:
    """Of a mail that was refused."""
    paid()
    Memory.script.append(Outcome("permanent", "no such mailbox"))
    go(email)
    return DeadLetter.objects.get()


def seen(client, url: str) -> str:
    return client.get(url).content.decode()


def test_an_order_has_the_number_of_its_mails_wherever_it_is_named(boss, letter, django_assert_max_num_queries):
    number = f"order {short(Order.objects.get().pk)}"
    message = OutboxMessage.objects.get()
    for url in (
        list_of(DeadLetter), page_of(letter), f"{list_of(DeadLetter)}?group__id__exact={letter.group_id}",
        page_of(letter.group), f"/admin/find/?q={short(Order.objects.get().pk)}",
    ):  # fmt: skip
        assert number in seen(boss, url), url
    for url in (list_of(OutboxMessage), page_of(message)):
        assert f"Mail: paid, {number}" in seen(boss, url), url
    with django_assert_max_num_queries(0):
        assert called(message.aggregate) == number
        assert promise_in_words("order.paid", message.aggregate) == f"Mail: paid, {number}"


def test_what_no_flow_has_words_for_stays_as_it_is():
    assert called("A001") == "A001"
    assert called("order:nobody") == "order:nobody"
    assert promise_in_words("stock.low", "stock:7") == "stock.low, stock:7"
    assert (source_in_words("outbox"), source_in_words("gone")) == ("Outbox", "gone")


def test_the_letters_of_one_group_do_not_repeat_its_cause(boss, letter):
    assert "column-cause" in seen(boss, list_of(DeadLetter))
    narrowed = seen(boss, f"{list_of(DeadLetter)}?group__id__exact={letter.group_id}")
    assert "column-cause" not in narrowed
    assert "no such mailbox" in narrowed  # above them
    assert f"<h1>Outbox: {letter.group}</h1>" in seen(boss, page_of(letter.group))


def test_a_requeue_of_a_mail_speaks_of_the_mail(boss, letter):
    page = seen(boss, lever_of(DeadLetter, "requeue", letter))
    assert "The mail is sent again, to the same address and with the same text." in page
    assert "original position" not in page
    assert "Letters chosen at" in page
    assert "never requeued" in seen(boss, page_of(letter))
    boss.post(lever_of(DeadLetter, "requeue", letter), {"id": str(letter.pk), "reason": "mailbox was made"})
    page = seen(boss, page_of(letter))
    assert "Requeued, waiting for proof" in page
    assert "requeued once" in page
    assert "never requeued" not in page


# -- The search of somebody who is on the telephone ----------------------------------------------------------
SEEN = ("view_deadletter", "view_order")


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
