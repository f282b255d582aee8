"""What every flow shares: counters, burials, positions, the terminal's levers."""

import json
import re
import uuid
from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from config.database.clock import database_now
from config.kafka import Mark, Replayed
from config.kafka.positions import LogEnd
from outbox.admin.dead_letters import DeadLetterAdmin
from outbox.audit_log.models import OperatorAction
from outbox.bookkeeping import counters, watermarks
from outbox.bookkeeping.models import FlowCounter, FlowMinute, Watermark
from outbox.bookkeeping.watermarks import Watermarks
from outbox.groups.models import FailureGroup
from outbox.letters.burial import Letter, bury
from outbox.letters.models import BurialKey, DeadLetter

pytestmark = pytest.mark.django_db
SOURCE = "transfer-requests"


def letter(offset: int = 0, error: str = "bad", value: bytes | None = b"{", **changes) -> Letter:
    record = Replayed("transfer-requests", 0, offset, 1000, b"key", value, [("correlation_id", b"c-1")])
    return Letter(SOURCE, "decode", "invalid_json", error, record, topic_id="t", **changes)


class TestCounters:
    def test_they_add_up_over_scopes_and_minutes(self):
        now = database_now()
        counters.add({("f", "0", "read"): 3, ("f", "1", "read"): 4, ("f", "0", "late"): 0}, now)
        counters.add({("f", "0", "read"): 5}, now)
        assert counters.totals("f") == {"read": 12}
        assert counters.by_scope("f") == {"0": {"read": 8}, "1": {"read": 4}}
        assert counters.of_last_hour(["f"], now)["read"][-1] == 12
        assert counters.of_last_hour(["f"], now + timedelta(minutes=1))["read"][-2:] == [12, 0]
        assert FlowMinute.objects.count() == 1

    def test_they_may_go_down(self):
        counters.add({("f", "", "open"): 5}, database_now())
        counters.add({("f", "", "open"): -7}, database_now())
        assert FlowCounter.objects.get().value == -2

    def test_names_compare_bytes(self):
        counters.add({("f", "", name): 1 for name in ("a", "A", "á", "a ")}, database_now())
        assert FlowCounter.objects.count() == 4


class TestBurial:
    def test_a_record_is_buried_once(self):
        first = database_now()
        last = first + timedelta(minutes=1)
        assert len(bury([letter(1), letter(2)], "g", first)) == 2
        assert len(bury([letter(2), letter(3)], "g", last)) == 1
        group = FailureGroup.objects.get()
        assert (group.open_count, group.total_count, group.first_seen, group.last_seen) == (3, 3, first, last)

    def test_each_revision_is_a_letter_of_its_own(self):
        assert len(bury([letter(), letter(revision=1)], "g", database_now())) == 2

    def test_another_incarnation_of_the_topic_is_another_record(self):
        again = Letter(**{**vars(letter()), "topic_id": "u"})
        assert len(bury([letter(), again], "g", database_now())) == 2
        assert BurialKey.objects.count() == 2

    def test_everything_about_the_record_is_kept(self):
        now = database_now()
        bury([letter(7, value=b"\x00\xff", business_key="A\x001")], "g", now)
        found = DeadLetter.objects.get()
        assert (bytes(found.payload), bytes(found.key), found.timestamp) == (b"\x00\xff", b"key", 1000)
        assert (found.correlation_id, found.position, found.status) == ("c-1", "transfer-requests/0/7", "open")
        assert "\x00" not in found.business_key

    def test_groups_differ_by_cause_not_by_number(self):
        bury([letter(1, "70 bytes"), letter(2, "80 bytes"), letter(3, "no value")], "g", database_now())
        assert sorted(FailureGroup.objects.values_list("open_count", flat=True)) == [1, 2]


class TestWatermarks:
    def test_a_zombie_does_not_move_a_mark_back(self):
        store, now = Watermarks(), database_now()
        store.advance("g", {("t", 0): Mark("a", 10)}, now)
        store.advance("g", {("t", 0): Mark("a", 7)}, now)
        assert store.load("g", ["t"]) == {("t", 0): Mark("a", 10)}

    def test_only_a_reset_goes_to_another_incarnation(self):
        store, now = Watermarks(), database_now()
        store.advance("g", {("t", 0): Mark("", 10), ("t", 1): Mark("a", 10)}, now)
        store.advance("g", {("t", 0): Mark("a", 2), ("t", 1): Mark("", 12)}, now)
        assert store.load("g", ["t"]) == {("t", 0): Mark("a", 2), ("t", 1): Mark("a", 12)}
        store.reset("g", {("t", 0): Mark("b", 2)}, now)
        store.advance("g", {("t", 0): Mark("b", 3)}, now)
        store.advance("g", {("t", 0): Mark("a", 90)}, now)  # a zombie, which read the topic before
        assert store.load("g", ["t"])["t", 0] == Mark("b", 3)

    def test_reach_says_since_when_all_is_written(self):
        store, now = Watermarks(), database_now()
        store.advance("g", {("t", 0): Mark("a", 10)}, now)
        store.reach("g", {("t", 0): LogEnd(12, None), ("t", 1): LogEnd(0, now)}, now)
        assert set(Watermark.objects.values_list("partition", "end_offset", "caught_up_at")) == {
            (0, 12, None),
            (1, 0, now),
        }

    def test_it_is_behind_where_the_group_has_committed_more(self, monkeypatch):
        committed = {("t", number): Mark("a", offset) for number, offset in enumerate([10, 11, 0, 1, 1, 5])}
        monkeypatch.setattr(watermarks, "committed_offsets", lambda group, topic: committed)
        store = Watermarks()
        marks = {("t", 0): Mark("a", 10), ("t", 1): Mark("a", 10), ("t", 4): Mark("older", 10), ("t", 5): Mark("", 10)}
        store.advance("g", marks, database_now())
        assert store.behind("g", "t") == [("t", 1), ("t", 3), ("t", 4)], "a place in another topic is none in this one"

    def test_an_alarm_stays_until_it_is_accepted(self):
        store, now = Watermarks(), database_now()
        store.advance("g", {("t", 0): Mark("a", 10)}, now)
        store.stop("g", {("t", 0): "created again"}, now)
        assert Watermark.objects.get().alarm == "created again"
        store.reset("g", {("t", 0): Mark("b", 0)}, now)
        assert (Watermark.objects.get().alarm, store.load("g", ["t"])) == ("", {("t", 0): Mark("b", 0)})


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("dead_letters", *arguments, stdout=out)
    return out.getvalue()


