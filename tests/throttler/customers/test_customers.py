"""Customers: import, levers and what owners are told of them."""

from __future__ import annotations

import io
import json
import re
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.db.models import ProtectedError

from config.admin.levers import Operator
from config.database.clock import database_now
from config.letters import Refusal
from outbox.audit_log.models import OperatorAction
from throttler.customers import changes
from throttler.customers.commands import VALUES
from throttler.customers.policy_cache import changed_terms
from throttler.models import Customer, Lane

pytestmark = pytest.mark.django_db
ME = Operator("tester")
WHY = "contract 4471"
HEAD = "customer_id,rates,burst,ttl_seconds"


@pytest.fixture
def load(tmp_path):
    def run(*lines: str, head: str = HEAD, end: str = "\n", **options) -> str:
        path = tmp_path / "customers.csv"
        path.write_bytes(("\ufeff" + end.join([head, *lines]) + end).encode())
        said = io.StringIO()
        try:
            call_command("import_customers", str(path), stdout=said, stderr=said, **options)
        except CommandError as error:
            said.write(f"refused: {error}")
        return said.getvalue()

    return run


def customers(*args, **options) -> str:
    said = io.StringIO()
    call_command("customers", *args, stdout=said, **options)
    return said.getvalue()


def row(customer_id="C-7"):
    return Customer.objects.get(pk=customer_id)


def test_the_help_says_what_each_verb_does():
    parser = load_command_class("throttler", "customers").create_parser("manage.py", "customers")
    said = " ".join(parser.format_help().split())
    assert [verb for verb in ("list", "show", "hold", "resume", "purge", *VALUES) if f"{verb}: " not in said] == []


def test_a_file_is_imported_and_the_same_file_again_changes_nothing(load):
    assert "2 new, 0 changed, 0 unchanged" in load("C-7,10000/day;10/s,20,3600", "C-8,0/s,,", end="\r\n")
    before = row().updated_at
    assert (row().rates, row().burst, row().ttl_seconds) == ("10/s;10000/day", 20, 3600)
    assert "0 new, 0 changed, 2 unchanged" in load("C-7,10/s;10000/day,20,3600", "C-8,0/s,,")
    assert row().updated_at == before
    assert "0 new, 1 changed, 1 unchanged" in load("C-7,5/s,,", "C-8,0/s,,")
    assert row().updated_at > before


def test_every_bad_line_is_named_and_nothing_is_changed(load):
    lines = [
        "C-1,10/s,,",
        "C-2,x,,",
        "C-3,10/s,0,",
        "C-1,5/s,,",
        "C-4,10/s,,999999999",
        ",1/s,,",
        "C-5,1/s",
        "C-6,1/s,a,",
        "C\t7,1/s,,",
    ]
    said = load(*lines)
    assert [f"line {number}: " in said for number in range(2, 11)] == [False] + [True] * 8
    assert "line 5: customer C-1 stands in line 2" in said
    assert "8 lines are refused; nothing was changed" in said
    assert not Customer.objects.exists()


@pytest.mark.parametrize("head", ["customer_id,rates", "a,b,c,d", ""])
def test_a_file_with_other_columns_is_refused(load, head):
    assert "the first line must be" in load(head=head)


def test_a_dry_run_of_an_import_changes_nothing(load):
    assert "1 new, 0 changed, 0 unchanged; nothing was changed" in load("C-7,10/s,,", dry_run=True)
    assert not Customer.objects.exists()
    assert not OperatorAction.objects.exists()


def test_an_import_is_one_action_about_each_customer_it_changes(load):
    load("C-7,5/s,,", "C-8,5/s,,")
    load("C-7,5/s,,", "C-8,6/s,,", reason="  contract 4471 ")
    load("C-7,5/s,,", "C-8,6/s,,")
    later, first = OperatorAction.objects.newest_first()
    assert (first.verb, first.reason, first.rows) == ("import_customers", "no reason was given", 2)
    assert (first.subject, first.result) == ("Customers of customers.csv", "2 new, 0 changed, 0 unchanged")
    assert (later.reason, later.rows, later.result) == (WHY, 1, "0 new, 1 changed, 1 unchanged")
    about = {name: list(OperatorAction.objects.about("throttler.customer", name)) for name in ("C-7", "C-8")}
    assert about == {"C-7": [first], "C-8": [later, first]}


def test_an_import_leaves_a_hold_alone(load):
    customers("hold", "C-7", reason=WHY)
    load("C-7,5/s,,")
    assert row().held


def test_a_customer_without_a_row_gets_one_with_the_default_rate(settings):
    customers("hold", "C-7", reason=WHY)
    assert (row().rates, row().held) == (settings.THROTTLER_DEFAULT_RATE, True)
    assert OperatorAction.objects.get().verb == "hold_customer"
    with pytest.raises(CommandError, match="held already"):
        customers("hold", "C-7", reason=WHY)
    customers("resume", "C-7", reason=WHY)
    assert not row().held


