"""The pages of an edit of many letters: who may, what is typed, and that nobody sees a hidden value in its differences."""

import re
from html import unescape

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from config.telemetry.redaction import DOTS
from outbox.admin import replay_batch_page
from outbox.groups.models import FailureGroup
from outbox.letters.models import DeadLetter, PayloadRevision
from outbox.models import OperatorAction
from outbox.replay_batches.models import ReplayBatch
from tests.buffer.ledger.conftest import RECEIVED, quantities, record, stocks, write
from tests.outbox.admin.test_batch_pages import DRAFT, page, pull, text
from tests.outbox.replay_batches.scripted_flow import run_until

pytestmark = pytest.mark.django_db(transaction=True)
SECRET, NEWER = "zq-planted-7f3a", "zq-planted-newer"
WHY = "The supplier confirmed three"


@pytest.fixture
def group():
    """Of three receipts that the gate refuses; each has a text that nobody may read."""
    stocks(A=0)
    write(
        *[
            record(
                (RECEIVED, {"purchaseOrderId": f"PO-{n}", "note": SECRET, "items": [{"stockId": "A", "quantity": "x"}]})
            )
            for n in range(3)
        ]
    )
    return FailureGroup.objects.get()


def client_of(role, *without):
    user = User.objects.create_user(f"{role}{without}", is_staff=True)
    user.user_permissions.set(Group.objects.get(name=role).permissions.exclude(codename__in=without))
    client = Client()
    client.force_login(user)
    return client


def typed(group, **more):
    """As the form sends it."""
    start = {"verb": "edit", "group": group.pk, "change": "set", "path": "$.items[0].quantity", "new": "3", "old": ""}
    return {**start, "as": "json", "other_type": "1", **more}


def drafted(client, group, **more):
    response = client.post(DRAFT, typed(group, **more))
    assert response.status_code == 302, text(response)
    return run_until(ReplayBatch.objects.get(), "previewed")


# -- who may -------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("role", "without", "code"),
    [
        ("Support", (), 403),
        ("Auditor", (), 403),
        ("Senior support", (), 200),
        ("Operator", (), 200),
        ("Operator", ("bulk_replay",), 403),
        ("Operator", ("edit_deadletter",), 403),
        ("Operator", ("view_payload",), 403),
    ],
)
def test_only_who_may_edit_and_act_on_many_gets_the_form(group, role, without, code):
    client = client_of(role, *without)
    asked = f"{DRAFT}?verb=edit&group={group.pk}"
    assert client.get(asked).status_code == code
    assert client.post(DRAFT, typed(group)).status_code == (403 if code == 403 else 302)
    assert ReplayBatch.objects.exists() == (code == 200)
    shown = client.get(reverse("admin:outbox_failuregroup_change", args=[group.pk])).content.decode()
    assert (asked.replace("&", "&amp;") in shown) == (code == 200)
    if without:
        words = {"bulk_replay": "bulk requeue", "view_payload": "see payloads"}
        assert f"“{words.get(without[0], 'edit and requeue dead letters')}”" in shown


def test_a_lever_of_the_batch_needs_all_rights_too(group, boss):
    batch = drafted(boss, group)
    for without in ("bulk_replay", "edit_deadletter", "view_payload"):
        assert pull(client_of("Operator", without), batch, "confirm", reason=WHY).status_code == 403
    batch.refresh_from_db()
    assert batch.state == "previewed"


# -- the form ------------------------------------------------------------------------------------------
def test_the_form_says_nothing_of_errors_at_first_and_shows_no_hidden_value(group, boss):
    html = boss.get(f"{DRAFT}?verb=edit&group={group.pk}").content.decode()
    assert "sw-wrong" not in html
    assert "errornote" not in html
    assert SECRET not in html
    assert DOTS in html
    assert '<option value="$.items[0].quantity" label="$.items[0].quantity, in 3 of 3 letters">' in html
    assert "note" not in re.findall(r'<option value="\$\.([^"]+)"', html)


