"""SPILLWAY_APPS that do not fit are one line that names both sides; what fits is added, and replaces nothing."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

import spillway_ext
from buffer.ledger import topics
from config.environment import extensions
from config.environment.env import BadSetting, Env
from config.environment.extensions import API, extend, load
from spillway_ext import exports, testing
from tests.tree import PACKAGES

HERE = Path(__file__).parent
PUBLIC = HERE / "public_names.txt"
METHODS = (
    exports.Flow, exports.Stream, exports.Letters, exports.MessageHandler, spillway_ext.SpillwayApp, testing.Platform,
)  # fmt: skip

WRONG = {
    "nobody": "SPILLWAY_APPS: nobody is no entry point of spillway.apps",
    "wrong.Nothing": "wrong.Nothing cannot be imported: AttributeError",
    "not_there.App": "not_there.App cannot be imported: ModuleNotFoundError: No module named 'not_there'",
    "wrong.NotOne": "wrong.NotOne is no class of spillway_ext.SpillwayApp",
    "spillway_ext.SpillwayApp": "spillway_ext.SpillwayApp is no class of spillway_ext.SpillwayApp",
    "wrong.NoApi": 'wrong.NoApi has no `api`, such as "1.0"',
    "wrong.TooNew": f"wrong.TooNew was written for spillway_ext 1.7; this Spillway has {API}",
    "wrong.Another": f"wrong.Another was written for spillway_ext 2.0; this Spillway has {API}",
    "wrong.NoName": "wrong.NoName has no `name`",
    "wrong.Good,wrong.Good": "wrong.Good is named twice",
    "wrong.NameTaken": "wrong.name_taken and Spillway both add 'transfer-requests' to STREAMS",
    "wrong.ReadTwice": "wrong.read_twice and Spillway both add a reader of the topic 'transfer-requests'",
    "wrong.StockToo": "wrong.stock_too and Spillway both add a reader of the topic 'PAYMENT_SUCCESS'",
    "wrong.LabelTaken": "wrong.outbox and Spillway both add the app label 'outbox'",
    "wrong.NoPrefix": "wrong.no_prefix: its setting DEBUG does not begin with ACME_",
    "wrong.NotAPrefix": "wrong.not_a_prefix: its settings need a `prefix`",
    "wrong.SettingTaken": "wrong.setting_taken and Spillway both add the setting KAFKA_TOPIC_PREFIX",
    "wrong.Raises": "wrong.raises: settings(): ZeroDivisionError: division by zero",
    "wrong.BadValue": "ACME_RATE: 77 is outside 1 … 9",
    "wrong.NoRight": "wrong.no_right: role 'Support': 'everything' is neither view nor app.right",
    "wrong.NoTopic": "wrong.no_topic: streams['mine'] has no TOPIC",
    "wrong.OneFlow": "wrong.one_flow: `flows` is a str, not a list",
    "wrong.AList": "wrong.a_list: `movements` is a list, not a mapping",
    "wrong.NoWord": "wrong.no_word: movements['points-earned']: WORDS: 'stok' is none of stock, quantity, stocktake, ref",
    "wrong.First,wrong.Second": "wrong.second and wrong.first both add 'pigeon' to HANDLERS",
    "wrong.FirstRate,wrong.SecondRate": "wrong.second_rate and wrong.first_rate both add the setting ACME_RATE",
}


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("ACME_RATE", "77")
    yield
    for name in ("wrong", *(name for name in sys.modules if name.split(".")[0] == "acme")):
        sys.modules.pop(name, None)


def settings_with(names: str) -> dict:
    """The settings as they stand before the last two lines, with these apps."""
    registries = {
        "INSTALLED_APPS": ["config", "outbox", "buffer", "axes", "django.contrib.auth"],
        "STREAMS": {"transfer-requests": {"TOPIC": "transfer-requests"}},
        "MOVEMENTS": {"PAYMENT_SUCCESS": "buffer.ledger.topics.sold"},
        "MESSAGES_IN": {"messages-in": {}},
        "OUTBOX_CDC_TOPIC": "outbox.outbox_message",
        "KAFKA_TOPIC_PREFIX": "",
        "ADDED_APPS": [],
        "ADDED_ROLES": {},
    }
    registries |= {name: {} for name in ("KAFKA_TOPICS", "HANDLERS", "CELERY_BEAT_SCHEDULE")}
    registries |= {name: [] for name in ("FLOWS", "API_ROUTERS", "PARTITIONS", "SWEEPS")}
    extend(registries, load(names.split(",")), Env())
    return registries


@pytest.mark.parametrize("names", WRONG)
def test_what_does_not_fit_is_one_line_that_names_both_sides(names):
    with pytest.raises(BadSetting) as refusal:
        settings_with(names)
    assert WRONG[names] in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_the_words_of_an_entry_are_those_of_the_ledger():
    assert tuple(topics.WORDS) == extensions.WORDS


def test_what_fits_is_added_behind_what_is_there():
    settings = settings_with("acme.apps.Acme")
    assert settings["INSTALLED_APPS"] == ["config", "outbox", "buffer", "acme.apps.Acme", "axes", "django.contrib.auth"]
    assert list(settings["STREAMS"]) == ["transfer-requests", "parcel-scans"]
    assert list(settings["MOVEMENTS"]) == ["PAYMENT_SUCCESS", "points-earned"]
    assert (settings["ADDED_APPS"], settings["ACME_KEEP_DAYS"]) == (["acme"], 10)
    assert settings["ADDED_ROLES"]["Operator"] == ["acme.change_depotnote"]
    assert settings["SWEEPS"] == ["acme.models.sweep_notes"]


def test_the_public_names_and_their_signatures_are_those_of_the_list():
    """Whoever changes one of them changes `API`, too, and this list."""
    assert public_names() == PUBLIC.read_text().splitlines()


def public_names() -> list[str]:
    """`Flow.home_row(self, now)`: each name, and each public method of those that are classes of ours."""
    names = {name: getattr(exports, name) for name in dir(exports) if not name.startswith("_")}
    names |= {"SpillwayApp": spillway_ext.SpillwayApp, "testing.Platform": testing.Platform}
    lines = [f"API {spillway_ext.API}"]
    for name, value in sorted(names.items()):
        lines.append(f"{name}{_signature(value)}")
        if isinstance(value, type) and issubclass(value, METHODS):
            own = [(method, part) for method, part in vars(value).items() if not method.startswith("_")]
            lines += [f"{name}.{method}{_signature(part)}" for method, part in sorted(own)]
    return lines


def _signature(value: object) -> str:
    """The names of its parameters, of ours alone: those of libraries change with their releases."""
    value = getattr(value, "__func__", value)
    if not callable(value) or (isinstance(value, type) and issubclass(value, Exception)):
        return ""
    if getattr(value, "__module__", "").split(".")[0] not in PACKAGES:
        return ""
    given = inspect.signature(value).parameters.values()
    return f"({', '.join(one.name if one.default is one.empty else f'{one.name}=' for one in given)})"


def test_a_name_that_is_not_public_is_not_there():
    with pytest.raises(AttributeError, match="spillway_ext has no 'DeadLetter'"):
        spillway_ext.DeadLetter  # noqa: B018
