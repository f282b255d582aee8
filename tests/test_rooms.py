"""Where everything stands: which folder may use which, no circles, no crowded folder, no name twice."""

import importlib
import re
from collections import Counter, defaultdict
from pathlib import PurePath

import pytest
from django.utils.module_loading import import_string

from tests.tree import PACKAGES, ROOT, arrows, circle, code

# Which folders of its own app a folder may use; each stands below the ones it uses. The files at an app's root are its
# doors: they use every folder of it, and every folder may use them.
MAY_USE = {
    "config": {
        "environment": [],
        "telemetry": ["environment"],
        "database": ["telemetry"],
        "database/dialects": [],
        "database/mysql": ["database"],
        "database/postgresql": [],
        "http": ["telemetry"],
        "openid": ["environment", "http", "telemetry"],
        "formats": ["http", "telemetry"],
        "kafka": ["telemetry", "database", "http"],
        "kafka/consumer": ["telemetry", "database", "kafka"],
        "partitions": ["telemetry", "database"],
        "processes": ["environment", "telemetry", "database", "kafka", "kafka/consumer", "partitions"],
        "probes": [
            "environment",
            "formats",
            "openid",
            "telemetry",
            "database",
            "kafka",
            "kafka/consumer",
            "partitions",
        ],
        "admin": ["environment", "telemetry", "database", "kafka", "partitions"],
        "demo": ["environment", "telemetry", "database", "kafka", "processes"],
    },
    "outbox": {
        "audit_log": [],
        "accounts": ["audit_log", "sign_in"],
        "sign_in": ["audit_log"],
        "bookkeeping": [],
        "processes": [],
        "groups": ["bookkeeping", "audit_log"],
        "letters": ["bookkeeping", "audit_log", "groups"],
        "channels": ["bookkeeping", "audit_log"],
        "topic_replay": ["bookkeeping", "audit_log"],
        "replay_batches": [
            "bookkeeping",
            "audit_log",
            "processes",
            "groups",
            "letters",
            "channels",
            "messages",
            "delivery",
        ],
        "messages": ["bookkeeping", "letters", "channels"],
        "notices": ["bookkeeping"],
        "delivery": ["bookkeeping", "audit_log", "letters", "channels", "messages"],
        "intake": ["bookkeeping", "letters", "channels", "messages", "delivery"],
        "workers": ["bookkeeping", "letters", "channels", "messages", "delivery", "intake"],
        "api": ["bookkeeping", "messages", "intake"],
        "admin/groups": ["bookkeeping", "audit_log", "groups", "letters", "replay_batches"],
        "admin": [
            "bookkeeping",
            "audit_log",
            "accounts",
            "notices",
            "admin/groups",
            "processes",
            "groups",
            "letters",
            "channels",
            "topic_replay",
            "replay_batches",
            "messages",
            "delivery",
        ],
    },
    "buffer": {
        "events": [],
        "ingest": ["events"],
        "flush": ["events"],
        "ledger": ["events"],
        "admin": ["events", "ingest", "flush", "ledger"],
    },
    "throttler": {
        "limits": [],
        "customers": ["limits", "lanes"],
        "overflow": [],
        "lanes": ["limits"],
        "engine": ["limits", "customers", "overflow", "lanes"],
        "worker": ["limits", "customers", "overflow", "lanes", "engine"],
        "admin": ["limits", "customers", "overflow", "lanes"],
    },
    "notifications": {
        "mail": [],
        "orders": ["mail"],
        "channels": ["mail"],
        "webhooks": ["mail"],
        "api": ["mail", "orders", "webhooks"],
        "admin": ["mail", "orders", "channels", "webhooks", "api"],
    },
}
# Folders whose parent is a room of its own and uses them; everywhere else a parent stands below its folders.
PARTS = {"config/database/dialects"}
# Django's own places: they hold what it looks for there, and use the app as its root does.
DOORS = {"management", "management/commands", "templatetags"}

# What a flow sees of the outbox: how things are counted, parked, promised. Never how they are delivered.
SHOWN_TO_FLOWS = ("models", "bookkeeping", "audit_log", "groups", "letters", "messages", "channels.handlers", "api")
TRIES_ALL = "spillway_ext/testing.py"  # drives the whole platform, as a test does
NOT_FOR_APPS = ("config/demo/", "config/probes/")
ONLY_FOR_PAGES = {f"config/admin/{name}.py" for name in ("pages", "lists", "html")}
MOST_FILES = 15

