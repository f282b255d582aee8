"""A mail whose address was wrong: a copy goes to the right one, as a message of its own, and its receipt closes the letter."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape

import msgspec
import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from config.admin.levers import Operator
from config.database.clock import database_now
from notifications.channels.local import Memory
from notifications.mail import content, suppression
from notifications.models import Delivery
from outbox.letters import redelivery
from outbox.letters.edits import SAME, examine, mark_of, requeue_copy, text_of
from outbox.letters.models import DeadLetter
from outbox.models import OutboxMessage
from tests.notifications.post import go, paid

WRONG, RIGHT = "ada@exampel.com", "ada@example.com"


def refused(handler) -> DeadLetter:
    suppression.suppress({WRONG: ("hard_bounce", "550 no such user")}, database_now())
    paid(WRONG)
    assert go(handler) == 0
    return DeadLetter.objects.get()


def faults(letter: DeadLetter, text: str) -> list[tuple[str, str]]:
    return [(fault.path, fault.text) for fault in examine(letter, text, database_now()).faults]


def test_a_mail_goes_to_the_right_address_under_its_own_key(email):
    letter = refused(email)
    text = text_of(letter).replace(WRONG, RIGHT)
    assert faults(letter, text) == []
    assert requeue_copy(letter.pk, text, 0, Operator("ann"), "the customer called").state == "waiting"
    assert go(email) == 1
    [(key, mail)] = Memory.sent
    first = OutboxMessage.objects.get(pk=letter.topic_id)
    second = OutboxMessage.objects.exclude(pk=first.pk).get()
    assert (key, mail.to) == (str(second.pk), RIGHT)
    before, after = msgspec.json.decode(first.payload), msgspec.json.decode(second.payload)
    assert after == {**before, "to": RIGHT, "headers": after["headers"]}
    assert after["headers"]["Message-ID"] != before["headers"]["Message-ID"]
    redelivery.look_after(database_now())
    letter.refresh_from_db()
    assert (letter.status, letter.carrier) == ("resolved", second.pk)
    assert Delivery.objects.get().message_id == second.pk


def test_its_handler_checks_the_copy_and_order_and_event_are_locked(email):
    letter = refused(email)
    text = text_of(letter)
    ((path, said),) = faults(letter, text.replace(WRONG, "nobody at all"))
    assert path == "to"
    assert said.startswith("it is not one bare address")
    order = msgspec.json.decode(text)["order_id"]
    assert [path for path, _ in faults(letter, text.replace(WRONG, RIGHT).replace(order, "another"))] == ["order_id"]
    assert [path for path, _ in faults(letter, text.replace(WRONG, RIGHT).replace("order.paid", "order.x"))] == [
        "event_type"
    ]
    ((missing, said),) = faults(letter, text.replace('"subject"', '"object"'))
    assert (missing, said) == ("subject", "is missing.")


def test_all_that_is_wrong_with_a_mail_is_said_at_once(email):
    letter = refused(email)
    mail = msgspec.json.decode(letter.payload)
    mail |= {"to": "Ada@EXAMPLE.com", "from": "me", "subject": "a\nb", "text": 7, "headers": {"To": "x", "Date": 1}}
    mail["html"] = 8  # left out it would be made of the text
    found = dict(faults(letter, msgspec.json.encode(mail).decode()))
    assert set(found) == {"to", "from", "subject", "text", "headers[...]", "html"}
    assert found["to"].startswith("the recipient is not in its normal form")
    assert found["text"] == "must be a text, not a whole number. You wrote “7”."


@pytest.mark.parametrize(
    "change",
    [
        {}, {"to": "x"}, {"to": 7}, {"from": ""}, {"subject": "=?utf-8?q?x?="}, {"text": None}, {"html": []}, {"headers": []},
        {"headers": {"to": "x"}}, {"headers": {"X": "a\nb"}}, {"headers": {"X": 1}}, {"order_id": 7}, {"event_type": None},
        {"more": 1},
    ],
)  # fmt: skip
def test_a_mail_has_faults_exactly_when_it_cannot_be_read(change):
    mail = (
        content.complete({"to": "ada@example.com", "subject": "s", "text": "t"}, "k", datetime(2026, 1, 1, tzinfo=UTC))
        | change
    )
    for payload in (mail, {name: value for name, value in mail.items() if name not in change}):
        found = content.faults(payload)
        try:
            content.decode(msgspec.json.encode(payload))
        except ValueError:
            assert found, payload
        else:
            assert found == []
    assert content.faults([mail]) == ["a mail is a JSON object"]


# -- in form fields ----------------------------------------------------------------------------------------
WHY = "the customer called"


class Editor:
    """Somebody who edits one letter in its form, as a browser sends it."""

    def __init__(self, letter: DeadLetter) -> None:
        self.client = Client()
        self.client.force_login(User.objects.create_superuser("boss"))
        self.url = reverse("admin:outbox_deadletter_edit", args=[letter.pk])
        self.client.post(self.url, {"deed": "reveal", "reason": WHY})
        self.html = self.client.get(self.url).content.decode()

    def given(self) -> dict[str, str]:
        """What stands in the form of the page."""
        fields = {
            name: unescape(text)
            for name, text in [
                *re.findall(r'<input type="(?:text|hidden)"[^>]* name="([^"]+)" value="([^"]*)"', self.html),
                *re.findall(r'<textarea [^>]*name="([^"]+)"[^>]*>\n(.*?)</textarea>', self.html, re.DOTALL),
            ]
        }
        return {**fields, "make": re.search(r'name="make" value="(.)" checked', self.html)[1], "why": WHY}

    def send(self, action: str, **changed: str):
        texts = {name: text.replace("\n", "\r\n") for name, text in {**self.given(), **changed}.items()}
        answer = self.client.post(self.url, {**texts, "deed": action})
        self.html = answer.content.decode()
        return answer

    @property
    def mail(self) -> dict[str, str]:
        return msgspec.json.decode(self.given()["text"])


def test_a_mail_is_corrected_in_its_fields_and_the_order_keeps_its_address(email):
    letter = refused(email)
    editor = Editor(letter)
    assert "The order keeps its address: its later mails go there." in editor.html
    assert "sw-wrong" not in editor.html
    assert "errornote" not in editor.html
    assert editor.given()["field:$.to"] == WRONG
    before = editor.mail
    editor.send("check", **{"field:$.to": "ada@EXAMPLE.com"})
    assert editor.mail == {**before, "to": RIGHT}, "and nothing else"
    assert editor.send("requeue").status_code == 302
    assert go(email) == 1
    assert Memory.sent[0][1].to == RIGHT
    paid(WRONG)
    assert go(email) == 0, "another mail still goes to the order's address"


def test_html_is_made_from_a_changed_text_or_left(email):
    letter = refused(email)
    editor = Editor(letter)
    before = editor.mail
    changed = {"field:$.to": RIGHT, "field:$.text": "Dear Ada,\n\nsorry."}
    editor.send("check", **changed)
    assert editor.mail["html"] == "<p>Dear Ada,</p>\n<p>sorry.</p>\n"
    editor.send("check", make="0")
    assert (editor.mail["html"], editor.given()["make"]) == (before["html"], "0")
    assert editor.mail["text"] == "Dear Ada,\n\nsorry."
    editor.send("check", make="1")
    assert editor.send("requeue").status_code == 302
    go(email)
    assert Memory.sent[0][1].html == "<p>Dear Ada,</p>\n<p>sorry.</p>\n"


def test_what_was_changed_in_the_fields_after_the_check_is_shown_first(email):
    editor = Editor(refused(email))
    editor.send("check", **{"field:$.to": RIGHT})
    editor.send("requeue", **{"field:$.subject": "Another one"})
    assert "The text was changed after it was checked." in editor.html
    assert editor.mail["subject"] == "Another one"
    assert not OutboxMessage.objects.filter(state="pending").exists()


def test_the_json_may_be_edited_beside_the_fields_but_not_to_another_value(email):
    editor = Editor(refused(email))
    text = editor.given()["text"].replace(WRONG, RIGHT)
    editor.send("check", text=text)
    assert editor.given()["field:$.to"] == RIGHT
    editor.send("check", text=text.replace(RIGHT, "json@example.com"), **{"field:$.to": "field@example.com"})
    assert "Was changed in the form and in the JSON, to two values." in editor.html
    assert "Requeue the copy" not in editor.html
    other = text.replace(RIGHT, "json@example.com")
    shown, checked = {"shown:$.to": mark_of(WRONG)}, mark_of(other)
    editor.send("requeue", text=other, **{"field:$.to": "field@example.com", "checked": checked, **shown})
    assert "to two values" in editor.html
    assert not OutboxMessage.objects.filter(state="pending").exists()
    editor.send("requeue", text=other, **{"field:$.to": "json@example.com", "checked": checked, **shown})
    assert OutboxMessage.objects.filter(state="pending").exists(), "without the contradiction it goes"


def test_a_form_without_a_change_is_refused_and_nothing_is_wrong_at_first(email):
    editor = Editor(refused(email))
    for sign in (SAME, "Why the letter is not taken as it is"):
        assert sign not in editor.html
    editor.send("check")
    assert SAME in editor.html
    assert "Requeue the copy" not in editor.html
    assert editor.send("requeue").status_code == 200
    assert not OutboxMessage.objects.filter(state="pending").exists()


def test_a_text_that_is_kept_for_a_reveal_is_shown_as_it_was_typed(email):
    editor = Editor(refused(email))
    typed = editor.given()["text"].replace("Order", "Your order")
    assert typed != editor.given()["text"]
    editor.send("reveal", text=typed, reason=WHY)
    assert editor.given()["text"] == typed, "its HTML is made when the form is sent"


def test_faults_stand_at_their_fields(email):
    editor = Editor(refused(email))
    editor.send("check", **{"field:$.to": "nobody at all", "field:$.subject": ""})
    assert (
        'id="id_field1" name="field:$.to" value="nobody at all" autocomplete="off" aria-invalid="true"' in editor.html
    )
    assert editor.html.count("is not one bare address") == 1, "at its field, and nowhere else"
    assert "1 thing is wrong" in editor.html
    assert editor.given()["field:$.to"] == "nobody at all"


def test_the_mail_of_another_service_says_whose_address_stays(email):
    letter = refused(email)
    mail = msgspec.json.decode(letter.payload)
    del mail["order_id"]
    DeadLetter.objects.filter(pk=letter.pk).update(payload=msgspec.json.encode(mail))
    assert "Whoever promised it keeps the address that they have." in Editor(letter).html
