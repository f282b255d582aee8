"""The page that edits a copy: who may, what it shows, what it checks without writing, and what became of it."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from buffer.models import InventoryTracking
from config.admin.levers import Operator
from config.payload import digest
from outbox.letters import levers
from outbox.letters.edits import requeue_copy, text_of
from outbox.letters.models import DeadLetter, PayloadRevision
from outbox.models import OperatorAction
from tests.buffer.ledger.conftest import RECEIVED, quantities, record, stocks, write
from tests.outbox.audit_log.test_reveal import client_of

pytestmark = pytest.mark.django_db
WHY = "The supplier confirmed 12"
SECRET = "zq-planted-7f3a"


@pytest.fixture
def letter() -> DeadLetter:
    stocks(A=0, B=0)
    lines = [{"stockId": "A", "quantity": 24, "note": SECRET}, {"stockId": "B"}]
    write(record((RECEIVED, {"purchaseOrderId": "PO-1", "items": lines})))
    return DeadLetter.objects.get()


@pytest.fixture
def senior() -> Client:
    return client_of("Senior support")


def page(letter: DeadLetter) -> str:
    return reverse("admin:outbox_deadletter_edit", args=[letter.pk])


def change(letter: DeadLetter) -> str:
    return reverse("admin:outbox_deadletter_change", args=[letter.pk])


def opened(client: Client, letter: DeadLetter) -> None:
    answer = client.post(page(letter), {"deed": "reveal", "reason": "The supplier called"})
    assert (answer.status_code, answer.url) == (302, page(letter))


def fixed(letter: DeadLetter) -> str:
    return text_of(letter).replace('"stockId": "B"', '"stockId": "B", "quantity": 12')


def post(client: Client, letter: DeadLetter, action: str, text: str, **more: str):
    """As a browser sends it: lines end with CRLF."""
    given = {
        "deed": action,
        "text": text.replace("\n", "\r\n"),
        "why": WHY,
        "seen": "0",
        "checked": digest(text.encode()),
    }
    return client.post(page(letter), {**given, **more})


def fields(html: str) -> dict[str, str]:
    return dict(re.findall(r'type="hidden" name="(seen|checked)" value="([^"]*)"', html))


def untouched(letter: DeadLetter) -> bool:
    status = DeadLetter.objects.get(pk=letter.pk).status
    return status == "open" and not PayloadRevision.objects.exists() and not InventoryTracking.objects.exists()


# -- who may, and what it shows ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("role", "code"), [("Support", 403), ("Auditor", 403), ("Senior support", 200), ("Operator", 200)]
)
def test_only_who_has_both_rights_opens_it(letter, role, code):
    client = client_of(role)
    answer = client.get(page(letter))
    assert answer.status_code == code
    assert not OperatorAction.objects.exists(), "looking is no deed"
    assert post(client, letter, "requeue", fixed(letter)).status_code == code
    refused = OperatorAction.objects.filter(verb="refused", result="needs the right “edit and requeue dead letters”")
    assert refused.count() == (code == 403)
    assert untouched(letter)
    if code == 403:
        assert "The role Senior support has it." in answer.content.decode()
        assert refused.get().subject_id == str(letter.pk)


def test_without_the_right_to_see_payloads_nobody_edits_one(letter):
    user = User.objects.create_user("half", is_staff=True)
    role = Group.objects.get(name="Senior support")
    user.user_permissions.set(role.permissions.exclude(codename="view_payload"))
    client = Client()
    client.force_login(user)
    for answer in (
        client.get(page(letter)),
        post(client, letter, "requeue", fixed(letter)),
        client.post(page(letter), {"deed": "reveal", "reason": WHY}),
    ):
        assert answer.status_code == 403
        assert "see payloads" in answer.content.decode()
        assert SECRET not in answer.content.decode()
    assert untouched(letter)


def test_it_shows_nothing_before_a_reason_is_given_and_that_is_a_reveal(letter, senior):
    for answer in (
        senior.get(page(letter)),
        senior.post(page(letter), {"deed": "reveal", "reason": "short"}, follow=True),
    ):
        assert SECRET not in answer.content.decode()
    assert not OperatorAction.objects.exists()
    opened(senior, letter)
    assert SECRET in senior.get(page(letter)).content.decode()
    action = OperatorAction.objects.get()
    assert (action.verb, action.subject_id, action.reason) == ("reveal", str(letter.pk), "The supplier called")


def test_without_a_reveal_a_post_neither_shows_nor_requeues_and_keeps_the_text(letter, senior):
    text = '{"purchaseOrderId": "PO-1", "items": [{"stockId": "A", "quantity": 1}]}'
    for action in ("check", "requeue"):
        html = post(senior, letter, action, text).content.decode()
        assert SECRET not in html
        assert "PO-1&quot;" in html, "what was typed is kept"
    assert untouched(letter)
    again = senior.post(page(letter), {"deed": "reveal", "reason": WHY, "text": text, "why": WHY, "seen": "0"})
    html = again.content.decode()
    assert "PO-1&quot;" in html
    assert "What changes" in html


# -- checking ------------------------------------------------------------------------------------------
def test_at_first_it_says_why_the_letter_is_not_taken_and_nothing_is_an_error(letter, senior):
    opened(senior, letter)
    html = senior.get(page(letter)).content.decode()
    assert "<b>Why the letter is not taken as it is</b><br><b>Line 5, items[1].quantity</b>" in html
    for sign in ("sw-wrong", "aria-invalid", "errornote", 'role="alert"'):
        assert sign not in html
    assert "Requeue the copy" not in html
    locked = html.partition("New message")[2].partition("</dl>")[0]
    assert "purchaseOrderId" in locked
    assert letter.position in locked


def test_a_check_says_faults_and_difference_and_writes_nothing(letter, senior):
    opened(senior, letter)
    wrong = fixed(letter).replace('"quantity": 12', '"quantity": "twelve"')
    html = post(senior, letter, "check", wrong, why="").content.decode()
    assert "The copy cannot be requeued yet: 1 thing is wrong and the reason is missing." in html
    assert "<b>Line 5, items[1].quantity</b> must be a whole number, not a text. You wrote “twelve”." in html
    assert "<ins>" in html
    assert "Requeue the copy" not in html
    good = post(senior, letter, "check", fixed(letter)).content.decode()
    assert "stock A: +24, stock B: +12" in good
    assert "Requeue the copy" in good
    assert untouched(letter)
    assert OperatorAction.objects.count() == 1, "the reveal"


def test_a_reason_is_asked_before_the_copy_goes(letter, senior):
    opened(senior, letter)
    for why in ("", "short"):
        html = post(senior, letter, "requeue", fixed(letter), why=why).content.decode()
        assert 'id="sw-problem"' in html
        assert "Requeue the copy" not in html
    assert untouched(letter)


def test_what_was_not_checked_is_shown_first(letter, senior):
    opened(senior, letter)
    html = post(senior, letter, "requeue", fixed(letter), checked=digest(b"something else")).content.decode()
    assert "The text was changed after it was checked." in html
    assert untouched(letter)
    sent = post(senior, letter, "requeue", fixed(letter), **fields(html))
    assert sent.status_code == 302


# -- the action ------------------------------------------------------------------------------------------
def test_from_the_lever_to_the_proof(letter, senior):
    html = senior.get(change(letter)).content.decode()
    assert f'href="{page(letter)}"' in html
    opened(senior, letter)
    checked = post(senior, letter, "check", fixed(letter)).content.decode()
    answer = post(senior, letter, "requeue", fixed(letter), **fields(checked))
    assert (answer.status_code, answer.url) == (302, change(letter))
    assert quantities() == {"A": 24, "B": 12}
    html = senior.get(change(letter)).content.decode()
    assert "The copy had its effect: recorded: PURCHASE_ORDER PO-1" in html
    assert "Edited copy 1" in html
    assert f"“{WHY}”" in html
    assert "Edit and requeue…" not in html


def test_the_difference_on_the_letters_page_is_masked_until_it_is_revealed(letter, senior):
    text = fixed(letter).replace(SECRET, f"{SECRET}-other")
    requeue_copy(letter.pk, text, 0, Operator("ann"), WHY)
    stranger = client_of("Operator")
    html = stranger.get(change(letter)).content.decode()
    assert "Edited copy 1" in html
    assert SECRET not in html
    assert "<ins>" in html, "what may be read differs, too"
    opened(senior, letter)  # closed by now: its page reveals it
    assert f"{SECRET}<ins>-other</ins>" in senior.get(change(letter)).content.decode()


def test_who_comes_second_keeps_the_text_and_is_told(letter, senior):
    opened(senior, letter)
    checked = post(senior, letter, "check", fixed(letter)).content.decode()
    requeue_copy(letter.pk, fixed(letter), 0, Operator("Bob"), WHY)
    mine = fixed(letter).replace("12", "13")
    html = post(senior, letter, "requeue", mine, **fields(checked)).content.decode()
    assert "Somebody was faster. Bob: edit and requeue, " in html
    assert "&quot;quantity&quot;: 13" in html
    assert "Requeue the copy" not in html
    assert quantities() == {"A": 24, "B": 12}
    assert PayloadRevision.objects.count() == 1


def test_an_edit_that_came_between_is_told_once_although_the_letter_is_open_again(letter, senior):
    opened(senior, letter)
    PayloadRevision.objects.create(letter=letter.pk, number=1, payload=b"{}", created_at=letter.created_at)
    html = post(senior, letter, "check", fixed(letter)).content.decode()
    assert "Somebody was faster." in html
    assert "Requeue the copy" not in html
    html = post(senior, letter, "check", fixed(letter), **fields(html)).content.decode()
    assert "Requeue the copy" in html


def test_the_page_says_why_a_letter_cannot_be_edited(letter, senior):
    levers.pull("discard", [letter.pk], Operator("Bob"), "nobody wants it")
    html = senior.get(page(letter)).content.decode()
    assert "Bob: discard" in html
    assert "Somebody was faster" not in html
    levers.pull("restore", [letter.pk], Operator("Bob"), "somebody does")
    DeadLetter.objects.filter(pk=letter.pk).update(payload=b"\xff")
    assert "Its payload is no text." in senior.get(page(letter)).content.decode()
    html = senior.get(change(letter)).content.decode()
    assert "Its payload is no text. Not possible now: edit and requeue." in html


def test_the_lever_is_locked_with_right_and_role(letter):
    html = client_of("Support").get(change(letter)).content.decode()
    assert (
        "<b>Edit and requeue</b> needs the right “edit and requeue dead letters”. The role Senior support has it."
        in html
    )


def test_a_letter_that_is_not_there_is_404(senior):
    assert (
        senior.get(reverse("admin:outbox_deadletter_edit", args=["019aa5c1-52e0-7c41-9d0e-7be0b1f6a23c"])).status_code
        == 404
    )
    assert senior.get("/admin/outbox/deadletter/x%00/edit/").status_code == 404


@pytest.mark.parametrize("number", ["", "x", "-1", "9" * 30])
def test_a_strange_number_is_somebody_elses(letter, senior, number):
    opened(senior, letter)
    html = post(senior, letter, "requeue", fixed(letter), seen=number).content.decode()
    assert "Somebody was faster." in html
    assert untouched(letter)


def test_a_page_asks_a_constant_number_of_queries(letter, senior, django_assert_max_num_queries):
    opened(senior, letter)
    with django_assert_max_num_queries(25):
        senior.get(page(letter))
    with django_assert_max_num_queries(25):
        checked = post(senior, letter, "check", fixed(letter)).content.decode()
    post(senior, letter, "requeue", fixed(letter), **fields(checked))
    with django_assert_max_num_queries(25):
        senior.get(change(letter))