class TestCommand:
    @pytest.fixture(autouse=True)
    def _letters(self, db):
        bury([letter(1), letter(2, value=None), letter(3, "other")], "g", database_now())

    def test_list_json_is_one_object_a_line_with_the_contracts_fields(self):
        lines = [json.loads(line) for line in run("list", "--json").splitlines()]
        assert len(lines) == 3
        wanted = "id source step reason error group status topic partition offset key payload_b64 created_at".split()
        assert set(wanted) <= set(lines[0])
        assert (lines[0]["payload_b64"], lines[1]["payload_b64"]) == ("ew==", None)

    def test_closed_letters_are_listed_in_json_only(self):
        run("discard", "--all", "--reason", "test data only")
        assert len(run("list", "--json").splitlines()) == 3
        assert "No open dead letters" in run("list")

    def test_filters(self):
        group = DeadLetter.objects.get(offset=3).group_id
        assert len(run("list", "--json", "--group", str(group)).splitlines()) == 1
        source = DeadLetter.objects.first().source
        assert len(run("list", "--json", "--source", source).splitlines()) == 3
        assert run("list", "--json", "--source", "outbox") == ""  # known, and has none

    @pytest.mark.parametrize("verb", ["show", "requeue", "discard", "resolve"])
    def test_only_a_list_takes_all_letters_unasked(self, verb):
        with pytest.raises(CommandError, match="give the ids") as refused:
            run(verb, "--reason", "a slip of the hand")
        assert refused.value.returncode == 2
        assert DeadLetter.objects.open().count() == 3
        assert len(re.findall("^id ", run("show", "--all"), re.MULTILINE)) == 3

    @pytest.mark.parametrize("verb", ["list", "show", "requeue", "discard", "resolve"])
    @pytest.mark.parametrize(
        "unknown", [[str(uuid.UUID(int=7))], ["--group", "99"], ["--source", "nobody"]], ids=["id", "group", "source"]
    )
    def test_what_does_not_exist_is_a_failure(self, verb, unknown):
        with pytest.raises(CommandError, match=f"{unknown[-1]}: no such") as refused:
            run(verb, *unknown, "--reason", "the producer was mended")
        assert refused.value.returncode == 1

    def test_an_unknown_letter_spares_the_known_ones(self):
        known = str(DeadLetter.objects.first().pk)
        with pytest.raises(CommandError, match="no such dead letter"):
            run("resolve", known, str(uuid.UUID(int=7)), "--reason", "handled by phone")
        assert DeadLetter.objects.open().count() == 3

    def test_a_letter_that_is_closed_is_named_with_its_state(self):
        letter_id = str(DeadLetter.objects.first().pk)
        run("resolve", letter_id, "--reason", "handled by phone")
        with pytest.raises(CommandError, match=f"nothing to discard: {letter_id} is resolved"):
            run("discard", letter_id, "--reason", "handled by phone")

    @pytest.mark.parametrize(
        ("verb", "short"),
        [("discard", ""), ("discard", "x"), ("discard", "too short"), ("requeue", "x"), ("resolve", "no")],
    )
    def test_a_change_needs_a_reason_as_long_as_the_admin_asks_for(self, verb, short):
        (lever,) = [lever for lever in DeadLetterAdmin.levers if lever.name == verb]
        assert len(short) < lever.least
        with pytest.raises(CommandError, match="--reason"):
            run(verb, "--all", "--reason", short)
        assert DeadLetter.objects.open().count() == 3

    def test_dry_run_changes_nothing(self):
        assert "would discard 3" in run("discard", "--all", "--dry-run")
        assert DeadLetter.objects.open().count() == 3

    def test_the_command_leaves_the_same_trail_as_the_console(self):
        assert "1 letters resolved" in run("resolve", str(DeadLetter.objects.get(offset=1).pk), "--reason", "by hand")
        action = OperatorAction.objects.get()
        assert (action.verb, action.reason) == ("resolve", "by hand")
        assert "by command" in action.actor_name

    def test_nonsense_is_one_line(self):
        with pytest.raises(CommandError, match="not the id of a dead letter"):
            run("show", "nonsense")