def test_fields_of_other_letters_than_the_newest_are_suggested_and_a_hidden_name_is_not(group, boss, monkeypatch):
    def shown():
        return re.findall(r'<option value="([^"]+)" label="\1, in (\d of \d letters)">', page_of_form(boss, group))

    oldest, *_rest = DeadLetter.objects.order_by("pk")
    text = b'{"purchaseOrderId": "PO", "warehouse": {"zq": 4}, "zq@example.com": 1, "items": [{}, {"stockId": "B"}]}'
    DeadLetter.objects.filter(pk=oldest.pk).update(payload=text)
    fields = dict(shown())
    assert fields["$.purchaseOrderId"] == "3 of 3 letters"
    assert fields["$.items[0].quantity"] == "2 of 3 letters"
    assert fields["$.items[1].stockId"] == "1 of 3 letters"
    assert "zq" not in str(fields)
    assert not {"$.note", "$.sw"} & {*fields}
    assert shown()[0][0] == "$.purchaseOrderId", "what most of them have comes first"
    monkeypatch.setattr(replay_batch_page, "MOST_BYTES", 1)
    assert re.search(r"in 1 of 1 letter", page_of_form(boss, group)), "large ones are not read all"


def page_of_form(client, group):
    return client.get(f"{DRAFT}?verb=edit&group={group.pk}").content.decode()


# -- nothing matches -----------------------------------------------------------------------------------
@pytest.mark.parametrize("meant", ["text", "json"])
def test_where_nothing_matches_its_author_has_the_form_again_with_what_was_typed(group, boss, meant):
    new = f'<{NEWER}> "7"' if meant == "text" else '{"a": [12]}'
    batch = drafted(boss, group, path="$.elsewhere", change="replace", old=f'"{SECRET}"', new=new, **{"as": meant})
    html = page(boss, batch)
    assert "Nothing matches: none of 3 letters can be edited so." in html
    assert "nothing is at the path" in html
    assert "<title>Error: No letter to edit" in html
    form = html[html.index(f'action="{DRAFT}"') :].partition("</form>")[0]
    assert 'value="$.elsewhere"' in form
    assert re.search(r'name="change" value="replace"[^>]+ checked', form)
    assert re.search(rf'name="as" value="{meant}"[^>]+ checked', form)
    assert re.search(r'name="other_type"[^>]+ checked', form)
    areas = [html_of.strip() for html_of in re.findall(r"<textarea[^>]+>([^<]*)<", form)]
    assert [unescape(area) for area in areas] == [f'"{SECRET}"', new.replace(" ", "") if meant == "json" else new]
    assert f'name="group" value="{group.pk}"' in form
    assert 'name="verb" value="edit"' in form
    other = page(client_of("Operator"), batch)
    assert f'action="{DRAFT}"' not in other
    assert NEWER not in other
    assert SECRET not in other


# -- who has typed it ----------------------------------------------------------------------------------
def test_who_confirms_the_edit_of_somebody_else_is_not_its_author(group, boss):
    batch = drafted(boss, group, path="$.items[0].quantity", change="replace", old="x", new=NEWER, **{"as": "text"})
    ReplayBatch.objects.update(eligible=3, skipped=0, skipped_why={})  # as if its gate took it
    batch.items.update(state="eligible")
    other = client_of("Operator")
    pull(other, batch, "confirm", reason=WHY, canary="1")
    assert ReplayBatch.objects.get().user.username.startswith("Operator")
    assert f"by &quot;{NEWER}&quot; at" in page(boss, batch)
    assert NEWER not in page(other, batch)
    without = User.objects.get(username="boss")
    User.objects.filter(pk=without.pk).update(is_superuser=False)
    without.user_permissions.set(Group.objects.get(name="Support").permissions.all())
    assert NEWER not in page(boss, batch), "who may not edit any more sees no values"


def test_all_that_is_wrong_is_said_at_once_and_what_was_typed_is_kept(group, boss):
    response = boss.post(DRAFT, typed(group, change="replace", path="$.items[*].quantity", old="{", new="<b>"))
    html = response.content.decode()
    assert response.status_code == 400
    assert "3 things are wrong." in html
    assert "Character 9: “*” is all members; name one value." in html
    for name in ("old", "new"):
        assert "this is no JSON" in re.search(rf'id="id_{name}_error">([^<]+)<', html)[1]
        assert f'href="#id_{name}"' in html
    assert 'value="$.items[*].quantity"' in html
    assert "&lt;b&gt;</textarea>" in html
    assert re.search(r'name="change" value="replace"[^>]+ checked', html)
    assert f'name="group" value="{group.pk}"' in html
    assert not ReplayBatch.objects.exists()