def test_a_rate_and_a_lifetime_are_set():
    customers("set-rate", "C-7", "10000/day;20/s", burst=40, reason=WHY)
    customers("set-ttl", "C-7", "3600", reason=WHY)
    assert (row().rates, row().burst, row().ttl_seconds) == ("20/s;10000/day", 40, 3600)
    customers("set-ttl", "C-7", "default", reason=WHY)
    assert row().ttl_seconds is None
    customers("set-weight", "C-7", "3", reason=WHY)
    assert row().weight == 3
    assert changed_terms(None)[0]["C-7"].weight == 3


def test_a_customer_is_not_deleted():
    customers("set-weight", "C-7", "3", reason=WHY)
    for delete in (row().delete, Customer.objects.all().delete, Customer.objects.filter(weight=3).delete):
        with pytest.raises(ProtectedError, match="set their rate"):
            delete()
    assert row().weight == 3


@pytest.mark.parametrize(
    "given",
    [("set-rate", "C-7", "x"), ("set-ttl", "C-7", "172801"), ("set-ttl", "C-7", "-1"), ("set-weight", "C-7", "0"),
     ("set-weight", "C-7", "101"), ("set-weight", "C-7", "default"), ("hold", "a\0b"), ("show", "a\tb"), ("hold", " "), ("hold", "x" * 201),
     ("hold", "\udcff")],
)  # fmt: skip
def test_nonsense_is_refused_in_a_sentence(given):
    with pytest.raises(CommandError) as refused:
        customers(*given, reason=WHY)
    assert refused.value.returncode == 1
    assert not Customer.objects.exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("set-rate", "C-7"), "needs rates such as"),
        (("set-ttl", "C-7"), "needs seconds"),
        (("set-weight", "C-7"), "needs a whole number"),
        (("hold",), "needs a CUSTOMER"),
        (("show",), "needs a CUSTOMER"),
        (("show", "C-7", "5"), "takes no 5"),
        (("purge", "C-7", "5"), "takes no 5"),
        (("list", "C-7"), "takes no C-7"),
    ],
)
def test_an_argument_too_few_or_too_many_is_misuse(given, said):
    with pytest.raises(CommandError, match=said) as refused:
        customers(*given, reason=WHY)
    assert refused.value.returncode == 2


def test_a_burst_belongs_to_a_rate():
    with pytest.raises(CommandError, match="belongs to set-rate") as refused:
        customers("hold", "C-7", burst=3, reason=WHY)
    assert refused.value.returncode == 2
    with pytest.raises(CommandError, match="whole number"):
        customers("set-rate", "C-7", "30/s", burst="many", reason=WHY)
    assert not Customer.objects.exists()


def test_a_change_is_told_as_json():
    told = json.loads(customers("set-rate", "C-7", "5/s", reason=WHY, json=True))
    assert told == {
        "customer_id": "C-7", "verb": "set-rate", "changed": {"rates": "5/s", "burst": None}, "waiting": 0,
        "dry_run": False,
    }  # fmt: skip
    told = json.loads(customers("purge", "C-7", dry_run=True, json=True))
    assert (told["dry_run"], told["waiting"], list(told["changed"])) == (True, 0, ["purge_before"])
    assert row().purge_before is None


def test_a_change_without_a_reason_is_refused():
    with pytest.raises(CommandError, match="reason"):
        customers("hold", "C-7")
    assert not Customer.objects.exists()


def test_a_purge_says_how_many_wait_and_a_dry_run_changes_nothing():
    lane = {"topic_id": "t", "first": 1, "drained": 0, "seen": 9, "updated_at": database_now()}
    for partition, backlog in enumerate((1200, 40)):
        Lane.objects.create(customer_id="C-7", partition=partition, backlog=backlog, **lane)
    assert "1,240 messages wait" in customers("purge", "C-7", dry_run=True)
    assert not Customer.objects.exists()
    assert "1,240 messages wait" in customers("purge", "C-7", reason=WHY)
    assert row().purge_before is not None
    assert OperatorAction.objects.get().detail["waiting"] == 1240


def test_a_change_of_what_somebody_else_changed_is_refused():
    customers("hold", "C-7", reason=WHY)
    seen = row()
    customers("set-rate", "C-7", "5/s", reason=WHY)
    with pytest.raises(Refusal, match="Somebody else"):
        changes.change("C-7", "resume", changes.resume, ME, WHY, seen=seen)
    assert row().held
    assert OperatorAction.objects.count() == 2


def test_every_change_moves_the_version_even_when_the_clock_went_back(monkeypatch):
    customers("hold", "C-7", reason=WHY)
    before = row().updated_at
    monkeypatch.setattr(changes, "database_now", lambda: before - timedelta(hours=1))
    customers("resume", "C-7", reason=WHY)
    assert row().updated_at > before


def test_the_list_is_one_object_a_line():
    customers("hold", "C-7", reason=WHY)
    customers("set-rate", "C-8", "5/s", reason=WHY)
    found = [json.loads(line) for line in customers("list", json=True).splitlines()]
    assert [(one["customer_id"], one["held"]) for one in found] == [("C-7", True), ("C-8", False)]
    shown = json.loads(customers("show", "C-9", json=True))
    assert (shown["own_terms"], shown["rates"], shown["created_at"]) == (False, "10/s", None)


