"""Every page as every role: who may open it, and which buttons they find there. A lever that is posted: `test_matrix.py`."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client

from config.admin.levers import ROLES
from outbox.channels import handlers as registry
from tests.config.admin.conftest import INLINE
from tests.screenshots.others import fill_all
from tests.screenshots.pages import PAGES

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "sqlite", reason="rights are the same on every database: once is enough"),
]
# A letter for each: nobody is signed in, no right, Auditor, sUpport, Senior support, Operator, everything.
WHO = {"-": "", "g": "guest", "A": "Auditor", "U": "Support", "S": "Senior support", "O": "Operator", "*": "ito"}
LOOKING = "AUSO*"
# Who may open a page that not everybody may who looks at the flows. Others get 403, and whoever is not signed in a login.
OPEN = {
    "*": """axes-accessattempt-list axes-accessattempt axes-accessfailurelog-list axes-accessfailurelog axes-accesslog-list
        axes-accesslog auth-user-list auth-user auth-group-list auth-group account-new account-password account-history
        account-delete role-new token-new suppression-new stocktake customer-purge outbox-savedview""",
    "AO*": "outbox-operatoraction-list outbox-operatoraction",
    "O*": "subscription-edit pause replay-topic flush customer-add customer-rate customer-life",
    "SO*": "edit edit-hidden edit-mail edit-closed discard draft change",
    "USO*": "group-words requeue nothing-to-do",
    "gAUSO*": "password password-done find-nothing find-some time-zone",
    "-gAUSO*": "welcome-over api-docs",
    "-": "login",
    "": "no-such-page",
}
# What somebody who looks at the flows gets in place of a page that is another person's, or that does not exist.
OTHERWISE = {"login": 302, "outbox-savedview": 302, "no-such-page": 404}
OF_GUESTS = {"app": 404, "stocktake": 404, "outbox-savedview": 403}
LETTER = {"Requeue": "USO*", "Edit and requeue": "SO*", "Resolve": "SO*", "Discard": "SO*", "Reveal for n min": "SO*"}
RESTORED = {"Restore": "SO*", "Reveal for n min": "SO*"}
GROUP = {
    "Take it": "USO*", "Try one": "USO*", "Assign": "SO*", "Discard all n": "SO*", "Edit all n": "SO*", "Ignore until": "SO*",
    "Requeue all n": "SO*", "Resolve": "SO*",
}  # fmt: skip
LETTERS = {f"{verb} all of these": "SO*" for verb in ("Requeue", "Edit", "Resolve", "Discard")}
HIDDEN = {"Reveal for n min": "SO*"}
PENDING = {"Try now": "SO*", "Cancel the message": "SO*", **HIDDEN}
BUCKET = {"Flush now": "O*", "Hold": "O*"}
CUSTOMER = {"Change rate": "O*", "Hold": "O*", "Let messages live longer": "O*"}
SUBSCRIPTION = {"Change": "O*", "Remove": "O*", "Send a test": "O*"}
# What can be done on a page, and who finds it open; to others of those who look it is locked, or not there.
BUTTONS: dict[str, dict[str, str]] = {
    "auth-user": {"Send a link to set a new password": "*"},
    "outbox-channelstate": {"Resume": "O*"},
    "outbox-failuregroup group group-week": GROUP,
    "outbox-deadletter-list letters-of-group": LETTERS,
    "outbox-deadletter letter letter-late letter-ledger letter-notice letter-revealed": LETTER,
    "letter-batch": {words: who for words, who in LETTER.items() if words != "Edit and requeue"},
    "letter-requeued letter-resolved letter-failed-again": HIDDEN,
    "letter-ingest letter-discarded": RESTORED,
    "edit edit-hidden edit-mail": {"Show it and edit a copy": "SO*"},
    "group-words": {"Save": "USO*"},
    "discard": {"Discard n letters": "SO*"},
    "requeue": {"Requeue n letters": "USO*"},
    "draft change": {"Count and preview": "SO*"},
    "find-some": {"Requeue": "USO*"},
    "batch-edit": {"Edit n letters": "SO*", "Throw the draft away": "SO*", **HIDDEN},
    "batch-preview": {"Requeue n letters": "SO*", "Throw the draft away": "SO*"},
    "outbox-replaybatch batch-counting": {"Throw the draft away": "SO*"},
    "batch-hold": {"Undo": "SO*", "Start now": "SO*"},
    "batch-running": {"Pause": "SO*", "Change": "SO*", "Cancel the rest (n)": "SO*"},
    "batch-stopped": {"Go on": "SO*", "Change": "SO*", "Cancel the rest (n)": "SO*"},
    "batch-done": {"Restore these": "SO*"},
    "outbox-outboxmessage message": PENDING,
    "message-sent": {"Resend": "SO*", **HIDDEN},
    "message-dead": {"Requeue": "USO*", "Edit and requeue": "SO*", **HIDDEN},
    "outbox-savedview": {"Rename": "*", "Delete": "*"},
    "subscribe": {"Subscribe": LOOKING},
    "outbox-subscription subscription-failing": SUBSCRIPTION,
    "subscription-edit": {"Save": "O*"},
    "subscription-remove": {"Remove n subscriptions": "O*"},
    "outbox-topicreplay": {"Cancel": "O*"},
    "replay-topic": {"Count what is missing": "O*", "Replay at once": "O*"},
    "outbox-workerprocess worker-dead": {"Forget": "O*"},
    "buffer-bucket bucket": BUCKET,
    "flush": {"Flush now": "O*"},
    "buffer-batch batch batch-refused buffer-bufferedevent": HIDDEN,
    "order": {"Withdraw": "*", **HIDDEN},
    "buffer-inventorystock stock": {"Stocktake": "*"},
    "stocktake": {"Record the difference": "*"},
    "throttler-customer": CUSTOMER,
    "customer": {**CUSTOMER, "Drop the backlog": "*"},
    "customer-add": {"Set its rate": "O*"},
    "customer-rate": {"Change rate": "O*"},
    "customer-life": {"Let messages live longer": "O*"},
    "customer-purge": {"Drop n messages": "*"},
    "waiting-one": HIDDEN,
    "notifications-delivery": {"Suppress the recipient": "*", **HIDDEN},
    "notifications-suppression": {"Lift": "USO*", **HIDDEN},
    "notifications-webhookevent notifications-order": HIDDEN,
    "notifications-apitoken": {"Revoke": "*"},
}  # fmt: skip
BUTTONS_OF = {name: table for names, table in BUTTONS.items() for name in names.split()}
BUTTON = re.compile(
    r'<(?:a|button) class="sw-lever[^"]*"((?:(?!aria-disabled)[^>])*)>(?:<svg.*?</svg>)?([^<]+)', re.DOTALL
)
LEADS_ELSEWHERE = {
    "Download CSV", "Older", "Newer", "On", "Later", "Search", "Back", "Back without changes", "Back to the letter", "Not now",
    "Leave open", "Leave it", "Leave as it was", "Keep it",
}  # fmt: skip
# The same page as another one, for a test that does something there; home and its needs have tests of their own.
TWICE = re.compile(r".*-(wrong|support|guest|link)|welcome|home")


def test_each_role_may_open_and_do_what_the_table_says(settings, monkeypatch):
    settings.EMAIL_CHANNEL = "memory"
    monkeypatch.setattr(registry, "installed", {})
    fill_all()
    shown = {name: (page, page.find()) for name, page in PAGES.items() if not TWICE.fullmatch(name)}
    found, expected = {}, {}
    for who, name in WHO.items():
        client = client_of(name)
        for page, (_, url) in shown.items():
            answer = client.get(url)
            html = answer.content.decode()
            assert not INLINE.search(answer.content), (page, who)
            assert "script-src 'self'" in answer["Content-Security-Policy"], (page, who)
            found[page, who] = answer.status_code, buttons(html) if answer.status_code == 200 else set()
            expected[page, who] = told(page, who)
    assert {at: seen for at, seen in found.items() if seen != expected[at]} == {}
    assert BUTTONS_OF.keys() <= shown.keys()
    assert set(" ".join(OPEN.values()).split()) <= shown.keys()


def told(page: str, who: str) -> tuple[int, set[str]]:
    """Status and buttons, as the table has them."""
    may_open = next((whose for whose, names in OPEN.items() if page in names.split()), LOOKING)
    if who in may_open:
        return 200, {words for words, whose in BUTTONS_OF.get(page, {}).items() if who in whose}
    if who == "-":
        return 302, set()
    return (OF_GUESTS if who == "g" else {}).get(page, OTHERWISE.get(page, 403)), set()


def buttons(html: str) -> set[str]:
    words = {re.sub(r"\d[\d,]*", "n", text.strip()).removesuffix("…") for _, text in BUTTON.findall(html)}
    return words - LEADS_ELSEWHERE


def client_of(name: str) -> Client:
    client = Client()
    if name in ROLES:
        user = User.objects.create_user(f"somebody of {name}", is_staff=True)
        user.groups.set([Group.objects.get(name=name)])
        client.force_login(user)
    elif name:
        client.force_login(User.objects.get(username=name))
    return client