def test_no_letter_and_a_group_that_is_not_there(group, boss):
    DeadLetter.objects.update(status="resolved")
    assert "No letter of this choice is open." in boss.get(f"{DRAFT}?verb=edit&group={group.pk}").content.decode()
    assert boss.post(DRAFT, typed(group) | {"group": "99"}).status_code == 400
    assert boss.get(f"{DRAFT}?verb=edit").status_code == 200


def test_the_list_of_letters_offers_it_for_its_filter(group, boss):
    html = boss.get(reverse("admin:outbox_deadletter_changelist"), {"source": "ledger"}).content.decode()
    assert f'href="{DRAFT}?verb=edit&amp;source=ledger"' in html
    assert (
        "verb=edit"
        not in boss.get(reverse("admin:outbox_deadletter_changelist"), {"state": "discarded"}).content.decode()
    )


# -- the preview, to the end ---------------------------------------------------------------------------
def test_from_the_group_to_the_proof(group, boss):
    batch = drafted(boss, group)
    shown = text(page(boss, batch))
    assert "Edit 3 letters: look before you start" in shown
    assert "Set $.items[0].quantity to 3" in shown
    pull(boss, batch, "confirm", reason=WHY, canary="1")
    pull(boss, batch, "start")
    run_until(batch, "done")
    assert quantities() == {"A": 9}
    assert "Edited and requeued 3 of 3 letters" in text(page(boss, batch))
    letter = DeadLetter.objects.first()
    html = boss.get(reverse("admin:outbox_deadletter_change", args=[letter.pk])).content.decode()
    assert "Edited copy 1" in html
    assert f"“{WHY}”" in html
    copy = PayloadRevision.objects.get(letter=letter.pk)
    digests = f"Digest of the letter <code>{copy.digest_before}</code>, of the copy <code>{copy.digest_after}</code>"
    assert digests not in html, "a guess at what is hidden could be tried on it"
    boss.post(reverse("admin:outbox_deadletter_reveal", args=[letter.pk]), {"reason": "The supplier called"})
    assert digests in boss.get(reverse("admin:outbox_deadletter_change", args=[letter.pk])).content.decode()


def test_nobody_sees_a_hidden_value_in_the_three_differences_unless_it_is_revealed_to_them(group, boss):
    batch = drafted(boss, group, path="$.note", new=NEWER, other_type="", **{"as": "text"})
    ReplayBatch.objects.update(eligible=3, skipped=0, skipped_why={})  # as if its gate took it
    batch.items.update(state="eligible")
    author = page(boss, batch)
    assert SECRET not in author
    assert author.count(NEWER) == 4, "its author sees what they typed"
    readers = [boss, client_of("Support"), client_of("Auditor"), client_of("Operator")]
    for reader in readers[1:]:
        html = page(reader, batch)
        assert html.count(f'<td data-label="Before"><code>{DOTS}</code></td>') == 0 or SECRET not in html
        assert SECRET not in html
        assert NEWER not in html
        assert html.count(DOTS) >= 7
    reveal = reverse("admin:outbox_replaybatch_reveal", args=[batch.pk])
    assert client_of("Support", "x").post(reveal, {"reason": "The supplier called"}).status_code == 403
    boss.post(reveal, {"reason": "short"})
    assert SECRET not in page(boss, batch)
    boss.post(reveal, {"reason": "The supplier called"})
    html = page(boss, batch)
    assert html.count(SECRET) == 3
    assert html.count(NEWER) == 4
    assert OperatorAction.objects.get(verb="reveal").subject_id == str(batch.pk)
    for reader in readers[1:]:
        assert SECRET not in page(reader, batch)
        assert NEWER not in page(reader, batch)


def test_what_may_be_read_is_read_in_the_differences(group, boss):
    html = page(boss, drafted(boss, group))
    assert html.count('<td data-label="Before"><code>&quot;x&quot;</code></td>') == 3
    assert html.count('<td data-label="After"><code>3</code></td>') == 3
