"""The viewer's time zone: chosen once, obeyed by pages, ranges and files; terminals and the API stay with UTC."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from config.admin import filters, humanize
from outbox.accounts.models import ViewerZone
from outbox.accounts.zones import IN_SESSION, zones
from outbox.audit_log.models import OperatorAction
from outbox.topic_replay.models import TopicReplay
from tests.config.admin.conftest import _plain_http, boss, list_of  # noqa: F401 (fixtures)

pytestmark = pytest.mark.django_db
URL = "/admin/auth/user/zone/"
NOW = datetime(2026, 7, 2, 1, 30, tzinfo=UTC)  # 03:30 in Berlin, where the days begin at 22:00 UTC


def choose(client, zone="Europe/Berlin", **more):
    return client.post(URL, {"zone": zone, **more})


def act(*moments):
    OperatorAction.objects.bulk_create(
        OperatorAction(actor_name="a", verb="did", subject=f"s{index}", reason="r", result="done", created_at=when)
        for index, when in enumerate(moments)
    )


def test_it_is_chosen_once_and_kept_with_the_account(boss):  # noqa: F811
    assert "</span>UTC</a>" in boss.get("/admin/").content.decode()
    assert choose(boss, next=list_of(OperatorAction))["Location"] == list_of(OperatorAction)
    assert "</span>Europe/Berlin</a>" in boss.get("/admin/").content.decode()
    again = Client()
    again.force_login(User.objects.get())
    assert "</span>Europe/Berlin</a>" in again.get("/admin/").content.decode()
    choose(boss, "UTC")
    assert ViewerZone.objects.get().zone == "UTC"
    assert "</span>UTC</a>" in boss.get("/admin/").content.decode()


def test_each_has_their_own(boss):  # noqa: F811
    choose(boss)
    other = Client()
    other.force_login(User.objects.create_superuser("other"))
    assert "</span>UTC</a>" in other.get("/admin/").content.decode()
    assert timezone.get_current_timezone_name() == "UTC"


@pytest.mark.parametrize(
    "zone", ["", "Mars/Olympus", "../../etc/passwd", "europe/berlin", "posixrules", "<b>", "x" * 999]
)
def test_a_zone_that_is_none_is_refused_in_words(boss, zone):  # noqa: F811
    response = choose(boss, zone)
    assert response.status_code == 200
    assert "There is no zone" in response.content.decode()
    assert not ViewerZone.objects.exists()


@pytest.mark.parametrize("back", ["//evil.example/", "https://evil.example", "javascript:alert(1)", "\\\\evil"])
def test_it_leads_back_to_our_pages_only(boss, back):  # noqa: F811
    assert choose(boss, next=back)["Location"] == reverse("admin:index")


def test_a_zone_that_is_gone_is_utc(boss):  # noqa: F811
    session = boss.session
    session[IN_SESSION] = "Gone/Away"
    session.save()
    assert "</span>UTC</a>" in boss.get("/admin/").content.decode()


def test_times_say_their_zone(boss):  # noqa: F811
    act(NOW)
    pk = OperatorAction.objects.get(verb="did").pk
    page = reverse("admin:outbox_operatoraction_change", args=[pk])
    assert "2 Jul 2026 01:30:00 UTC" in boss.get(page).content.decode()
    choose(boss)
    html = boss.get(page).content.decode()
    assert "2 Jul 2026 03:30:00 CEST" in html
    assert 'title="2026-07-02 03:30:00 CEST"' in boss.get(list_of(OperatorAction)).content.decode()
    assert 'datetime="2026-07-02T03:30:00+02:00"' in html


def test_a_zone_without_a_name_says_its_distance():
    with timezone.override("America/Sao_Paulo"):
        assert humanize.stamp(NOW) == "2026-07-01 22:30:00 UTC-03"
    assert humanize.stamp(NOW) == "2026-07-02 01:30:00 UTC"


def test_yesterday_and_a_typed_time_are_the_viewers(boss, monkeypatch):  # noqa: F811
    monkeypatch.setattr(filters.timezone, "now", lambda: NOW)
    midnight = datetime(2026, 6, 30, 22, tzinfo=UTC)  # of 1 July in Berlin
    act(midnight - timedelta(seconds=1), midnight, midnight + timedelta(hours=24) - timedelta(seconds=1), midnight + timedelta(hours=24))  # fmt: skip

    def shown(query):
        html = boss.get(f"{list_of(OperatorAction)}?{query}").content.decode()
        return [word for word in ("s0", "s1", "s2", "s3") if f"Did: {word}" in html]

    choose(boss)
    assert shown("when=yesterday") == ["s1", "s2"]
    assert shown("from=2026-07-01&to=2026-07-01") == ["s1", "s2"]
    assert shown("from=2026-07-01T00:00&to=2026-07-02T00:00") == ["s1", "s2"]
    assert shown("from=2026-07-01T00:00Z") == ["s2", "s3"]


def test_the_timeframe_of_a_replay_is_asked_for_on_the_viewers_clock(boss):  # noqa: F811
    choose(boss, "Asia/Kolkata")
    page = reverse("admin:outbox_topicreplay_add")
    assert "From, Asia/Kolkata</label>" in boss.get(page).content.decode()
    boss.post(page, {"topic": "transfer-requests", "since": "2026-02-12T10:00:00", "until": "2026-02-12T06:00:00Z", "slack": "1h", "reason": "a bug in release 7"})  # fmt: skip
    replay = TopicReplay.objects.get()
    assert (replay.since, replay.until) == (
        datetime(2026, 2, 12, 4, 30, tzinfo=UTC),
        datetime(2026, 2, 12, 6, tzinfo=UTC),
    )


def test_a_file_has_the_viewers_times_with_their_distance(boss):  # noqa: F811
    act(NOW)
    url = f"{list_of(OperatorAction)}csv/"
    assert "2026-07-02T01:30:00+00:00" in b"".join(boss.post(url).streaming_content).decode()
    choose(boss)
    response = boss.post(url)
    assert timezone.get_current_timezone_name() == "UTC"  # the request is over before the rows are read
    assert "2026-07-02T03:30:00+02:00" in b"".join(response.streaming_content).decode()


def test_terminals_and_the_api_stay_with_utc(boss, capsys):  # noqa: F811
    choose(boss)
    assert "+00:00" in humanize.timezone.localtime(NOW).isoformat()
    call_command("dead_letters", "list")
    assert boss.get("/healthz").status_code in (200, 503)


def test_nothing_of_a_deleted_account_stays(boss):  # noqa: F811
    choose(boss)
    User.objects.get().delete()
    assert not ViewerZone.objects.exists()


def test_the_zones_begin_with_utc_and_are_places():
    assert zones()[0] == "UTC"
    assert {"Europe/Berlin", "Asia/Kolkata", "America/New_York"} <= set(zones())
    assert not [zone for zone in zones() if zone.startswith(("Etc/", "posix/"))]
