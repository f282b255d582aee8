"""Levers: asked before they are pulled, pulled once, refused without the right, and always written down."""

import getpass
import os
from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from django.contrib.messages import get_messages
from django.test import Client

from buffer.admin.buckets import BucketAdmin
from buffer.events.models import Batch, Bucket, BufferedEvent
from config.admin import levers
from outbox.audit_log.models import OperatorAction
from outbox.groups.models import FailureGroup
from outbox.letters.models import DeadLetter
from tests.config.admin.conftest import client_with, lever_of, list_of, page_of

pytestmark = pytest.mark.django_db
WHY = "the truck leaves at nine"


def pull(client, model, name, *rows, reason=WHY):
    return client.post(lever_of(model, name), {"id": [row.pk for row in rows], "reason": reason})


def said(response):
    return [str(message) for message in get_messages(response.wsgi_request)]


def actions(verb):
    return OperatorAction.objects.filter(verb=verb)


def test_asking_changes_nothing(boss, rows):
    response = boss.get(lever_of(Bucket, "flush", rows.bucket))
    assert response.status_code == 200
    assert b"Flush this warehouse?" in response.content
    rows.bucket.refresh_from_db()
    assert rows.bucket.urged == ""


def test_a_link_with_a_reason_in_it_changes_nothing(boss, rows):
    response = boss.get(lever_of(Bucket, "flush", rows.bucket) + f"&reason={WHY}")
    assert response.status_code == 200
    rows.bucket.refresh_from_db()
    assert rows.bucket.urged == ""
    assert not actions("flush now").filter(reason=WHY).exists()


def test_only_what_is_ready_is_acted_on(boss, rows, monkeypatch):
    """Whatever the lever's function makes of the others: it never gets them."""
    got = []
    flush, hold, release = BucketAdmin.levers
    recorded = replace(flush, act=lambda keys, operator, reason: got.extend(keys) or len(keys))
    monkeypatch.setattr(BucketAdmin, "levers", (recorded, hold, release))
    empty = Bucket.objects.create(stream=rows.bucket.stream, location_id="WH-9")
    response = pull(boss, Bucket, "flush", rows.bucket, empty)
    assert got == [rows.bucket.pk]
    assert said(response)[-1].startswith("Asked for a batch of 1 of 2 warehouses.")


def test_who_may_not_look_may_not_act(rows):
    blind = client_with("flush_bucket")
    assert blind.get(lever_of(Bucket, "flush", rows.bucket)).status_code == 403
    assert pull(blind, Bucket, "flush", rows.bucket).status_code == 403
    rows.bucket.refresh_from_db()
    assert rows.bucket.urged == ""


def test_flush_now_is_written_down_with_who_and_why(boss, rows):
    before = actions("flush now").count()
    response = pull(boss, Bucket, "flush", rows.bucket)
    assert response.status_code == 302
    assert response.url == page_of(rows.bucket)
    rows.bucket.refresh_from_db()
    assert rows.bucket.urged == "manual"
    assert actions("flush now").count() == before + 1
    action = actions("flush now").latest("pk")
    assert (action.actor_name, action.reason) == ("M. Okafor", WHY)
    assert action.actor_number == User.objects.get(username="boss").pk


def test_a_second_click_changes_nothing_and_says_so(boss, rows):
    pull(boss, Bucket, "hold", rows.bucket)
    response = pull(boss, Bucket, "hold", rows.bucket)
    assert said(response)[-1] == "WH-1 is held already. Nothing was changed."
    assert actions("hold").count() == 1


def test_hold_and_release(boss, rows):
    pull(boss, Bucket, "hold", rows.bucket)
    assert Bucket.objects.get(pk=rows.bucket.pk).held
    assert b"release it first" in boss.get(page_of(rows.bucket)).content
    assert said(pull(boss, Bucket, "release", rows.bucket))[-1] == "Released 1 warehouse."
    assert not Bucket.objects.get(pk=rows.bucket.pk).held


def test_withdraw_an_order_before_it_is_claimed(boss, rows):
    response = pull(boss, BufferedEvent, "withdraw", rows.waiting)
    assert said(response) == ["Withdrew 1 order."]
    assert BufferedEvent.objects.get(pk=rows.waiting.pk).status == "discarded"
    page = boss.get(page_of(rows.waiting)).content.decode()
    assert "Withdrawn" in page
    assert "Discarded" not in page
    late = pull(boss, BufferedEvent, "withdraw", rows.done)
    assert said(late)[-1].startswith("Order A1 was sent")
    assert BufferedEvent.objects.get(pk=rows.done.pk).status == "sent"


