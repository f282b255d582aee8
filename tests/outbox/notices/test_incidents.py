"""Services that keep incidents: one for each incident and episode, updated by reminders and closed by its end; sent is what they answered."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from config.database.clock import database_now
from config.letters import Refusal
from outbox.notices import incidents, sender_process
from outbox.notices.addresses import Words, look_at, send
from outbox.notices.models import Incident, Notice, Subscription
from outbox.notices.sender import deliver
from tests.notifications.smtp_sink import Sink
from tests.outbox.notices.conftest import a_need
from tests.outbox.notices.incident_services import ADDRESSES, Services, incident_services

pytestmark = pytest.mark.django_db
EACH = pytest.mark.parametrize("host", ADDRESSES)
# What somebody may have written into the address: it names no other incident, and ends none.
SPELLINGS = {
    "events.pagerduty.com": ["?action=resolve", "?action=map&dedup=mine"],
    "api.opsgenie.com": ["?action=map", "?action=close&alias=mine", "?action=note&entity=mine", "/@ann/%23team?batch=no"],
    "alert.victorops.com": ["/mine", "/mine?action=recovery", "?action=info"],
    "api.incident.io": ["?action=resolve&dedup=mine"],
    "api.ilert.com": ["?action=acknowledge&dedup=mine"],
    "connect.signl4.com": ["?status=resolved&external_id=mine", "?action=acknowledge"],
}  # fmt: skip


@pytest.fixture
def services(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Services]:
    """They are reached by a proxy, whose certificates the process that sends trusts by its environment."""
    settings.NOTIFY_ALLOWED_HOSTS = ["127.0.0.1"]
    with incident_services(tmp_path) as running:
        for name in ("HTTPS_PROXY", "https_proxy"):
            monkeypatch.setenv(name, f"http://{running.place}")
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
        yield running


def told(row: Subscription) -> int:
    """All that is due, up to the first failure; how many tries that took."""
    incidents.look(database_now())
    tries = 0
    while row.pk in Subscription.objects.with_due_notices(database_now()).values_list("pk", flat=True):
        tries += deliver(row.pk)
    return tries


def aged(**by: float) -> None:
    """Let time pass for what was said, and for what is over."""
    span = timedelta(**by)
    for notice in Notice.objects.exclude(sent_at=None):
        Notice.objects.filter(pk=notice.pk).update(sent_at=notice.sent_at - span)
    for incident in Incident.objects.exclude(over_at=None):
        Incident.objects.filter(pk=incident.pk).update(over_at=incident.over_at - span)


@EACH
def test_a_matter_is_one_incident_from_its_beginning_over_its_reminders_to_its_end(services, subscribe, needed, host):
    row = subscribe(ADDRESSES[host])
    needed += [a_need(key="1"), a_need(key="2")]
    assert told(row) == 2, "each is an incident of its own"
    assert len(services.open(host)) == 2
    aged(hours=5)
    assert told(row) == 2
    assert (len(services.events), len(services.open(host))) == (4, 2), "a reminder is no new one"
    needed.pop()
    told(row)
    (left,) = services.open(host)
    assert {left} == {event.key for event in services.events if "worker 1" in event.text}, "which is not the other's"
    needed.clear()
    told(row)
    assert services.open(host) == []
    assert set(Notice.objects.values_list("state", flat=True)) == {"sent"}
    assert len(services.events) == services.requests == Notice.objects.count()


@EACH
def test_what_comes_back_opens_the_same_and_after_a_window_of_rest_another(services, subscribe, needed, host):
    row = subscribe(ADDRESSES[host])
    for rest in (0, 0, 15):
        needed[:] = [a_need()]
        told(row)
        assert len(services.open(host)) == 1
        needed.clear()
        told(row)
        aged(minutes=rest)
    told(row)  # over, and not back since
    assert services.open(host) == []
    first = {event.key for event in services.events}
    assert len(first) == 1
    needed[:] = [a_need()]
    told(row)
    (another,) = services.open(host)
    assert another not in first


@EACH
def test_what_is_over_before_it_was_told_leaves_no_incident(services, subscribe, needed, host):
    row = subscribe(ADDRESSES[host])
    needed.append(a_need())
    incidents.look(database_now())
    needed.clear()
    told(row)
    assert (services.open(host), len(services.events)) == ([], 1)


@pytest.mark.parametrize(("host", "more"), [(host, more) for host, all_of in SPELLINGS.items() for more in all_of])
def test_an_address_cannot_name_another_incident_or_action(services, subscribe, needed, host, more):
    row = subscribe(ADDRESSES[host] + more)
    needed += [a_need(key="1"), a_need(key="2", urgency="soon")]
    told(row)
    assert len(set(services.open(host))) == 2
    needed.clear()
    told(row)
    assert (services.open(host), services.requests) == ([], 4)
    assert "mine" not in {event.key for event in services.events}


@EACH
def test_every_urgency_a_digest_and_a_test_get_there(services, subscribe, needed, host):
    """apprise is content when it has nothing to close."""
    row = subscribe(ADDRESSES[host], digest_minutes=15)
    needed += [a_need(key=urgency, urgency=urgency) for urgency in ("now", "soon", "watch")]
    incidents.look(database_now())
    now = database_now()
    Notice.objects.create(subscription=row, phase="test", due_at=now, created_at=now)
    Notice.objects.update(due_at=now)
    assert told(row) == 4
    assert set(Notice.objects.values_list("state", flat=True)) == {"sent"}
    assert len({event.key for event in services.events}) == services.requests == 4


@EACH
def test_what_a_service_refused_was_not_sent_and_is_the_same_incident_later(services, subscribe, needed, host):
    row = subscribe(ADDRESSES[host])
    needed.append(a_need())
    services.answers = [(500, {}), (429, {})]
    for fault in ("HTTP 500", "HTTP 429"):
        told(row)
        row.refresh_from_db()
        assert (row.error, Notice.objects.get().state, services.events) == (fault, "waiting", [])
        Subscription.objects.update(next_try_at=None)
    told(row)
    assert len(services.open(host)) == 1
    services.answers = [(503, {})]
    needed.clear()
    told(row)
    assert len(services.open(host)) == 1, "its end was refused"
    assert Notice.objects.get(phase="resolved").state == "waiting"


def test_a_failure_that_splunk_says_with_a_200_is_one(services, subscribe, needed):
    row = subscribe(ADDRESSES["alert.victorops.com"])
    needed.append(a_need())
    services.answers = [(200, {"result": "failure", "message": "no such route"})]
    told(row)
    row.refresh_from_db()
    assert (row.error, Notice.objects.get().state) == ("the service says that it failed", "waiting")


def test_a_long_reason_is_no_summary_that_pagerduty_refuses(services, subscribe, needed):
    row = subscribe(ADDRESSES["events.pagerduty.com"])
    needed.append(replace(a_need(), why="long " * 500))
    told(row)
    (event,) = services.events
    assert len(json.loads(event.text)["payload"]["summary"]) <= 1024


def test_an_end_that_may_have_arrived_is_taken_back_when_the_matter_comes_back(services, subscribe, needed):
    """The incident may be closed there: that it is back again is told, not only that its end was none."""
    host = "events.pagerduty.com"
    row = subscribe(ADDRESSES[host])
    needed.append(a_need())
    told(row)
    needed.clear()
    told(row)
    Notice.objects.filter(phase="resolved").update(state="unsure", repeat=True, sent_at=None)
    needed.append(a_need())
    told(row)
    told(row)
    assert len(services.open(host)) == 1
    assert set(Notice.objects.values_list("phase", "state")) == {
        ("opened", "sent"), ("resolved", "given_up"), ("returned", "sent"),
    }  # fmt: skip


def test_two_installations_and_two_matters_share_no_incident(services, subscribe, needed, settings):
    host = "events.pagerduty.com"
    row = subscribe(ADDRESSES[host])
    for name in ("production", "staging"):
        settings.ENVIRONMENT_NAME = name
        needed[:] = [a_need(key=f"{name[0]}")]
        told(row)
        Notice.objects.all().delete()
        Incident.objects.all().delete()
    assert len(services.open(host)) == 2


def test_a_service_that_keeps_incidents_without_a_key_is_refused(settings):
    with pytest.raises(Refusal, match="Better Stack takes no key"):
        look_at("betterstack://a-token-of-ours/ann@example.com")
    assert look_at("betterstack://a-token-of-ours@in.logs.example.com")


def test_where_apprise_is_content_without_an_answer_nothing_was_sent():
    """Whatever a plugin says: sent is what a service has answered."""

    class Content:
        plugin = ("one target",)

        def send(self, message: object) -> bool:
            return True

    outcome = sender_process.send(
        {}, Content(), sender_process.Fence([]), sender_process.Answers(), sender_process.Lines()
    )
    assert outcome == {"sent": False, "unsure": False, "fault": "no answer of the service was seen"}


# -- Mail, whose answers are no HTTP -------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("trouble", "outcome"),
    [
        ([], (True, False)),
        (["rcpt:550"], (False, False)),
        (["dot:451"], (False, False)),
        (["dot:drop"], (False, True)),
        (["dot:lose"], (False, True)),
    ],
)
def test_a_mail_is_sent_when_its_server_has_taken_it_and_doubtful_when_it_does_not_say(settings, trouble, outcome):
    settings.NOTIFY_ALLOWED_HOSTS = ["127.0.0.1"]
    settings.NOTIFY_TIMEOUT_SECONDS = 5.0
    with Sink() as sink:
        sink.script.extend(trouble)
        address = f"mailto://127.0.0.1:{sink.port}?smtp=127.0.0.1&mode=insecure&from=a@example.com&to=b@example.com"
        result = send(address, lambda keeps_incidents: None if keeps_incidents else Words("Hello", "A test."))
    assert result is not None
    assert (result.ok, result.unsure) == outcome, result.error