def test_the_list_is_a_table(settings):
    assert customers("list") == f"No customer has terms of its own: all send at {settings.THROTTLER_DEFAULT_RATE}.\n"
    customers("hold", "C-7", reason=WHY)
    customers("set-rate", "C-8\u202e", "5/s;10000/day", burst=40, reason=WHY)
    header, *lines = customers("list").splitlines()
    assert header.split() == ["CUSTOMER", "RATE", "BURST", "LIFETIME", "WEIGHT", "STATE"]
    assert [line.split() for line in lines] == [
        ["C-7", settings.THROTTLER_DEFAULT_RATE, "default", "default", "1", "on", "hold"],
        ["C-8\\u202e", "5/s;10000/day", "40", "default", "1", "sends"],
    ]
    assert {line.index(word) for line, word in zip(lines, ("on hold", "sends"), strict=True)} == {header.index("STATE")}


def test_a_new_rate_says_what_becomes_of_the_burst():
    assert "rate 5/s, burst 5 messages, what the rate allows in a second;" in customers(
        "set-rate", "C-7", "5/s", reason=WHY
    )
    assert "rate 5/s, burst 40 messages, its own;" in customers("set-rate", "C-7", "5/s", burst="40", reason=WHY)
    assert "rate 8/s, burst 40 messages, its own;" in customers("set-rate", "C-7", "8/s", reason=WHY)
    assert (row().rates, row().burst) == ("8/s", 40)
    assert "it would be: rate 10/day, burst 40 messages, its own;" in customers(
        "set-rate", "C-7", "10/day", dry_run=True
    )
    told = customers("set-rate", "C-7", "10/day", burst="default", reason=WHY)
    assert "rate 10/day, burst 1 message, what the rate allows in a second;" in told
    assert row().burst is None
    assert "burst" not in customers("hold", "C-7", reason=WHY)


def test_a_customer_is_shown_in_words_for_people():
    customers("set-rate", "C-7", "20/s;10000/day", reason=WHY)
    customers("set-ttl", "C-7", "3600", reason=WHY)
    customers("hold", "C-7", reason=WHY)
    customers("purge", "C-7", reason=WHY)
    told = customers("show", "C-7")
    for line in (
        "Rate      20/s;10000/day",
        "Burst     default",
        "Lifetime  1 h",
        "On hold   yes",
        "Waiting   0 messages",
    ):
        assert line in told.splitlines()
    assert re.search(r"Given up  what came before \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\n", told)
    assert not re.search(r"None|True|False|_", told)
    assert "Terms     the defaults" in customers("show", "C-9")


def test_owners_are_told_all_at_first_then_what_changed():
    customers("set-rate", "C-7", "5/s", reason=WHY)
    customers("hold", "C-8", reason=WHY)
    terms, asked = changed_terms(None)
    assert (terms["C-7"].rates.windows[0].limit, terms["C-7"].held, terms["C-8"].held) == (5, False, True)
    assert changed_terms(asked + timedelta(minutes=1))[0] == {}


def test_a_change_that_committed_late_is_told():
    customers("set-rate", "C-7", "5/s", reason=WHY)
    asked = changed_terms(None)[1]
    Customer.objects.update(updated_at=asked - timedelta(seconds=20), rates="6/s")
    assert changed_terms(asked)[0]["C-7"].rates.windows[0].limit == 6


def test_a_row_that_nobody_can_read_stops_nobody():
    customers("set-rate", "C-7", "5/s", reason=WHY)
    Customer.objects.update(rates="nonsense")
    assert changed_terms(None)[0]["C-7"].rates.windows[0].limit == 10


def test_what_was_changed_is_said_as_people_say_it():
    told = [
        customers("set-rate", "C-7", "20/s", burst="40", reason=WHY), customers("set-rate", "C-7", "30/s", reason=WHY),
        customers("set-ttl", "C-7", "3600", reason=WHY), customers("set-ttl", "C-7", "default", reason=WHY),
        customers("set-weight", "C-7", "3", reason=WHY), customers("hold", "C-7", reason=WHY),
        customers("resume", "C-7", reason=WHY), customers("purge", "C-7", reason=WHY),
    ]  # fmt: skip
    results = list(OperatorAction.objects.order_by("pk").values_list("result", flat=True))
    assert results[:-1] == [
        "rate 10/s to 20/s, burst default to 40", "rate 20/s to 30/s", "lifetime default to 1 h", "lifetime 1 h to default",
        "weight 1 to 3", "on hold", "not on hold any more",
    ]  # fmt: skip
    assert re.fullmatch(r"backlog dropped up to [\d:]{8} UTC", results[-1])
    assert told[1] == "C-7: rate 30/s, burst 40 messages, its own; 0 messages wait\n"
    assert "it would be: on hold" in customers("hold", "C-7", dry_run=True)
    for text in (*told, *results):
        assert not re.search(r"None|True|False|=|_", text), text