def test_a_reason_is_required_and_what_was_typed_is_kept(boss, rows):
    response = pull(boss, DeadLetter, "requeue", rows.late, reason="  ")
    assert response.status_code == 200
    assert b"A reason is required." in response.content
    assert b"At least 3 characters" in pull(boss, DeadLetter, "requeue", rows.late, reason="x").content
    short = pull(boss, DeadLetter, "discard", rows.late, reason="no &c")
    assert b"At least 10 characters" in short.content
    assert b"no &amp;c</textarea>" in short.content
    assert b'aria-invalid="true"' in short.content
    assert DeadLetter.objects.get(pk=rows.late.pk).status == "open"


def test_requeue_a_letter(boss, rows):
    response = pull(boss, DeadLetter, "requeue", rows.late)
    assert said(response) == ["Requeued 1 letter."]
    assert DeadLetter.objects.get(pk=rows.late.pk).status == "requeued"
    again = pull(boss, DeadLetter, "requeue", rows.late)
    assert said(again)[-1].startswith("Already requeued")
    assert said(again)[-1].endswith("Nothing was changed.")
    assert actions("requeue").count() == 1
    assert b"There is nothing to do." in boss.get(lever_of(DeadLetter, "requeue", rows.late)).content


def test_only_ready_rows_are_promised_and_pinned(boss, rows):
    pull(boss, DeadLetter, "resolve", rows.late)
    page = boss.get(lever_of(DeadLetter, "discard", rows.late, rows.undecodable)).content.decode()
    assert "Discard this letter?" in page
    assert "Left out" in page
    assert f'name="id" value="{rows.undecodable.pk}"' in page
    assert f'name="id" value="{rows.late.pk}"' not in page


def test_several_at_once_from_the_list_and_back_to_its_filters(boss, rows):
    chosen = [str(rows.late.pk), str(rows.undecodable.pk)]
    data = {"action": "resolve", "_selected_action": chosen, "index": "0"}
    response = boss.post(f"{list_of(DeadLetter)}?state=open", data)
    assert response.status_code == 302
    page = boss.get(response.url)
    assert b"Resolve 2 letters?" in page.content
    data = {"id": chosen, "reason": WHY, "_changelist_filters": "state=open"}
    done = boss.post(response.url, data)
    assert done.url == f"{list_of(DeadLetter)}?state=open"
    assert said(done)[-1] == "Resolved 2 letters."
    assert FailureGroup.objects.get(pk=rows.late.group_id).open_count == 0


def test_the_menu_of_a_list_offers_what_its_reader_may_do(rows, reader):
    some = client_with("view_deadletter", "requeue_deadletter")
    menu = some.get(list_of(DeadLetter)).content.decode()
    assert '<option value="requeue">' in menu
    assert '<option value="discard">' not in menu
    assert 'name="action"' not in reader.get(list_of(DeadLetter)).content.decode()
    tried = some.post(list_of(DeadLetter), {"action": "discard", "_selected_action": [str(rows.late.pk)]})
    assert "lever/discard" not in tried.headers.get("Location", "")


def test_a_refusal_names_its_cause_and_spares_the_others(boss, rows):
    Batch.objects.filter(pk=rows.parked.pk).update(status="sent")
    response = pull(boss, DeadLetter, "discard", rows.refused, rows.late)
    assert said(response)[-1] == f"Discarded 1 of 2 letters. {rows.refused}: the batch is no longer parked."


def test_a_locked_lever_stands_behind_the_cause(reader, rows):
    html = reader.get(page_of(rows.late)).content.decode()
    assert html.count('aria-disabled="true"') == 4  # requeue, edit, discard and reveal
    assert html.index("<h2>Error</h2>") < html.index("<b>Requeue</b> needs the right “requeue dead letters”.")


def test_a_forged_form_is_refused(rows):
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create_superuser("root"))
    response = pull(client, Bucket, "hold", rows.bucket)
    assert response.status_code == 403
    assert b"This form is too old" in response.content
    assert not Bucket.objects.get(pk=rows.bucket.pk).held


@pytest.mark.parametrize("query", ["", "?id=x", "?id=999999999"])
def test_nothing_selected_is_no_error(boss, rows, query):
    assert boss.get(f"{list_of(Bucket)}lever/flush/{query}").status_code in (200, 404)
    assert boss.get(f"{list_of(Bucket)}lever/explode/{query}").status_code == 404


# -- Who pulls a lever by a command -------------------------------------------------------------------------
def test_a_command_is_the_deed_of_its_account():
    assert levers.operator_of_terminal().name == f"{getpass.getuser()}, by command"


@pytest.mark.parametrize("error", [KeyError("getpwuid(): uid not found"), OSError("No username set")])
def test_an_account_without_a_name_is_named_by_its_number(monkeypatch, error):
    """As in a container that runs with a number of its own."""

    def nameless():
        raise error

    monkeypatch.setattr(levers.getpass, "getuser", nameless)
    assert levers.operator_of_terminal().name == f"account {os.getuid()}, by command"
