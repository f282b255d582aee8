"""Groups on home: what nobody has in hand is a need, what came back stands first, the rest is said in one line."""

from datetime import timedelta

import pytest

from config.database.clock import database_now
from outbox.groups.models import FailureGroup
from outbox.letters.overview import MOST_GROUPS, letter_needs
from tests.config.admin.conftest import _plain_http, boss  # noqa: F401 (fixtures)
from tests.outbox.admin.test_group_pages import make

pytestmark = pytest.mark.django_db
State = FailureGroup.State


def needs():
    return [need.title for need in letter_needs(["transfer-requests"])]


def test_what_came_back_and_what_is_new_stand_first():
    make("seen", State.OPEN, 1)
    make("fresh", State.NEW, 2)
    make("back", State.REGRESSED, 3, owner_name="Ada")
    make("older", State.OPEN, 4)
    assert needs() == ["back", "fresh", "seen", "1 more failure group with open letters"]
    assert MOST_GROUPS == 3
    first, second, *_ = letter_needs(["transfer-requests"])
    assert "came back" in first.why
    assert "It is new." in second.why


def test_what_somebody_has_in_hand_and_what_is_ignored_is_no_need():
    now = database_now()
    make("mine", State.ACKNOWLEDGED, owner_name="Ada")
    make("quiet", State.IGNORED)
    make("over", State.IGNORED, ignored_until=now - timedelta(seconds=1), owner_name="Ada")
    assert needs() == []
    make("late", State.IGNORED, ignored_until=now - timedelta(seconds=1))
    assert needs() == ["late"]


def test_home_says_what_is_in_hand(boss):  # noqa: F811
    assert "In hand" not in boss.get("/admin/").content.decode()
    make("mine", State.ACKNOWLEDGED, owner_name="Ada")
    make("mine too", State.ACKNOWLEDGED, owner_name="Ada")
    assert "2 groups have an owner." in boss.get("/admin/").content.decode()