# One name for one thing; what must be called the same is listed: Django's commands, one class per vendor, and the
# two halves of the buffer, which have the same parts.
SAID_TWICE = {"Command", "PostgreSQL", "MySQL", "SQLite", "Prepared"}


def room_of(name: str) -> tuple[str, str]:
    """`("outbox", "delivery")` for a file in there; the second is empty at the root of an app."""
    app, *folders = PurePath(name).parent.parts
    return app, "/".join(folders)


def uses():
    """Every import of one file by another: who, whom."""
    return [(one, other) for one, others in arrows().items() for other in others]


# -- The table ---------------------------------------------------------------------------------------------
def test_every_folder_stands_in_the_table():
    rooms = {room_of(module.name) for module in code()}
    unknown = {(app, room) for app, room in rooms if room and room not in DOORS and room not in MAY_USE[app]}
    assert not unknown, "a new folder: say in MAY_USE what it stands on"


def test_the_table_names_no_folder_that_is_gone():
    missing = [f"{app}/{room}" for app in MAY_USE for room in MAY_USE[app] if not (ROOT / app / room).is_dir()]
    assert not missing


@pytest.mark.parametrize("app", MAY_USE)
def test_the_table_has_an_order(app):
    assert not circle(MAY_USE[app])


def test_folders_use_only_what_they_stand_on():
    wrong = []
    for one, other in uses():
        (app, room), (other_app, used) = room_of(one), room_of(other)
        if app != other_app or room == used or not room or not used or room in DOORS:
            continue
        if used not in MAY_USE[app][room] and f"{app}/{used}" not in parts_of(app, room):
            wrong.append(f"{one} imports {other}")
    assert not wrong


def parts_of(app: str, room: str) -> set[str]:
    return {part for part in PARTS if str(PurePath(part).parent) == f"{app}/{room}"}


# -- What else is closed -----------------------------------------------------------------------------------
def test_flows_see_of_the_outbox_only_what_is_shown():
    shown = tuple(f"outbox/{place.replace('.', '/')}" for place in SHOWN_TO_FLOWS)
    wrong = [
        f"{one} imports {other}"
        for one, other in uses()
        if other.startswith("outbox/") and not one.startswith(("outbox/", TRIES_ALL)) and not other.startswith(shown)
    ]
    assert not wrong


def test_apps_do_not_lean_on_the_demo_or_on_the_probes():
    wrong = [
        f"{one} imports {other}"
        for one, other in uses()
        if other.startswith(NOT_FOR_APPS) and not one.startswith(("config/", TRIES_ALL))
    ]
    assert not wrong


def test_only_admin_pages_use_the_parts_of_pages():
    wrong = [
        f"{one} imports {other}"
        for one, other in uses()
        if other in ONLY_FOR_PAGES and not {"admin", "templatetags", "spillway_ext"} & set(PurePath(one).parts)
    ]
    assert not wrong


# -- No circles, no crowds, no doubles ---------------------------------------------------------------------
def test_no_files_import_each_other_in_a_circle():
    assert not circle(arrows())


@pytest.mark.parametrize("folder", sorted({"", *(module.folder for module in code())}))
def test_no_rooms_of_a_folder_stand_in_a_circle(folder):
    """Seen from a folder, each file in it is a room, and each folder with everything below."""
    inside = f"{folder}/" if folder else ""
    graph = defaultdict(set)
    for one, other in uses():
        if one.startswith(inside) and other.startswith(inside):
            room, used = (name.removeprefix(inside).split("/")[0] for name in (one, other))
            if room != used:
                graph[room].add(used)
    assert not circle(graph)


def test_no_folder_is_crowded():
    sizes = Counter(module.folder for module in code())
    assert not {folder: files for folder, files in sizes.items() if files > MOST_FILES}


def test_a_class_name_is_said_once():
    found = Counter(re.findall(r"^class (\w+)", "\n".join(module.text for module in code()), re.MULTILINE))
    assert not {name for name, number in found.items() if number > 1} - SAID_TWICE


# -- What applied migrations look for ----------------------------------------------------------------------
def test_what_migrations_name_still_exists():
    named = set()
    for path in sorted(ROOT.glob("*/migrations/0*.py")):
        if path.relative_to(ROOT).parts[0] in PACKAGES:
            text = path.read_text()
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            named |= set(re.findall(r"['\"]((?:\w+\.)+[A-Z]+)['\"]", text))
            named |= set(re.findall(r"\bconfig\.fields\.\w+", text))
    assert named
    for dotted in named:
        import_string(dotted)
